"""Tab 3: extend and verify the tokenizer, tokenize a sentence before and after, and edit the readings."""

from collections.abc import Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from indextts.commands.base import Command
from indextts.commands.data import ExtendTokenizer
from indextts.commands.normalizer_options import NormalizerFlags
from indextts.data.pair_index import find_index, index_path
from indextts.projects.project import Project, ProjectSettings, read_project, write_project
from indextts.projects.readings import store_normalizer
from indextts.projects.stages import plan_stage
from indextts.text.bases import load_tokenizer, tokenizer_of
from indextts.text.size_summary import read_summary, summary_path
from indextts.text.tokenizer import Tokenizer
from indextts.webui.events import on
from indextts.webui.forms import form_for
from indextts.webui.language import field_help, field_title, t
from indextts.webui.layout import columns, fields, fold, heading, small_button
from indextts.webui.markup import remark_html, table_html
from indextts.webui.page import Page
from indextts.webui.plots import curve_svg
from indextts.webui.running.outlook import Outlook, Start, missing
from indextts.webui.running.panel import CONTINUE, Stage, stage_panel
from indextts.webui.tokenizer import readings_view
from indextts.webui.tokenizer.readings_view import refuse_while_building
from indextts.webui.view_versions import files_version

EXAMPLE = "ሰላም ነው፣ እንዴት ነህ? በ2017 ዓ.ም 50% ጨመረ።"
# the project has the language and the table of readings
OPTIONS = tuple(
    name for name in NormalizerFlags.model_fields if name not in ("language", "language_row", "readings")
)
MAX_SHOWN = 400  # pieces
Counts = Sequence[int] | None  # by token, 0 beyond the end; None if they are not known


def build(page: Page) -> None:
    with columns() as (main, side):
        with main:
            heading("tokenizer.heading", "tokenizer.lead")
            with fields():
                size = gr.Number(
                    label=field_title(ExtendTokenizer, "target_size"),
                    info=field_help(ExtendTokenizer, "target_size"),
                    placeholder=t("forms.automatic"),
                    precision=0,
                    elem_id="ExtendTokenizer-target_size",
                )
            with fold(t("tokenizer.normalizer"), "normalizer"):
                with fields():
                    options = list(form_for(ExtendTokenizer, OPTIONS).values())
                keep = small_button("tokenizer.keep_pieces", "keep-pieces")
                kept = gr.HTML(elem_id="keep-pieces-note")
            curve = gr.HTML(elem_id="tokenizer-curve")
            heading("tokenizer.try_a_sentence")
            sentence = gr.Textbox(EXAMPLE, show_label=False, container=False, elem_id="try-sentence")
            pieces = gr.HTML(elem_id="try-pieces")
            readings_view.build(page)
        form = [size, *options]
        filled_for = page.fill(lambda project, _: project_values(project), form)
        with side:
            stage = Stage(
                "tokenizer",
                "tokenizer.extend_and_verify",
                prepare,
                form,
                onward=CONTINUE,
                store_settings=store_settings,
                filled_for=filled_for,
            )
            stage_panel(page, stage)
    page.watch(lambda project: files_version(summary_path(project.tokenizer)), curve_html, [curve])

    on([keep.click], keep_pieces, [page.project, *options], [kept])

    # the pieces also change with the tokenizer, and the counts with the pairs
    page.watch(
        lambda project: files_version(project.tokenizer, index_path(project.pairs("train"))),
        tokenize,
        [pieces],
        [sentence],
        also=[sentence.change],
    )


def prepare(project: Project, settings: ProjectSettings, size: float | None, *values: Any) -> Start:
    options = dict(zip(OPTIONS, values, strict=True))
    asked = settings.with_fields("tokenizer", target_size=int(size or 0)).with_fields("normalizer", **options)
    commands = plan_stage(project, asked, "tokenizer").commands
    facts = []
    if project.base_tokenizer.is_file():
        base = base_size(project.base_tokenizer, files_version(project.base_tokenizer))
        now = read_summary(project.tokenizer)
        after = t("tokenizer.automatic_now", size=f"{now.sizes[-1].size:,}") if now else t("forms.automatic")
        after = f"{int(size):,}" if size else after
        facts.append((t("tokenizer.pieces"), t("tokenizer.grows", base=f"{base:,}", size=after)))
    blockers = missing(project.base_tokenizer, "tokenizer.no_base", "project")
    blockers += missing(project.manifest, "tokenizer.no_manifest", "data")
    return Start(commands, outlook=Outlook(facts, blockers))


@lru_cache(maxsize=8)
def base_size(path: Path, _version: str) -> int:
    return load_tokenizer(path).size


def curve_html(project: Project) -> str:
    """Return tokens per word by tokenizer size as a curve with its table; "" before the extension."""
    summary = read_summary(project.tokenizer)
    if summary is None:
        return ""
    heads = [(t(f"tokenizer.{name}"), "number") for name in ("size", "tokens_per_word", "rare_pieces")]
    rows = []
    for point in summary.sizes:
        share = 100 * point.num_rare / max(1, point.size - summary.base_size)
        rare = f"{point.num_rare:,} ({share:.0f} %)"
        used = f"<small>{escape(t('tokenizer.in_use'))}</small> " * (point is summary.sizes[-1])
        rows.append((f"{used}{point.size:,}", f"{point.tokens_per_word:.2f}", rare))
    first, last = summary.sizes[0], summary.sizes[-1]
    width = max(1, last.size - first.size)
    height = max(point.tokens_per_word for point in summary.sizes) * 1.1 or 1
    points = [((point.size - first.size) / width, point.tokens_per_word / height) for point in summary.sizes]
    ends = [t("tokenizer.curve_end", size=f"{end.size:,}", rate=end.tokens_per_word) for end in (first, last)]
    return (
        f"<h3>{escape(t('tokenizer.size_heading'))}</h3>"
        f'<p class="lead">{escape(t("tokenizer.size_lead", texts=f"{summary.num_texts:,}"))}</p>'
        f'<div class="size-curve">{curve_svg(points, t("tokenizer.tokens_per_word"), ends)}'
        f"{table_html(heads, rows)}</div>"
    )


