"""Building blocks of the page: columns, folds, headings, tiles, facts and links. Styles: page_files/page.css.

    with columns() as (main, side):     the form on the left, the run panel on the right
        with main: ...
        with side: stage_panel(...)

Functions that return HTML escape their arguments. A link is "#TAB" or "#TAB/ELEMENT" (page_files/page.js).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Literal

import gradio as gr

from indextts.webui.language import heading_html, t

Level = Literal["", "warn", "bad"]
UNKNOWN = "-"  # in a tile


@contextmanager
def columns() -> Iterator[tuple[gr.Column, gr.Column]]:
    """Build two columns; below 1,100 pixels the second follows the first."""
    with gr.Row(elem_classes="columns"):
        main = gr.Column(elem_classes="main-column")
        side = gr.Column(elem_classes="side-column")
        yield main, side


@contextmanager
def fields(id: str | None = None) -> Iterator[gr.Row]:
    """Build a grid for the fields of a form."""
    with gr.Row(elem_classes="fields", elem_id=id) as row:
        yield row


@contextmanager
def fold(label: str, id: str) -> Iterator[gr.Column]:
    """Build a section that a button opens and closes in the browser.

    Unlike an accordion of Gradio, a closed fold has its components in the page.

    Args:
        id: of the section; its button has the id `{id}-button`.
    """
    gr.Button(label, size="sm", elem_id=f"{id}-button", elem_classes=["quiet", "fold-button"])
    with gr.Column(elem_id=id, elem_classes="folded") as section:
        yield section


def heading(title: str, lead: str = "", id: str | None = None) -> gr.HTML:
    """Build a heading with an optional sentence below it, both ids of texts; its element has the id `id`.

    Without `id`, the element has the id of the title, as tokenizer-heading.
    """
    html = heading_html(t(title), t(lead) if lead else "")
    return gr.HTML(html, elem_id=id or title.replace(".", "-"), elem_classes="heading")


@dataclass(frozen=True)
class Tile:
    """A number with its name above it and a remark below it; `link` makes the number a link."""

    name: str
    value: str
    remark: str = ""
    level: Level = ""
    link: str = ""


def tiles_html(tiles: Iterable[Tile]) -> str:
    """Return tiles side by side."""
    cells = (
        f'<div class="tile {tile.level}"><dt>{escape(tile.name)}</dt>'
        f"<dd>{link_html(tile.link, tile.value) if tile.link else escape(tile.value)}</dd>"
        f"<small>{escape(tile.remark)}</small></div>"
        for tile in tiles
    )
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def facts_html(facts: Iterable[tuple[str, str]]) -> str:
    """Return names and values as two columns."""
    cells = (f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f'<dl class="facts">{"".join(cells)}</dl>'


def link_html(link: str, text: str, css: str = "") -> str:
    """Return a link to a tab or to an element of a tab."""
    return f'<a href="{escape(link)}" class="{css}">{escape(text)}</a>'


def empty_html(text: str, link: str = "", link_text: str = "") -> str:
    """Return the sentence that replaces an empty part of a tab, and the link that leads on."""
    onward = f" {link_html(link, link_text)}" if link else ""
    return f'<p class="empty">{escape(text)}{onward}</p>'


def meter_html(share: float, text: str) -> str:
    """Return a progress bar above its text; `share` is from 0 to 1."""
    percent = min(100, max(0, int(100 * share)))
    return (
        f'<div class="meter" role="progressbar" aria-valuenow="{percent}" aria-valuemin="0" '
        f'aria-valuemax="100" aria-label="{escape(text)}"><i style="width:{percent}%"></i></div>'
        f'<p class="lead">{escape(text)}</p>'
    )
