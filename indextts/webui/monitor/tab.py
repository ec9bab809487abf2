"""Tab 7: progress, charts, health and checkpoints of the current or last run."""

import gradio as gr

from indextts.webui.language import t
from indextts.webui.layout import fold
from indextts.webui.monitor import (
    checkpoint_list,
    curves_view,
    health_cards,
    sample_players,
    status,
    tensorboard_view,
)
from indextts.webui.page import Page


def build(page: Page) -> None:
    status.build_empty(page)
    with gr.Column(elem_id=status.BODY):
        status.build(page)
        curves_view.build(page)
        health_cards.build(page)
        checkpoint_list.build(page)
        with fold(t("monitor.samples"), "monitor-samples-fold"):
            sample_players.build(page)
        with fold(t("monitor.machine"), "monitor-machine-fold"):
            status.build_machine(page)
        with fold(t("monitor.tensorboard"), "tensorboard"):
            tensorboard_view.build(page)
