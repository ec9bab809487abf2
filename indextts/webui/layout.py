"""Building blocks of the tabs: columns, grids of fields, folds and headings. Styles: page_files/page.css.

with columns() as (main, side):     the form on the left, the run panel on the right
with main: ...
with side: stage_panel(...)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import gradio as gr

from indextts.projects.project import REPOSITORY
from indextts.system.messages import ENGLISH, table
from indextts.webui.language import t

DOCS = REPOSITORY / "docs"  # absent in an installed package
DOC_OF_TAB = {"project": "first-voice", "preprocess": "features", "pairs": "features"}  # else of its name


def orientation(tab: str) -> gr.HTML:
    """Build a tab's title for screen readers, and its sentence with the link to the documentation."""
    name, title = f"{DOC_OF_TAB.get(tab, tab)}.md", escape(t(f"tab.{tab}"))
    link = f' <a href="docs/{name}" target="_blank">{escape(t("tab.documentation"))}</a>'
    html = escape(t(f"tab_lead.{tab}")) + link * (DOCS / name).is_file()
    html = f'<h2 class="heard-only">{title}</h2><p>{html}</p>'
    return gr.HTML(html, elem_id=f"{tab}-lead", elem_classes="heading")


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
    """Build a section that a button with the id `{id}-button` opens and closes in the browser.

    Unlike an accordion of Gradio, a closed fold has its components in the page.
    """
    gr.Button(label, size="sm", elem_id=f"{id}-button", elem_classes=["quiet", "fold-button"])
    with gr.Column(elem_id=id, elem_classes="folded") as section:
        yield section


def labelled(text: str, id: str) -> dict[str, Any]:
    """Return label, help and id of a component; the id of its help is that of its label with `_help`."""
    help = {"info": t(f"{text}_help")} if f"{text}_help" in table(ENGLISH) else {}
    return {"label": t(text), "elem_id": id, **help}


def small_button(text: str, id: str, **options: Any) -> gr.Button:
    return gr.Button(t(text), size="sm", elem_id=id, **options)


def heading(title: str, lead: str = "", id: str | None = None) -> gr.HTML:
    """Build a heading above a sentence, both ids of texts; `id` is by default that of the title with "-"."""
    html = f"<h2>{escape(t(title))}</h2>" + (f"<p>{escape(t(lead))}</p>" if lead else "")
    return gr.HTML(html, elem_id=id or title.replace(".", "-"), elem_classes="heading")
