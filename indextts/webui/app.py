"""The page: a project to choose, eight tabs, one clock."""

import json
from types import ModuleType

import gradio as gr

from indextts.commands import WebUI
from indextts.pipeline import DEMO, place_base_files
from indextts.project import Project, read_settings
from indextts.webui.events import on
from indextts.webui.page import TICK_S, Page, project_names
from indextts.webui.security import Roots
from indextts.webui.tabs import data, listen, monitor, pairs, preprocess, project, tokenizer, training

TABS = (
    ("1 Project", project),
    ("2 Data", data),
    ("3 Tokenizer", tokenizer),
    ("4 Preprocess", preprocess),
    ("5 Pairs", pairs),
    ("6 Training", training),
    ("7 Monitor", monitor),
    ("8 Listen and export", listen),
)


def build_app(command: WebUI) -> gr.Blocks:
    """Return the page over a workspace, the demo project prepared in it."""
    workspace = command.workspace.resolve()
    settings = read_settings(DEMO)
    place_base_files(Project(workspace / settings.name), settings)
    roots = Roots(workspace, tuple(command.root))
    with gr.Blocks(title="IndexTTS2 Amharic", analytics_enabled=False) as demo:
        gr.Markdown("# IndexTTS2 Amharic")
        names = project_names(workspace)
        chosen = gr.Dropdown(names, value=names[0], label="Project", elem_id="project")
        ids = [tab_id(tab) for _, tab in TABS]
        open_tab = gr.Textbox(ids[0], visible="hidden", container=False, show_label=False)
        page = Page(demo, chosen, open_tab, gr.Timer(TICK_S), workspace, roots)
        on([demo.load], lambda name: known_projects(page, name), [chosen], [chosen])
        with gr.Tabs():
            for label, tab in TABS:
                with gr.Tab(label, id=tab_id(tab), render_children=True) as opened:
                    tab.lay_out(page.of_tab(tab_id(tab)))
                opened.select(None, None, [open_tab], js=f"() => {json.dumps(tab_id(tab))}")
        page.start_clock()
    return page.demo


def tab_id(tab: ModuleType) -> str:
    """Return the id of a tab: the name of its module."""
    return tab.__name__.rpartition(".")[2]


def known_projects(page: Page, name: str) -> gr.Dropdown:
    """Return the choice of projects as the disk has them now."""
    names = project_names(page.workspace)
    return gr.Dropdown(choices=names, value=name if name in names else names[0])
