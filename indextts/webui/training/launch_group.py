"""Multi-GPU section of tab 6: available GPUs, fields, and commands of other machines."""

from html import escape

import gradio as gr
from gradio.components import Component

from indextts.commands.launching import Launch
from indextts.commands.train import Train
from indextts.planning.hardware import MachineFacts, find_machine
from indextts.projects.jobs.starting import shell_line
from indextts.system.amounts import shown_gib
from indextts.webui.forms import form_for
from indextts.webui.language import t
from indextts.webui.layout import fields, labelled
from indextts.webui.page import Page
from indextts.webui.training.training_form import LAUNCH
from indextts.webui.view_versions import once


def launch_group(page: Page) -> tuple[dict[str, Component], gr.Textbox]:
    """Build the section; return its fields, and the component for the commands of other machines."""
    with gr.Column(elem_id="train-launch"):
        gr.Markdown(t("training.several_gpus"), elem_classes="group-name")
        note = gr.HTML(elem_id="train-gpus", padding=False)
        with fields():
            form = form_for(Launch, LAUNCH)
        others = gr.Textbox(
            **labelled("training.other_machines", "train-other-nodes"),
            lines=2,
            max_lines=30,
            interactive=False,
            visible=False,
            buttons=["copy"],
        )
    # when the tab opens and not when the page is built: the note is in the language of the browser
    page.watch(once, lambda _: gpus_html(find_machine()), [note])
    return form, others


def gpus_html(machine: MachineFacts) -> str:
    """Return the available GPUs as HTML."""
    if machine.gpu is None:
        text = t("training.no_gpus")
    elif len(machine.gpus) == 1:
        text = t("training.one_gpu", gpu=machine.gpu.name)
    else:
        gpus = [
            t("training.gpu", number=gpu.number, name=gpu.name, there=shown_gib(gpu.memory_bytes))
            for gpu in machine.gpus
        ]
        text = t("training.gpus", count=len(gpus), gpus="; ".join(gpus))
    return f"<p>{escape(text)}</p>"


def other_nodes(command: Train, launch: Launch) -> str:
    """Return the commands for the other machines, each after its number; "" if there are none."""
    return "\n\n".join(
        f"{t('training.on_machine', rank=other.node_rank)}\n{shell_line(command, other)}"
        for other in launch.on_other_nodes()
    )
