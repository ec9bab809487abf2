"""The group of tab 6 for several GPUs: what there is here, the fields, the commands of other machines."""

from html import escape

import gradio as gr
from gradio.components import Component

from indextts.commands import Train
from indextts.jobs.starting import shell_line
from indextts.launching import Launch
from indextts.planning.hardware import MachineFacts, find_machine
from indextts.planning.units import shown_gib
from indextts.webui.forms import form_for
from indextts.webui.language import t
from indextts.webui.page import Page
from indextts.webui.training.training_form import LAUNCH
from indextts.webui.versions import once

NO_CARDS = "This machine has no NVIDIA card: one process uses all of its cores."
ONE_CARD = "This machine has one card, {card}: one process uses all of it."
CARDS = "This machine has {count} cards: {cards}."
CARD = "{number}: {name}, {there} GiB"
ON_MACHINE = "# on machine {rank}, in the root of the repository"


def launch_group(page: Page) -> tuple[dict[str, Component], gr.Textbox]:
    """Lay out the group; return its fields, and the place for the commands of the other machines."""
    with gr.Accordion("Several GPUs", open=False, elem_id="train-launch"):
        note = gr.HTML(elem_id="train-cards", padding=False)
        with gr.Row():
            form = form_for(Launch, LAUNCH)
        others = gr.Textbox(
            label="What to start on the other machines, this one starts below",
            lines=2,
            max_lines=30,
            interactive=False,
            visible=False,
            buttons=["copy"],
            elem_id="train-other-nodes",
        )
    page.watch(once, lambda _: cards_html(find_machine()), [note])
    return form, others


def cards_html(machine: MachineFacts) -> str:
    """Return which cards there are to choose from."""
    if machine.card is None:
        said = t(NO_CARDS)
    elif len(machine.cards) == 1:
        said = t(ONE_CARD, card=machine.card.name)
    else:
        cards = [
            t(CARD, number=card.number, name=card.name, there=shown_gib(card.memory_bytes))
            for card in machine.cards
        ]
        said = t(CARDS, count=len(cards), cards="; ".join(cards))
    return f"<p>{escape(said)}</p>"


def other_nodes(command: Train, launch: Launch) -> str:
    """Return the commands for the other machines, each behind the machine's number; "" if there are none."""
    return "\n\n".join(
        f"{t(ON_MACHINE, rank=other.node_rank)}\n{shell_line(command, other)}"
        for other in launch.on_other_nodes()
    )
