"""Tab 3: extend the base tokenizer, verify that all fits, try it on a sentence."""

from collections.abc import Sequence

import gradio as gr

from indextts.commands import Command, ExtendTokenizer
from indextts.pipeline import plan_stage
from indextts.project import Project, ProjectSettings
from indextts.text.tokenizer import Tokenizer
from indextts.webui.events import on
from indextts.webui.forms import component_for
from indextts.webui.page import Page
from indextts.webui.panel import stage_panel

EXAMPLE = "ሰላም ነው፣ እንዴት ነህ?"


def lay_out(page: Page) -> None:
    size = component_for(ExtendTokenizer, "target_size")
    on([page.demo.load, page.project.change], lambda name: own_size(page, name), [page.project], [size])
    stage_panel(page, "tokenizer", "Extend and verify", commands, [size])
    sentence = gr.Textbox(EXAMPLE, label="Try a sentence", elem_id="try-sentence")
    button = gr.Button("Cut into pieces", elem_id="try-start")
    pieces = gr.Dataframe(headers=["piece", "id", "new"], interactive=False, elem_id="try-pieces")
    on([button.click, sentence.submit], lambda *v: cut(page, *v), [page.project, sentence], [pieces])


def own_size(page: Page, name: str) -> int:
    """Return the size that the project asks for."""
    default: int = ExtendTokenizer.model_fields["target_size"].default
    return int(page.find_settings(name).tokenizer.get("target_size", default))


def commands(project: Project, settings: ProjectSettings, size: float) -> Sequence[Command]:
    return plan_stage(project, settings.with_fields("tokenizer", target_size=int(size)), "tokenizer").commands


def cut(page: Page, name: str, sentence: str) -> list[list[object]]:
    """Return the pieces of a sentence with their ids, and whether they are appended ones."""
    project = page.find_project(name)
    tokenizer = Tokenizer.load(project.tokenizer)
    base_size = Tokenizer.load(project.base_tokenizer).size
    ids, pieces = tokenizer.encode(sentence), tokenizer.encode_pieces(sentence)
    return [[piece, id, "yes" if id >= base_size else ""] for piece, id in zip(pieces, ids, strict=True)]
