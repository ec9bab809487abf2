"""What every tab is given: the chosen project, its views, and the way from a name to a project.

The page keeps nothing in memory: every view is made from the disk, so that a reload, a second browser or a
restart of the page shows the same.

    timer -> the versions of the open tab's views, one request -> the marks that differ -> these views

A view that is hidden, or of which nothing changed, is neither made nor sent: a page that is left open costs
one small request a tick.

One tab tells a later one which checkpoint to take: a component that nobody sees carries the name.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import gradio as gr
from gradio.components import Component

from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings, project_names, read_project
from indextts.webui.events import on
from indextts.webui.language import t
from indextts.webui.running.log_box import FOLLOW_LOGS
from indextts.webui.serving.security import Roots
from indextts.webui.versions import once

TICK_S = 2.0
NO_PROJECT = "app.no_project"
EVERY_TAB = ""  # the id of no tab: for what is seen in all of them

# (versions, mark, mark, ...) -> marks
HAND_OUT = """(versions, ...marks) => {
  const known = JSON.parse(versions);
  // a mark that is set changes, even to what it was: then its view would be made for nothing
  return marks.map((mark, place) =>
    (known[place] ?? mark) === mark ? {__type__: "update"} : known[place]);
}"""

Version = Callable[[Project], str]


@dataclass(frozen=True)
class View:
    """Something shown in a tab."""

    tab: str
    version: Version


@dataclass(frozen=True)
class Page:
    """The components that all tabs share.

    Args:
        project: its value is the name of the chosen project; an input of every handler.
        open_tab: its value is the id of the tab that is seen.
        timer: ticks every TICK_S.
        tab: the id of the tab that is given this page.
        views: of all tabs.
        marks: a component for each view that holds the version which a browser has; nobody sees it.
        told: what one tab tells a later one (indextts/webui/page.py).
    """

    demo: gr.Blocks
    project: gr.Dropdown
    open_tab: gr.Textbox
    timer: gr.Timer
    workspace: Path
    roots: Roots
    tab: str = ""
    views: list[View] = field(default_factory=list)
    marks: list[Component] = field(default_factory=list)
    shared: dict[str, gr.Textbox] = field(default_factory=dict)

    def of_tab(self, tab: str) -> Self:
        """Return the page as the tab of this id is given it."""
        return replace(self, tab=tab)

    def watch(
        self,
        version: Version,
        show: Callable[..., Any],
        outputs: Sequence[Component],
        inputs: Sequence[Component] = (),
    ) -> Any:
        """Fill `outputs` by `show`, when the tab is opened first and whenever the version changes after that.

        Args:
            version: gives a word for a project that changes whenever what is shown may have; it is asked at
                every tick while the tab is open, so it may cost a few stat calls and no more.
            show: called with the project's name and the values of `inputs`.

        Returns:
            The event, for a `then`.
        """
        mark = gr.Textbox(visible="hidden", container=False, show_label=False)
        self.views.append(View(self.tab, version))
        self.marks.append(mark)
        return on([mark.change], show, [self.project, *inputs], list(outputs), latest=True)

    def fill(self, values: Callable[[str, str], Sequence[Any]], form: Sequence[Component]) -> gr.Textbox:
        """Fill a form when a project is chosen, and not again.

        That is before its tab is opened: what is filled when it is seen overwrites what a quick hand typed.

        Args:
            values: called with the project's name and that of the project whose values stand in the form,
                empty on a page that was just opened; returns a value for each component.

        Returns:
            What holds the name of the project whose values stand in the form.
        """
        filled_for = gr.Textbox(visible="hidden", container=False, show_label=False)

        def filled(name: str, before: str) -> list[Any]:
            return [name, *values(name, before)]

        self.of_tab(EVERY_TAB).watch(once, filled, [filled_for, *form], [filled_for])
        return filled_for

    def start_clock(self) -> None:
        """Tie the views to the clock, to the choice of the project and to the opening of tabs.

        Called once, when all tabs are laid out. The versions come as one value and are handed out to the
        marks by the browser: the server's work for a request grows with the number of components it answers.
        """
        versions = gr.Textbox("{}", visible="hidden", container=False, show_label=False)
        beats = [self.demo.load, self.timer.tick, self.project.change, self.open_tab.change]
        on(
            beats,
            self._versions,
            [self.project, self.open_tab, versions],
            [versions],
            latest=True,
            queue=False,
        )
        self.timer.tick(None, None, None, js=FOLLOW_LOGS)
        versions.change(None, [versions, *self.marks], self.marks, js=HAND_OUT)

    def _versions(self, name: str | None, open_tab: str, known: str) -> Any:
        try:
            now = read_versions(self.views, self.find_project(name), open_tab, known)
        except UserError:
            return gr.skip()
        return gr.skip() if now == known else now

    def find_project(self, name: str | None) -> Project:
        """Return the project of that name.

        Raises:
            UserError: there is none.
        """
        if not name or name not in project_names(self.workspace):
            raise UserError(t(NO_PROJECT, name=name))
        return Project(self.workspace / name)

    def find_settings(self, name: str | None) -> ProjectSettings:
        """Return what the project was made with."""
        return read_project(self.find_project(name))


def read_versions(views: Sequence[View], project: Project, open_tab: str, known: str) -> str:
    """Return `known`, a JSON object of versions by the place of their view, with the open tab's as they are.

    It is `known` itself if none differs. What is not such an object counts as nothing known.
    """
    try:
        seen = json.loads(known)
    except ValueError:
        seen = None
    now = dict(seen) if isinstance(seen, dict) else {}
    for place, view in enumerate(views):
        if view.tab in (EVERY_TAB, open_tab):
            # one view's damaged file must not stop the others; its own `show` says what is wrong
            with suppress(UserError, OSError, ValueError, KeyError, TypeError):
                now[str(place)] = f"{project.root.name} {view.version(project)}"
    return known if now == seen else json.dumps(now)


# a click on the tab itself, so that the page notices which tab is open
OPEN = """() => {{
  document.getElementById('tab-{tab}-button').click();
  setTimeout(() => document.getElementById('{place}')?.scrollIntoView({{block: 'center'}}), 300);
}}"""


def shared_choice(page: Page, what: str) -> gr.Textbox:
    """Return the component whose value tells `what` from now on; fill it with `telling`."""
    told = gr.Textbox(visible="hidden", container=False, show_label=False)
    page.shared[what] = told
    return told


def stamped(name: str) -> str:
    """Return the value that tells a checkpoint; it differs from the last also where the name does not."""
    return f"{time.time_ns()} {name}"


def follow_shared_choice(
    page: Page, what: str, choices: Callable[[Project], list[tuple[str, str]]], chosen: gr.Dropdown
) -> None:
    """Choose in this tab what an earlier tab tells, and open this tab."""

    def choose(name: str, said: str) -> Any:
        found = choices(page.find_project(name))
        told = said.partition(" ")[2]
        is_there = told in [value for _, value in found]
        return gr.Dropdown(choices=found, value=told) if is_there else gr.skip()

    told = page.shared[what]
    event = on([told.change], choose, [page.project, told], [chosen], latest=True)
    event.then(None, None, None, js=OPEN.format(tab=page.tab, place=chosen.elem_id))
