"""List of clips in the review: compact rows that one player plays. No Gradio here.

    <tr data-clip="rec_0001">  <button class="play" data-audio="/gradio_api/file=...">  text  speaker  ...

The audio element is outside the list, so that an updated list does not stop it; LISTEN loads a recording into
it on a click. A recording outside the project has no address, because the page may be public.
"""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from indextts.projects.project import Project
from indextts.webui.data.reason_texts import flag_text, reason_name
from indextts.webui.data.review_rows import Row
from indextts.webui.language import t
from indextts.webui.markup import empty_html, facts_html
from indextts.webui.serving.security import file_address

PLAYER = '<audio id="review-audio" controls preload="none"></audio>'

# `element` is the list; a row that is clicked is selected, its button also plays or pauses it
LISTEN = """
const player = () => document.getElementById("review-audio");
const mark = () => element.querySelectorAll("tr[data-clip]").forEach(row => {
  const audio = player();
  row.classList.toggle("playing", !!audio && !audio.paused && audio.dataset.clip === row.dataset.clip);
});
const play = (clip, button) => {
  const audio = player();
  if (!audio || !button?.dataset.audio) return;
  if (!audio.dataset.followed) {
    audio.dataset.followed = 1;
    ["play", "pause", "ended"].forEach(name => audio.addEventListener(name, mark));
  }
  if (audio.dataset.clip === clip && !audio.paused) return audio.pause();
  if (audio.dataset.clip !== clip) audio.src = button.dataset.audio;
  audio.dataset.clip = clip;
  audio.play().catch(() => {});
};
const choose = row => {
  element.querySelectorAll("tr.chosen").forEach(other => other.classList.remove("chosen"));
  row.classList.add("chosen");
  const clip = row.dataset.clip;
  trigger("select", {index: [0, 0], value: clip, row_value: [clip]}); // as a table (serving/access.py)
};
element.addEventListener("click", event => {
  const row = event.target.closest("tr[data-clip]");
  if (!row) return;
  const button = event.target.closest(".play");
  if (button) play(row.dataset.clip, button);
  if (!row.classList.contains("chosen")) choose(row);
});
watch("value", mark);
"""


def list_html(project: Project, rows: Sequence[Row], chosen: str = "") -> str:
    """Return the rows of one page of the list.

    Args:
        chosen: id of the clip in the editor.
    """
    if not rows:
        return empty_html(t("data.no_clips"))
    heads = (
        ("", ""),
        (t("data.headers.text"), ""),
        (t("data.headers.speaker"), "wide-only"),
        (t("data.headers.duration"), "number wide-only"),
        (t("data.headers.reasons"), ""),
        (t("data.headers.verdict"), ""),
    )
    head = "".join(f'<th class="{css}">{escape(text)}</th>' for text, css in heads)
    body = "".join(_row(project, row, is_chosen=row.utterance.id == chosen) for row in rows)
    return f'<table class="list clips"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def clip_html(row: Row) -> str:
    """Return what is known of a clip, for the editor."""
    utterance = row.utterance
    facts = [
        (t("data.headers.clip"), utterance.id),
        (t("data.headers.speaker"), utterance.speaker),
        (t("data.headers.duration"), f"{utterance.duration_s:.2f} s"),
        (t("data.headers.verdict"), t(row.verdict)),
    ]
    facts += [(t("data.reasons_of_clip"), flag_text(flag)) for flag in row.flags]
    if utterance.text != row.original_text:
        facts.append((t("data.manifest_text"), row.original_text))
    return facts_html(facts)


def playable(project: Project, audio: Path) -> Path | None:
    """Return the resolved path of a recording; None if it is outside the project or missing."""
    found = audio.resolve()
    return found if found.is_relative_to(project.root.resolve()) and found.is_file() else None


def _row(project: Project, row: Row, *, is_chosen: bool) -> str:
    utterance = row.utterance
    edited = (
        f" <small>({escape(t('data.edited_mark'))})</small>" if utterance.text != row.original_text else ""
    )
    reasons = "".join(
        f'<span class="{"bad" if flag.is_hard else "warn"}" title="{escape(flag_text(flag))}">'
        f"{escape(reason_name(flag.reason))}</span>"
        for flag in row.flags
    )
    return (
        f'<tr data-clip="{escape(utterance.id)}" class="{"chosen" if is_chosen else ""}">'
        f"<td>{_button(project, row)}</td><td>{escape(utterance.text)}{edited}</td>"
        f'<td class="wide-only">{escape(utterance.speaker)}</td>'
        f'<td class="number wide-only">{utterance.duration_s:.2f} s</td>'
        f'<td class="clip-reasons">{reasons}</td>'
        f'<td class="{"" if row.is_kept else "bad"}">{escape(t(row.verdict))}</td></tr>'
    )


def _button(project: Project, row: Row) -> str:
    name = escape(t("data.play", clip=row.utterance.id))
    path = playable(project, row.utterance.audio)
    if path is None:
        return (
            f'<button type="button" class="play" disabled title="{escape(t("data.not_playable"))}">▶</button>'
        )
    address = file_address(path)
    return f'<button type="button" class="play" data-audio="{address}" aria-label="{name}">▶</button>'
