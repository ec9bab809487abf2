"""List of clips in the review as HTML. No Gradio here.

    <table data-project="my_voice">
      <template>                          the buttons of the chosen row, which the browser puts into it
      <tr data-clip="rec_0001" data-key="5f0c...">    data-key: of the decision on it, if there is one
        <button class="play" data-audio="/gradio_api/file=...">  text  speaker  length  reasons  verdict

page_files/review.js chooses and plays rows and sends decisions; the answer to a decision is the row, not the
list. A recording outside the project has no address, because the page may be public.
"""

from collections.abc import Sequence
from difflib import SequenceMatcher
from html import escape
from itertools import groupby
from pathlib import Path

from indextts.data.review_table import Totals
from indextts.projects.project import Project
from indextts.text.ethiopic import text_key
from indextts.webui.data.review_rows import MAX_TEXT_CHARS, Row, flag_text, measure_name, reason_name
from indextts.webui.language import shown_hours, t
from indextts.webui.markup import Tile, empty_html, facts_html, sound_html, tiles_html
from indextts.webui.serving.security import file_address

PLAYER = sound_html("", id="review-audio")

TEXT_BY = {"heard": "data.text_heard_by", "aligned": "data.text_aligned_by"}
MAX_MARKED_CHARS = 500  # the comparison of longer texts takes too long for a page of rows
ACTIONS = (  # what the browser sends, its text, its key
    ("keep", "data.keep", "K"),
    ("reject", "data.reject", "R"),
    ("swap", "data.use_other", "O"),
    ("edit", "data.edit_text", "E"),
    ("undo", "data.undo", "U"),
    ("reset", "data.reset_verdict", "C"),
)
EDITING = (("save", "data.save_text", "Enter"), ("cancel", "data.cancel", "Esc"))
KEYS = (
    ("Space", "data.keys.play"),
    ("K", "data.keep"),
    ("R", "data.reject"),
    ("O", "data.use_other"),
    ("E", "data.edit_text"),
    ("N", "data.keys.next"),
    ("P", "data.keys.previous"),
    ("U", "data.keys.undo"),
    ("C", "data.reset_verdict"),
    ("PgDn", "data.keys.next_page"),
)


def list_html(project: Project, rows: Sequence[Row], name: str = "") -> str:
    """Return the rows of a page; with a new `name`, the browser chooses the first clip to decide."""
    if not rows:
        return empty_html(t("data.no_clips"))
    css = {"clip": "unseen", "text": "", "speaker": "wide-only", "duration": "number wide-only"}
    heads = ((t(f"data.headers.{name}"), css.get(name, "")) for name in (*css, "reasons", "verdict"))
    head = "".join(f'<th class="{kind}">{escape(text)}</th>' for text, kind in heads)
    body = "".join(row_html(project, row) for row in rows)
    return (
        f'<table class="list clips" role="grid" data-project="{escape(project.root.name)}" '
        f'data-list="{escape(name)}" '
        f'data-max-chars="{MAX_TEXT_CHARS}" aria-label="{escape(t("data.show"))}">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"<template>{_buttons(ACTIONS)}</template><template>{_buttons(EDITING)}</template>"
    )


def row_html(project: Project, row: Row) -> str:
    utterance = row.utterance
    edited = (
        f" <small>({escape(t('data.edited_mark'))})</small>" if utterance.text != row.original_text else ""
    )
    chips = "".join(
        f'<span class="{"bad" if flag.is_hard else "warn"}" title="{escape(flag_text(flag))}">'
        f"{escape(reason_name(flag.reason))}</span>"
        for flag in row.flags
    )
    if row.score is not None:
        name, value = row.score
        chips += f"<span>{escape(measure_name(name))}: {value:.4g}</span>"
    text, heard = marked_pair(utterance.text, row.heard) if row.heard else (escape(utterance.text), "")
    if heard:
        label = t("data.heard_by", name=row.heard_by) if row.heard_by else t("data.heard")
        if utterance.provenance is not None and utterance.provenance.kind == "aligned":
            label = t("data.heard_or_near")
        heard = f'<div class="clip-heard">{escape(label)}: <span dir="auto">{heard}</span></div>'
    css = ("" if row.is_kept else "bad", "by-hand" if row.is_by_hand else "")
    return (
        f'<tr data-clip="{escape(utterance.id)}" data-key="{escape(row.made.key if row.made else "")}" '
        f'class="{"decided" if row.is_decided else ""}" {"data-swap " if row.can_swap else ""}'
        'tabindex="-1" aria-selected="false">'
        f'<td class="clip-play">{_play_button(project, row)}</td><td class="clip-cell">'
        f'<span class="clip-text" dir="auto">{text}</span>{edited}{heard}'
        f'<div class="clip-facts">{_facts(project, row)}</div></td>'
        f'<td class="wide-only">{escape(utterance.speaker)}</td>'
        f'<td class="number wide-only">{utterance.duration_s:.2f} s</td>'
        f'<td class="clip-reasons">{chips}</td>'
        f'<td class="clip-verdict {" ".join(filter(None, css))}">{escape(t(row.verdict))}</td></tr>'
    )


