"""Tab 2: import recordings, transcribe those without texts, check and review them, each in its own tab."""

import gradio as gr

from indextts.webui.data import check_view, import_form, review, transcribe_view
from indextts.webui.language import t
from indextts.webui.page import Page

SECTIONS = {"import": import_form, "transcribe": transcribe_view, "check": check_view, "review": review}


def build(page: Page) -> None:
    with gr.Tabs(elem_classes="sub-tabs", overflow_behavior="wrap", elem_id="data-tabs"):
        for id, section in SECTIONS.items():
            with gr.Tab(t(f"data.tab_{id}"), id=id, elem_id=f"data-tab-{id}", render_children=True):
                section.build(page)
