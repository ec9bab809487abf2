"""Shared state of the tabs: the chosen project, the views, and the lookup of projects by name.

The page keeps no state in memory. Every view reads the disk, so a reload, a second browser or a restart of
the server shows the same.

    timer -> one request -> the views of the open tab whose versions differ: their HTML comes with the answer
                            views with inputs, or that fill other components: their versions -> a request each

A hidden or unchanged view is neither computed nor sent: an open page costs one small request per tick.

A tab can pass a checkpoint to a later tab through a hidden component that holds its name.
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import gradio as gr
from gradio.components import Component

from indextts.errors import UserError
from indextts.projects.project import Project, project_names
from indextts.webui.events import on
from indextts.webui.language import t
from indextts.webui.markup import empty_html
from indextts.webui.serving.security import Roots
from indextts.webui.view_versions import is_running, job_version, once

TICK_S = 2.0
EVERY_TAB = ""  # not the id of a tab: for views that all tabs show

# answer -> the versions, and a value for each output of the views
DISTRIBUTE = """(answer, same = {{__type__: "update"}}) => {{
  const {{versions, values}} = JSON.parse(answer), places = [...Array({num_outputs}).keys()];
  return [JSON.stringify(versions), ...places.map(place => values[place] ?? same)];
}}"""

Version = Callable[[Project], str]

# js_on_load of HTML whose clicks are sent, see `sent` in markup.py
SEND_CLICKS = "window.sendClicks(element, trigger)"


class View(NamedTuple):
    """Components of a tab that `show` fills; without it, one that gets the version and starts an event."""

    tab: str
    version: Version
    outputs: Sequence[Component]
    show: Callable[[Project], Any] | None = None


class Form(NamedTuple):
    """Fields, a function that returns their values, and a component with the name of their project."""

    filled_for: gr.Textbox
    values: Callable[[Project, str], Sequence[Any]]
    fields: Sequence[Component]


@dataclass(frozen=True)
class Page:
    """Components that all tabs share.

    Args:
        project: its value is the name of the chosen project; an input of every handler.
        open_tab: its value is the id of the open tab.
        signals: hidden, outside of the tabs; see `signal`.
        shared: hidden components through which a tab passes a choice to a later tab.
        changed: for each stage, a hidden component that changes after its form did; see `form_signal`.
    """

    demo: gr.Blocks
    project: gr.Dropdown
    open_tab: gr.Textbox
    timer: gr.Timer
    signals: gr.Column
    workspace: Path
    roots: Roots
    tab: str = ""
    views: list[View] = field(default_factory=list)
    shared: dict[str, gr.Textbox] = field(default_factory=dict)
    changed: dict[str, gr.Textbox] = field(default_factory=dict)
    forms: list[Form] = field(default_factory=list)

    def signal(self, value: str = "", id: str | None = None) -> gr.Textbox:
        """Build a hidden component outside of the tabs: one in a tab that is not drawn yet loses a change."""
        with self.signals:
            return gr.Textbox(
                value, max_lines=1, visible="hidden", container=False, show_label=False, elem_id=id
            )

    def of_tab(self, tab: str) -> Self:
        return replace(self, tab=tab)

    def watch(
        self,
        version: Version,
        show: Callable[..., Any],
        outputs: Sequence[Component],
        inputs: Sequence[Component] = (),
        also: Sequence[Any] = (),
        *,
        result_of: Sequence[str] = (),
        queue: bool = True,
    ) -> Any:
        """Fill `outputs` with `show` when the tab first opens and whenever the version changes.

        Args:
            version: returns a string for a project that changes whenever the view may change; it is called at
                every tick while the tab is open, so it may cost only a few stat calls.
            show: called with the project and the values of `inputs`.
            also: other triggers of `show`; one answer at a time, so the last one has the newest inputs.
            result_of: stages whose jobs write what is shown: it stays while one is active.
            queue: as in `on`; False for fast views that change every few seconds.

        Returns:
            The event, for `then`; None for HTML without inputs, which comes with the answer of the clock.
        """

        def version_with_jobs(project: Project) -> str:
            return " ".join([version(project), *(job_version(project, stage) for stage in result_of)])

        def show_if_idle(project: Project, *values: Any) -> Any:
            if is_running(project, *result_of):
                return [gr.skip()] * len(outputs) if len(outputs) > 1 else gr.skip()
            try:
                return show(project, *values)
            except UserError as error:
                if [type(output) for output in outputs] != [gr.HTML]:
                    raise
                return empty_html(str(error))  # in its place: nobody asked for a message

        outputs = list(outputs)
        if not inputs and not also and all(isinstance(output, gr.HTML) for output in outputs):
            self.views.append(View(self.tab, version_with_jobs, outputs, show_if_idle))
            return None
        shown_version, inputs = self.signal(), [self.project, *inputs]
        self.views.append(View(self.tab, version_with_jobs, [shown_version]))
        return on([shown_version.change, *also], show_if_idle, inputs, outputs, latest=True, queue=queue)

    def fill(self, values: Callable[[Project, str], Sequence[Any]], form: Sequence[Component]) -> gr.Textbox:
        """Fill a form once when a project is chosen; return the component with the name of that project.

        This happens before its tab opens; filling it later would overwrite typed values.

        Args:
            values: called with the project and the name of the one whose values are in the form (empty on a
                new page); returns a value for each component.
        """
        self.forms.append(Form(self.signal(), values, form))
        return self.forms[-1].filled_for

    def _fill_forms(self) -> None:
        """Fill all forms with one request, then name its project to the browser, which takes clicks again."""

        def fill(project: Project, *before: str) -> list[Any]:
            found, problems = [project.root.name], set[str]()
            for form, name in zip(self.forms, before, strict=True):
                try:
                    found += [project.root.name, *form.values(project, name)]
                except UserError as error:  # it keeps its values, and the name of their project
                    problems.add(str(error))
                    found += [gr.skip()] * (1 + len(form.fields))
            if problems:
                gr.Warning("\n".join(sorted(problems)))
            return found

        names = [form.filled_for for form in self.forms]
        filled = self.signal(id="filled-for")  # also if a form kept its values
        outputs = [output for form in self.forms for output in (form.filled_for, *form.fields)]
        event = self.of_tab(EVERY_TAB).watch(once, fill, [filled, *outputs], names, queue=False)
        event.then(None, [filled], None, js="name => { window.formsFilled?.(name); }")

    def form_signal(self, stage: str) -> gr.Textbox:
        """Return a component that `report_changes` changes once after a burst of changes of a form."""
        if stage not in self.changed:
            self.changed[stage] = self.signal(id=f"{stage}-form-changed")
        return self.changed[stage]

    def report_changes(self, stage: str, form: Sequence[Any]) -> None:
        """Change the form signal of a stage after changes of its form.

        Filling a form changes each of its fields, and an update of a component in a closed tab makes Gradio
        walk through the whole page. So the browser waits (`window.formChanged` in page_files/page.js).
        """
        changes = [component.change for component in form]
        gr.on(changes, None, None, None, js=f"() => window.formChanged?.('{stage}', '{self.tab}')")

    def start_clock(self) -> None:
        """Update the views on every tick, on a change of project and on the opening of a tab.

        Called once after all tabs are built. The answer arrives as one value and the browser distributes it,
        because the cost of a request grows with its number of output components.
        """
        self._fill_forms()
        answer, versions = self.signal("{}"), self.signal("{}")
        beats = [self.demo.load, self.timer.tick, self.project.change, self.open_tab.change]
        on(
            beats,
            self._answer,
            [self.project, self.open_tab, versions],
            [answer],
            latest=True,
            queue=False,
            is_raw=True,  # a tick before a project is chosen, or of a deleted one, is no error
        )
        # also in a tab that was just opened
        self.timer.tick(None, None, None, js="() => window.followLogs()")
        outputs = [output for view in self.views for output in view.outputs]
        answer.change(None, [answer], [versions, *outputs], js=DISTRIBUTE.format(num_outputs=len(outputs)))

    def _answer(self, name: str | None, open_tab: str, known: str) -> Any:
        with suppress(UserError):
            return read_views(self.views, self.find_project(name), open_tab, known) or gr.skip()
        return gr.skip()

    def find_project(self, name: str | None) -> Project:
        """Return the project of that name; a UserError if there is none."""
        if not name or name not in project_names(self.workspace):
            raise UserError(t("app.no_project", name=name))
        return Project(self.workspace / name)


def read_views(views: Sequence[View], project: Project, open_tab: str, known: str) -> str:
    """Return what differs of the views of the open tab; "" if nothing does.

    Args:
        known: a JSON object of versions by the index of their view. An invalid one counts as empty.

    Returns:
        A JSON object: the versions of all views, and values by the index of their output among all outputs.
    """
    try:
        seen = json.loads(known)
    except ValueError:
        seen = None
    now: dict[str, str] = dict(seen) if isinstance(seen, dict) else {}
    values: dict[int, Any] = {}
    first = 0
    for place, view in enumerate(views):
        if view.tab in (EVERY_TAB, open_tab):
            # a corrupt file of one view must not block the other views; this one stays as it is
            with suppress(UserError, OSError, ValueError, TypeError, LookupError, ArithmeticError):
                version = f"{project.root.name} {view.version(project)}"
                if now.get(str(place)) != version:
                    now[str(place)] = version
                    try:
                        shown = view.show(project) if view.show else version
                    except UserError as error:
                        shown = empty_html(str(error))
                    values.update(enumerate(shown if isinstance(shown, list | tuple) else [shown], first))
        first += len(view.outputs)
    return json.dumps({"versions": now, "values": values}) if values else ""


# follows the address, see page_files/page.js
OPEN = "() => {{ location.hash = '{tab}/{place}'; window.dispatchEvent(new PopStateEvent('popstate')); }}"


def shared_choice(page: Page, what: str) -> gr.Textbox:
    """Return the hidden component that passes the choice `what`; fill it with `stamped`."""
    shared = page.signal()
    page.shared[what] = shared
    return shared


def stamped(name: str) -> str:
    """Return the name with a timestamp, so that choosing the same name again is also a change."""
    return f"{time.time_ns()} {name}"


def follow_shared_choice(
    page: Page,
    what: str,
    choices: Callable[[Project], list[tuple[str, str]]],
    choice_of: Callable[[Project, str], str | None],
    chosen: gr.Dropdown,
    *,
    opens: bool = True,
) -> None:
    """Select what an earlier tab shares, if `choice_of` finds it, and open this tab there."""

    def choose(project: Project, stamped_name: str) -> Any:
        wanted = choice_of(project, stamped_name.partition(" ")[2])
        return gr.skip() if wanted is None else gr.Dropdown(choices=choices(project), value=wanted)

    shared = page.shared[what]
    event = on([shared.change], choose, [page.project, shared], [chosen], latest=True)
    if opens:
        event.then(None, None, None, js=OPEN.format(tab=page.tab, place=chosen.elem_id))
