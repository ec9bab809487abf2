"""One tab tells a later one which checkpoint to take: a component that nobody sees carries the name."""

import time
from collections.abc import Callable
from typing import Any

import gradio as gr

from indextts.projects.project import Project
from indextts.webui.events import on
from indextts.webui.page import Page

# a click on the tab itself, so that the page notices which tab is open
OPEN = """() => {{
  document.getElementById('tab-{tab}-button').click();
  setTimeout(() => document.getElementById('{place}')?.scrollIntoView({{block: 'center'}}), 300);
}}"""


def teller(page: Page, what: str) -> gr.Textbox:
    """Return the component whose value tells `what` from now on; fill it with `telling`."""
    told = gr.Textbox(visible="hidden", container=False, show_label=False)
    page.told[what] = told
    return told


def telling(name: str) -> str:
    """Return the value that tells a checkpoint; it differs from the last also where the name does not."""
    return f"{time.time_ns()} {name}"


def listener(
    page: Page, what: str, choices: Callable[[Project], list[tuple[str, str]]], chosen: gr.Dropdown
) -> None:
    """Choose in this tab what an earlier tab tells, and open this tab."""

    def choose(name: str, said: str) -> Any:
        found = choices(page.find_project(name))
        told = said.partition(" ")[2]
        is_there = told in [value for _, value in found]
        return gr.Dropdown(choices=found, value=told) if is_there else gr.skip()

    told = page.told[what]
    event = on([told.change], choose, [page.project, told], [chosen], latest=True)
    event.then(None, None, None, js=OPEN.format(tab=page.tab, place=chosen.elem_id))
