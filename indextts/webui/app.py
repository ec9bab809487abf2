"""The Gradio page: a project selector, eight tabs and one timer.

A request with a value of the wrong type gets one error message and leaves no traceback in the log.
"""

import functools
import json
import threading
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from indextts.commands.app import WebUI
from indextts.projects.names import titled_projects
from indextts.projects.pipeline import copy_base_files
from indextts.projects.project import DEMO, Project, project_names, read_settings
from indextts.webui.data import tab as data
from indextts.webui.events import CheckedBlocks, on
from indextts.webui.language import CHOOSE_JS, LANGUAGES, current_language, t, use_language
from indextts.webui.layout import labelled, orientation, small_button
from indextts.webui.listen import tab as listen
from indextts.webui.monitor import tab as monitor
from indextts.webui.page import EVERY_TAB, TICK_S, Page
from indextts.webui.pairs import tab as pairs
from indextts.webui.preprocess import tab as preprocess
from indextts.webui.project import tab as project
from indextts.webui.running import job_chip
from indextts.webui.serving.security import Roots
from indextts.webui.stage_list import stage_states, stages_version, tab_marks
from indextts.webui.tokenizer import tab as tokenizer
from indextts.webui.training import tab as training

TABS = {  # by their ids
    "project": project,
    "data": data,
    "tokenizer": tokenizer,
    "preprocess": preprocess,
    "pairs": pairs,
    "training": training,
    "monitor": monitor,
    "listen": listen,
}


# The address has the project, see page_files/page.js; without it, the first project is open.
RESTORE_PROJECT = "() => new URLSearchParams(location.search).get('project') ?? ''"
REMEMBER_PROJECT = "name => { window.rememberProject?.(name); }"


def build_app(command: WebUI) -> gr.Blocks:
    """Return the page over a workspace, and prepare the demo project in it.

    The page is in English; one in another language is built when a browser first asks for it, because the
    start would take seconds longer.
    """
    workspace = command.workspace.resolve()
    settings = read_settings(DEMO)
    if settings.name not in project_names(workspace):  # else its settings would be lost
        copy_base_files(Project(workspace / settings.name), settings)
    roots = Roots(workspace, tuple(command.root))
    demo = build_page(workspace, roots)
    building = threading.Lock()

    @functools.cache
    def properties(language: str) -> list[dict[str, Any]]:
        with use_language(language):
            page = build_page(workspace, roots)
        # the pages differ in the ids too, which Gradio counts over all pages
        return [component["props"] for component in page.config["components"]]

    def texts(language: str) -> list[dict[str, Any]]:
        with building:  # two browsers may ask at once, and Gradio builds one page at a time
            return properties(language)

    demo.texts = texts
    return demo


def build_page(workspace: Path, roots: Roots) -> CheckedBlocks:
    """Return the page in the current language."""
    demo = CheckedBlocks(title="IndexTTS2 Amharic", analytics_enabled=False)
    with demo:
        names = titled_projects(workspace)
        demo.signals = gr.Column(visible="hidden")
        with gr.Row(elem_id="top"):
            gr.HTML(f'<h1><a href="#project">{escape(t("app.title"))}</a></h1>', elem_id="brand")
            # empty until the browser names the project of its address: an early click must reach no other
            chosen = gr.Dropdown(names, **labelled("app.project", "project"), value=None, container=False)
            # not the selector itself: its value must be a project that the page was built with
            wanted = gr.Textbox(visible="hidden", container=False, show_label=False)
            open_tab = gr.Textbox(next(iter(TABS)), visible="hidden", container=False, show_label=False)
            page = Page(demo, chosen, open_tab, gr.Timer(TICK_S), demo.signals, workspace, roots)
            demo.chosen, demo.find_project = chosen, page.find_project
            job_chip.build(page)
            language = gr.Radio(
                [(name, code) for code, name in LANGUAGES.items()],
                value=current_language(),
                label=t("app.language"),
                show_label=False,
                container=False,
                elem_id="language",
            )
            theme = small_button("app.theme", "theme", elem_classes="quiet")
        theme.click(None, None, None, js="() => window.switchTheme()")
        restored = demo.load(None, None, [wanted], js=RESTORE_PROJECT)

        def known_projects(name: str) -> gr.Dropdown:
            found = titled_projects(page.workspace)
            names = [folder for _, folder in found]
            return gr.Dropdown(choices=found, value=name if name in names else names[0])

        shown = on((), known_projects, [wanted], [chosen], after=restored, latest=True, queue=False)
        marks = gr.HTML(elem_classes="style-only", elem_id="tab-marks")
        page.of_tab(EVERY_TAB).watch(
            stages_version, lambda project: tab_marks(stage_states(project)), [marks]
        )
        with gr.Tabs(overflow_behavior="wrap", elem_id="tabs"):  # a menu would hide tabs on a phone
            for id, tab in TABS.items():
                with gr.Tab(t(f"tab.{id}"), id=id, elem_id=f"tab-{id}", render_children=True) as opened:
                    orientation(id)
                    tab.build(page.of_tab(id))
                opened.select(None, None, [open_tab], js=f"() => {json.dumps(id)}")
        shown.then(None, [chosen], None, js=REMEMBER_PROJECT)
        chosen.change(None, [chosen], None, js=REMEMBER_PROJECT)
        page.start_clock()
        language.input(None, [language], None, js=CHOOSE_JS)
    return demo