def project_values(project: Project) -> list[Any]:
    settings = read_project(project)
    chosen = NormalizerFlags(**settings.normalizer)
    size = settings.tokenizer.get("target_size") or None  # empty for an automatic one
    return [size, *(getattr(chosen, name) for name in OPTIONS)]


def store_settings(project: Project, planned: Sequence[Command]) -> None:
    """Store size and options in the project's settings, for the check and the next visit."""
    for command in planned:
        if isinstance(command, ExtendTokenizer):
            settings = read_project(project).with_fields("tokenizer", target_size=command.target_size)
            options = {name: getattr(command, name) for name in OPTIONS}
            write_project(project, settings.with_fields("normalizer", **options))


def keep_pieces(project: Project, *values: Any) -> str:
    """Store the options in the tokenizer without learning pieces again; return the note about it."""
    refuse_while_building(project)
    store_normalizer(project, dict(zip(OPTIONS, values, strict=True)))
    is_stored = project.tokenizer.is_file()
    return f"<p>{escape(t('tokenizer.options_stored') if is_stored else t('tokenizer.options_wait'))}</p>"


def tokenize(project: Project, sentence: str) -> str:
    """Return the spoken form of a sentence, and its pieces by the base and the extended tokenizer."""
    base, counts = load_tokenizer(project.base_tokenizer), None
    used, after = base, f"<p>{escape(t('tokenizer.not_extended'))}</p>"
    if project.tokenizer.is_file():
        used, counts = load_tokenizer(project.tokenizer), piece_counts(project)
        after = pieces_html(t("tokenizer.after"), used, sentence, base.size, counts)
        base = tokenizer_of(base.model_bytes, base.path, used.options)
    spoken = f"<p><b>{escape(t('tokenizer.spoken_form'))}</b>: {escape(used.normalize(sentence))}</p>"
    before = pieces_html(t("tokenizer.before"), base, sentence, base.size)
    return "".join([legend_html(counts), spoken, before, after])


def piece_counts(project: Project) -> Counts:
    """Return the occurrences of each piece in the project's training pairs; None without their index."""
    pairs, tokenizer = project.pairs("train"), project.tokenizer
    return _counts(pairs, tokenizer, files_version(pairs, index_path(pairs), tokenizer))


@lru_cache(maxsize=4)  # an index takes a second for 400,000 pairs
def _counts(pairs: Path, tokenizer: Path, _version: str) -> Counts:
    index = find_index(pairs, load_tokenizer(tokenizer))
    return None if index is None else index.pairs.piece_counts().tolist()


def pieces_html(
    title: str, tokenizer: Tokenizer, sentence: str, base_size: int, counts: Counts = None
) -> str:
    """Return the pieces of a sentence, new from the id `base_size` on, with ids and counts in the training.

    The model reads an unknown piece as silence; one in no training text is the usual cause of mixed-up words.
    """
    spoken = tokenizer.normalize(sentence)
    ids, pieces = tokenizer.encode_normalized(spoken), tokenizer.normalized_pieces(spoken)
    appended = tokenizer.appended_ids(base_size)
    times = [None if counts is None else counts[id] if id < len(counts) else 0 for id in ids]
    spans = []
    for token, piece, num in list(zip(ids, pieces, times, strict=True))[:MAX_SHOWN]:
        kind = "appended" if token in appended else "base"
        spans.append(_span("unknown" if token == tokenizer.unknown_id else kind, piece, token, num))
    count = t("tokenizer.count_unknown", count=len(ids), unknown=ids.count(tokenizer.unknown_id))
    if counts is not None:
        count += t("tokenizer.count_untrained", count=times.count(0))
    more = f" {t('tokenizer.more', count=len(ids) - MAX_SHOWN)}" if len(ids) > MAX_SHOWN else ""
    return f"<p><b>{escape(title)}</b>: {count}</p><div>{''.join(spans)}{more}</div>"


def legend_html(counts: Counts) -> str:
    """Return the legend of the colours, and what the counts are or why there are none."""
    kinds = ("base", "appended", "unknown", *(["untrained"] if counts is not None else []))
    spans = "".join(
        f'<span class="piece {kind}">{escape(t(f"tokenizer.kinds.{kind}"))}</span>' for kind in kinds
    )
    about = t("tokenizer.no_counts" if counts is None else "tokenizer.counts")
    return spans + remark_html(about)


def _span(kind: str, piece: str, token: int, times: int | None) -> str:
    never, note = " untrained" * (times == 0), ""
    if times is not None:
        shown = f"{times:,}\u00d7" if times else escape(t("tokenizer.never"))
        note = f"<small>{shown}</small>"
    return (
        f'<span class="piece {kind}{never}"><span>{escape(piece)}</span><small>{token}</small>{note}</span>'
    )
