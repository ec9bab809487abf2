"""What fills the form of tab 6: presets, a proposal for this machine, the project's own values, the draft."""

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr
from gradio.components import Component

from indextts.commands.launching import Launch
from indextts.commands.train import Train
from indextts.planning.hardware import find_machine, share_of
from indextts.planning.presets import PRESETS, Preset
from indextts.webui.events import on
from indextts.webui.page import Page
from indextts.webui.training.training_form import (
    NAMES,
    RESUME,
    filled,
    own_values,
    preset_values,
    proposal_for,
)
from indextts.webui.training.training_outlook import preset_html, proposal_html

PROPOSE, OWN = "propose", "own"


def fill_buttons() -> tuple[dict[str, gr.Button], gr.HTML]:
    """Lay out what fills the form, and the place that says where the values come from."""
    with gr.Row(elem_id="train-fill"):
        buttons = {
            preset.id: gr.Button(preset.label, size="sm", elem_id=f"train-preset-{preset.id}")
            for preset in PRESETS
        }
        buttons[PROPOSE] = gr.Button("Propose from this machine", size="sm", elem_id="train-propose")
        buttons[OWN] = gr.Button("The project's own values", size="sm", elem_id="train-own")
    return buttons, gr.HTML(elem_id="train-source", padding=False)


def tie_fill(
    page: Page,
    buttons: dict[str, gr.Button],
    source: gr.HTML,
    inputs: Sequence[Component],
    command: Callable[..., tuple[Train, Launch]],
) -> gr.Textbox:
    """Tie what fills the form; return what holds the name of the project that it was filled for."""

    def fill(name: str, before: str) -> list[Any]:
        values = filled(page.find_project(name), page.find_settings(name))
        if not before and not values["resume"]:
            # the page was just opened: what somebody ticked or typed meanwhile stays
            values |= dict.fromkeys(RESUME, gr.skip())
        return list(values.values())

    def own(name: str) -> list[Any]:
        return [*own_values(page.find_project(name), page.find_settings(name)).values(), ""]

    def propose(*values: Any) -> list[Any]:
        wanted, launch = command(*values)
        proposal = proposal_for(wanted, machine := find_machine(), launch)
        return [*_only(proposal.fields), proposal_html(proposal, share_of(machine, launch))]

    def put(preset: Preset) -> Callable[[], list[Any]]:
        return lambda: [*_only(preset_values(preset)), preset_html(preset)]

    shown = [*inputs, source]
    for preset in PRESETS:
        on([buttons[preset.id].click], put(preset), [], shown)
    on([buttons[PROPOSE].click], propose, [page.project, *inputs], shown)
    on([buttons[OWN].click], own, [page.project], shown)
    return page.fill(fill, inputs)


def _only(values: dict[str, Any]) -> list[Any]:
    """Return these values for the form; the other fields stay as they are."""
    return [values.get(name, gr.skip()) for name in NAMES]
