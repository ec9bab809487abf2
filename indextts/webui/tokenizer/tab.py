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
from indextts.data.pair_index import index_path
from indextts.projects.project import Project, ProjectSettings, read_project, write_project
from indextts.projects.readings import store_normalizer
from indextts.projects.stages import plan_stage
from indextts.text.bases import load_tokenizer, tokenizer_of
from indextts.text.size_summary import read_summary, summary_path
from indextts.webui.events import on
from indextts.webui.forms import form_for
from indextts.webui.language import field_help, field_title, t
from indextts.webui.layout import columns, fields, fold, heading, small_button
from indextts.webui.markup import table_html
from indextts.webui.page import Page
from indextts.webui.plots import curve_svg
from indextts.webui.running.outlook import Outlook, Start, missing
from indextts.webui.running.panel import CONTINUE, Stage, stage_panel
from indextts.webui.tokenizer import readings_view
from indextts.webui.tokenizer.pieces import legend_html, piece_counts, pieces_html
from indextts.webui.tokenizer.readings_view import refuse_while_building
from indextts.webui.view_versions import files_version

EXAMPLE = "ሰላም ነው፣ እንዴት ነህ? በ2017 ዓ.ም 50% ጨመረ።"
# the project has the language and the table of readings
OPTIONS = tuple(
    name for name in NormalizerFlags.model_fields if name not in ("language", "language_row", "readings")
)


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
