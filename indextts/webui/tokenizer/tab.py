"""Tab 3: extend and verify the tokenizer, and tokenize a sentence before and after.

A tokenized sentence is coloured HTML, with the id below each piece:

    grey    a base piece
    green   a new piece
    red     an unknown piece, which the model reads as silence

The typed text is escaped.
"""

from collections.abc import Sequence
from html import escape
from typing import Any

import gradio as gr

from indextts.commands.base import Command
from indextts.commands.data import ExtendTokenizer
from indextts.commands.normalizer_options import NormalizerOptions, chosen_options
from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings, read_project, write_project
from indextts.projects.stages import plan_stage
from indextts.text.tokenizer import Tokenizer
from indextts.webui.events import on
from indextts.webui.forms import component_for, form_for
from indextts.webui.language import t
from indextts.webui.page import Page
from indextts.webui.running.panel import Stage, stage_panel

NO_SIZE = "tokenizer.no_size"
EXAMPLE = "ሰላም ነው፣ እንዴት ነህ? በ2017 ዓ.ም 50% ጨመረ።"
OPTIONS = tuple(NormalizerOptions.model_fields)

SPOKEN_FORM = "tokenizer.spoken_form"
BEFORE = "tokenizer.before"
AFTER = "tokenizer.after"
NOT_EXTENDED = "tokenizer.not_extended"


def build(page: Page) -> None:
    size = component_for(ExtendTokenizer, "target_size")
    label = t("tokenizer.normalizer")
    with gr.Accordion(label, open=False, elem_id="normalizer"), gr.Row():
        options = list(form_for(ExtendTokenizer, OPTIONS).values())
    form = [size, *options]
    filled_for = page.fill(lambda name, _before: project_values(page, name), form)
    stage_panel(
        page,
        Stage(
            "tokenizer",
            t("tokenizer.extend_and_verify"),
            commands,
            form,
            store_settings=store_settings,
            filled_for=filled_for,
        ),
    )
    sentence = gr.Textbox(EXAMPLE, label=t("tokenizer.try_a_sentence"), elem_id="try-sentence")
    button = gr.Button(t("tokenizer.tokenize"), elem_id="try-start")
    pieces = gr.HTML(elem_id="try-pieces")
    on([button.click, sentence.submit], lambda *v: tokenize(page, *v), [page.project, sentence], [pieces])


def project_values(page: Page, name: str) -> list[Any]:
    """Return the target size and the normaliser options of the project."""
    settings = page.find_settings(name)
    default: int = ExtendTokenizer.model_fields["target_size"].default
    chosen = NormalizerOptions(**settings.normalizer)
    return [int(settings.tokenizer.get("target_size", default)), *chosen.model_dump().values()]


def commands(
    project: Project, settings: ProjectSettings, size: float | None, *values: Any
) -> Sequence[Command]:
    if size is None:
        raise UserError(t(NO_SIZE))
    options = dict(zip(OPTIONS, values, strict=True))
    asked = settings.with_fields("tokenizer", target_size=int(size)).with_fields("normalizer", **options)
    return plan_stage(project, asked, "tokenizer").commands


def store_settings(project: Project, planned: Sequence[Command]) -> None:
    """Store size and options in the project's settings, for the check and the next visit."""
    for command in planned:
        if isinstance(command, ExtendTokenizer):
            settings = read_project(project).with_fields("tokenizer", target_size=command.target_size)
            options = chosen_options(command).model_dump()
            write_project(project, settings.with_fields("normalizer", **options))


def tokenize(page: Page, name: str, sentence: str) -> str:
    """Return the spoken form of a sentence, and its pieces by the base and the extended tokenizer."""
    project = page.find_project(name)
    base = Tokenizer.load(project.base_tokenizer)
    if not project.tokenizer.is_file():
        parts = [
            pieces_html(t(BEFORE), base, sentence, base.size),
            f"<p>{escape(t(NOT_EXTENDED))}</p>",
        ]
        return "".join([legend_html(), _spoken_form(base, sentence), *parts])
    extended = Tokenizer.load(project.tokenizer)
    base_with_options = Tokenizer(base.model_bytes, base.path, extended.options)
    return "".join(
        [
            legend_html(),
            _spoken_form(extended, sentence),
            pieces_html(t(BEFORE), base_with_options, sentence, base.size),
            pieces_html(t(AFTER), extended, sentence, base.size),
        ]
    )


def _spoken_form(tokenizer: Tokenizer, sentence: str) -> str:
    return f"<p><b>{escape(t(SPOKEN_FORM))}</b>: {escape(tokenizer.normalize(sentence))}</p>"


_MAX_SHOWN = 400
_COLOURS = {
    "base": "rgba(128, 128, 128, 0.28)",
    "appended": "rgba(46, 160, 67, 0.40)",
    "unknown": "rgba(248, 81, 73, 0.55)",
}
KINDS = {
    "base": "tokenizer.kinds.base",
    "appended": "tokenizer.kinds.appended",
    "unknown": "tokenizer.kinds.unknown",
}
COUNT = "tokenizer.count"
COUNT_UNKNOWN = "tokenizer.count_unknown"
MORE = "tokenizer.more"
_PIECE = (
    "display:inline-flex;flex-direction:column;align-items:center;border-radius:4px;padding:1px 6px;"
    "margin:2px;line-height:1.35"
)


def pieces_html(title: str, tokenizer: Tokenizer, sentence: str, base_size: int) -> str:
    """Return the pieces of `sentence` with a title and their number.

    Args:
        base_size: ids from here on are new pieces.
    """
    spoken = tokenizer.normalize(sentence)
    ids, pieces = tokenizer.encode_normalized(spoken), tokenizer.normalized_pieces(spoken)
    num_unknown = ids.count(tokenizer.unknown_id)
    kinds = [
        "unknown" if token == tokenizer.unknown_id else "appended" if token >= base_size else "base"
        for token in ids
    ]
    shown = list(zip(kinds, pieces, ids, strict=True))[:_MAX_SHOWN]
    count = t(COUNT_UNKNOWN, count=len(ids), unknown=num_unknown) if num_unknown else t(COUNT, count=len(ids))
    more = f" {t(MORE, count=len(ids) - _MAX_SHOWN)}" if len(ids) > _MAX_SHOWN else ""
    spans = "".join(_span(kind, piece, token) for kind, piece, token in shown)
    return f"<p style='margin-top:8px'><b>{escape(title)}</b>: {count}</p><div>{spans}{more}</div>"


def legend_html() -> str:
    """Return the legend of the colours."""
    return "".join(
        f'<span style="{_PIECE};background:{_COLOURS[kind]}">{escape(t(word))}</span>'
        for kind, word in KINDS.items()
    )


def _span(kind: str, piece: str, token: int) -> str:
    style = f"{_PIECE};background:{_COLOURS[kind]}"
    return f'<span class="{kind}" style="{style}"><span>{escape(piece)}</span><small>{token}</small></span>'
