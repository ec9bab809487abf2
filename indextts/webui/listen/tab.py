"""Tab 8: listen to checkpoints, compare them, score them, export the model, publish it and serve speech."""

import gradio as gr

from indextts.projects.project import Project
from indextts.webui.language import t
from indextts.webui.listen import comparing, exporting, scoring, serving, speaking
from indextts.webui.listen.saved_models import models
from indextts.webui.markup import empty_html
from indextts.webui.page import Page
from indextts.webui.stage_list import next_link, stages_version


def build(page: Page) -> None:
    empty = gr.HTML(elem_id="listen-empty")
    with gr.Tabs(elem_classes="sub-tabs", overflow_behavior="wrap"):
        with gr.Tab(t("listen.tabs.speak"), elem_id="listen-speak", render_children=True):
            spoken = speaking.build(page)
        with gr.Tab(t("listen.tabs.compare"), elem_id="listen-compare", render_children=True):
            comparing.build(page, spoken)
        with gr.Tab(t("listen.tabs.score"), elem_id="listen-score", render_children=True):
            scoring.build(page)
        with gr.Tab(t("listen.tabs.export"), elem_id="listen-export", render_children=True):
            exporting.build(page)
        with gr.Tab(t("listen.tabs.publish"), elem_id="listen-publish", render_children=True):
            exporting.build_publishing(page)
        with gr.Tab(t("listen.tabs.server"), elem_id="listen-serve", render_children=True):
            serving.build(page)
    page.watch(stages_version, empty_state, [empty])


def empty_state(project: Project) -> str:
    return "" if models(project) else empty_html(t("listen.empty"), *next_link(project))