def marked_pair(text: str, heard: str) -> tuple[str, str]:
    """Return a text and its transcript as HTML, with marks on the letters that sound different."""
    if max(len(text), len(heard)) > MAX_MARKED_CHARS:
        return escape(text), escape(heard)
    keys = [
        [(place, key) for place, char in enumerate(one) if (key := text_key(char))] for one in (text, heard)
    ]
    meant, said = ([key for _, key in found] for found in keys)
    matcher = SequenceMatcher(None, meant, said, autojunk=False)
    same: tuple[set[int], set[int]] = (set(), set())
    for block in matcher.get_matching_blocks():
        for found, start, places in zip(keys, (block.a, block.b), same, strict=True):
            places |= {place for place, _ in found[start : start + block.size]}
    differing = [{place for place, _ in found} - places for found, places in zip(keys, same, strict=True)]
    return _marked(text, differing[0]), _marked(heard, differing[1])


def _marked(text: str, places: set[int]) -> str:
    runs = groupby(enumerate(text), key=lambda item: item[0] in places)
    parts = ((is_marked, escape("".join(char for _, char in run))) for is_marked, run in runs)
    return "".join(f"<mark>{part}</mark>" if is_marked else part for is_marked, part in parts)


def totals_html(totals: Totals) -> str:
    """Return the amounts of speech before and after check and review, and what is left to decide."""
    clips = t("data.one_clip" if totals.num_clips == 1 else "data.clips_count", count=totals.num_clips)
    percent = 100 * totals.hours_kept / totals.hours if totals.hours else 0
    kept = t("data.totals.kept", count=totals.num_kept, percent=percent)
    doubtful = t("data.totals.doubtful", count=totals.num_doubtful)
    return tiles_html(
        [
            Tile(t("data.totals.before"), shown_hours(3600 * totals.hours), clips),
            Tile(t("data.totals.after"), shown_hours(3600 * totals.hours_kept), kept),
            Tile(t("data.totals.undecided"), f"{totals.num_undecided:,}", doubtful),
        ]
    )


def help_html() -> str:
    """Return the keys, and the choice to play each clip that is reached."""
    keys = "".join(f"<span><kbd>{key}</kbd> {escape(t(id))}</span>" for key, id in KEYS)
    return (
        f'<div class="clip-keys" aria-label="{escape(t("data.keys.heading"))}">{keys}</div>'
        f'<label class="clip-autoplay"><input type="checkbox" id="review-autoplay"> '
        f"{escape(t('data.autoplay'))}</label>"
    )


def playable(project: Project, audio: Path) -> Path | None:
    """Return the resolved path of a recording; None if it is outside the project or missing."""
    found = audio.resolve()
    return found if found.is_relative_to(project.root.resolve()) and found.is_file() else None


def _facts(project: Project, row: Row) -> str:
    utterance = row.utterance
    narrow = [
        (t("data.headers.speaker"), utterance.speaker),
        (t("data.headers.duration"), f"{utterance.duration_s:.2f} s"),
    ]
    facts = [(t("data.headers.clip"), utterance.id)]
    if utterance.provenance is not None and utterance.provenance.by:
        facts.append(
            (t("data.text_by"), t(TEXT_BY[utterance.provenance.kind], name=utterance.provenance.by[0]))
        )
    if row.flags:
        facts.append((t("data.reasons_of_clip"), "; ".join(map(flag_text, row.flags))))
    if row.cleaned:
        facts.append((t("data.cleaned"), row.cleaned))
    if utterance.text != row.original_text:
        facts.append((t("data.manifest_text"), row.original_text))
    players = _before_and_after(project, row)
    return f'<div class="narrow-only">{facts_html(narrow)}</div>{facts_html(facts)}{players}'


def _before_and_after(project: Project, row: Row) -> str:
    """Return players of a cleaned clip and of its input; "" for other clips."""
    if row.before is None:
        return ""
    recordings = (("data.before_cleaning", row.before), ("data.after_cleaning", row.utterance.audio))
    return "".join(
        f'<div class="clip-compared">{escape(t(id))} {sound_html(file_address(path))}</div>'
        for id, audio in recordings
        if (path := playable(project, audio)) is not None
    )


def _buttons(actions: Sequence[tuple[str, str, str]]) -> str:
    buttons = "".join(
        f'<button type="button" data-act="{act}">{escape(t(id))} <kbd>{key}</kbd></button>'
        for act, id, key in actions
    )
    return f'<div class="clip-acts">{buttons}</div>'


def _play_button(project: Project, row: Row) -> str:
    name = escape(t("data.play", clip=row.utterance.id))
    path = playable(project, row.utterance.audio)
    if path is None:
        return (
            f'<button type="button" class="play" disabled title="{escape(t("data.not_playable"))}">▶</button>'
        )
    address = file_address(path)
    return f'<button type="button" class="play" data-audio="{address}" aria-label="{name}">▶</button>'
