"""Tab 5: pairs of prompt and target utterances, and their statistics."""

from html import escape
from typing import Any

import gradio as gr

from indextts.commands.data import BuildPairs
from indextts.data.pair_summary import SHORT_SYLLABLES, PairSummary, read_summary, summary_path
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.stages import plan_stage
from indextts.webui.forms import fields_from, form_for, kept_form
from indextts.webui.language import shown_hours, t
from indextts.webui.layout import columns, fields, heading
from indextts.webui.markup import table_html
from indextts.webui.page import Page
from indextts.webui.plots import Threshold, histogram_svg
from indextts.webui.running.outlook import Outlook, Start, missing
from indextts.webui.running.panel import CONTINUE, Stage, stage_panel
from indextts.webui.view_versions import num_lines, once

FIELDS = (
    "pairs_per_target",
    "only",
    "max_pairs",
    "max_pairs_per_speaker",
    "min_similarity",
    "min_text_len",
    "min_code_len",
    "seed",
)
HISTOGRAMS = (
    ("prompt_s", "seconds", "pairs.length_of_prompts"),
    ("target_s", "seconds", "pairs.length_of_targets"),
    ("prompt_uses", "times", "pairs.uses_of_prompts"),
)
SPLITS = {"train": "pairs.for_training", "val": "pairs.for_validation"}
MAX_SPEAKERS = 50  # shown
HEADERS = ("speaker", "pairs", "share_percent", "target_hours", "other_voices", "without_prompt")


def build(page: Page) -> None:
    with columns() as (main, side):
        with main:
            heading("pairs.heading", "pairs.lead")
            with fields():
                form = list(form_for(BuildPairs, FIELDS).values())
            filled_for = kept_form(page, "pairs", BuildPairs, FIELDS, form)
            choices = [(t(text), part) for part, text in SPLITS.items()]
            split = gr.Radio(choices, value="train", label=t("pairs.pairs"), elem_id="pairs-split")
            numbers = gr.Textbox(
                label=t("pairs.summary"), lines=1, max_lines=6, interactive=False, elem_id="pairs-numbers"
            )
            plots, table = gr.HTML(elem_id="pairs-plots"), gr.HTML(elem_id="pairs-table")
        with side:
            stage = Stage("pairs", "pairs.build_pairs", prepare, form, onward=CONTINUE, filled_for=filled_for)
            stage_panel(page, stage)
    page.watch(once, show, [numbers, plots, table], [split], also=[split.change], result_of=["pairs"])


def prepare(project: Project, settings: ProjectSettings, *values: Any) -> Start:
    """Return the commands, with the number of utterances and of pairs to build."""
    asked = settings.with_fields("pairs", **fields_from(BuildPairs, FIELDS, values))
    commands = plan_stage(project, asked, "pairs").commands
    per_target = next(each.pairs_per_target for each in commands if isinstance(each, BuildPairs))
    facts = []
    for part, text in SPLITS.items():
        count = num_lines(project.utterances(part))
        if count is not None:
            facts.append(
                (t(text), t("pairs.at_most", utterances=f"{count:,}", pairs=f"{count * per_target:,}"))
            )
    blockers = missing(project.utterances("train"), "pairs.no_utterances", "preprocess")
    return Start(commands, outlook=Outlook(facts, blockers))


def show(project: Project, split: str) -> Any:
    """Return summary, plots and table of the pairs of a split; empty without pairs."""
    pairs = project.pairs(split)
    if not (pairs.is_file() and summary_path(pairs).is_file()):
        return [t("pairs.none_yet"), "", ""]
    summary = read_summary(pairs)
    return [_numbers(summary), plots_html(summary), speakers_html(summary)]


def _numbers(summary: PairSummary) -> str:
    hours = shown_hours(3600 * sum(speaker.target_hours for speaker in summary.speakers))
    made = t("pairs.made", **{**summary.numbers, "hours": hours})
    if summary.num_short is None:
        return made
    percent = 100 * summary.num_short / summary.num_targets
    return f"{made}; {t('pairs.short_texts', percent=percent, syllables=SHORT_SYLLABLES)}"


def plots_html(summary: PairSummary) -> str:
    plots = []
    if summary.similarity is not None:
        limit, title = summary.min_similarity or 0.0, t("pairs.similarity")
        remark = t("pairs.similarity_remark", percent=summary.unlike_percent or 0.0, limit=f"{limit:g}")
        found, lines = summary.similarity, [Threshold(limit)]
        plots.append(("similarity", histogram_svg(found.counts, found.edges, lines, "", title, remark)))
    for name, unit, title in HISTOGRAMS:
        found = getattr(summary, name)
        plots.append((name, histogram_svg(found.counts, found.edges, (), t(f"pairs.{unit}"), t(title))))
    charts = "".join(f'<div id="plot-{escape(name)}">{plot}</div>' for name, plot in plots)
    return f'<div class="plots wide">{charts}</div>'


def speakers_html(summary: PairSummary) -> str:
    rows = (
        (
            escape(one.speaker),
            f"{one.num_pairs:,}",
            f"{100 * one.num_pairs / summary.num_pairs:.1f}",
            escape(shown_hours(3600 * one.target_hours)),
            "-" if one.unlike_percent is None else f"{one.unlike_percent:.0f}",
            f"{one.num_without:,}",
        )
        for one in summary.speakers[:MAX_SPEAKERS]
    )
    return table_html([(t(f"pairs.{name}"), "number" * (name != "speaker")) for name in HEADERS], rows)
