"""Outlook of a start: what it will do, what blocks it, and what it would lose. No Gradio here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any, Literal

from indextts.commands.base import Command
from indextts.commands.launching import ALONE, Launch
from indextts.errors import UserError
from indextts.system.amounts import shown_size
from indextts.system.files import free_bytes
from indextts.webui.language import t
from indextts.webui.markup import facts_html, link_html, wrapping
from indextts.webui.stage_list import StageState, step_to_take

LEAST_FREE_BYTES = 300_000_000  # what the finished demo takes; other stages need more, or say so

# problem    must be corrected
# missing    the output of an earlier stage is missing
# unfilled   a field or choice is still empty, so nothing is wrong yet
# finished   there is nothing to do
NoticeKind = Literal["problem", "missing", "unfilled", "finished"]
COLOURS: dict[NoticeKind, str] = {"problem": "bad", "missing": "note", "unfilled": "note", "finished": "good"}


@dataclass(frozen=True)
class Notice:
    """A sentence of the outlook, with a link to what changes it; `kind` is that of a blocker."""

    text: str
    link: str = ""
    link_text: str = ""
    kind: NoticeKind = "problem"


class LinkedError(UserError):
    """A UserError with a link to the field or tab that fixes it."""

    def __init__(self, notice: Notice) -> None:
        super().__init__(notice.text)
        self.notice = notice


@dataclass(frozen=True)
class Outlook:
    """Expected effects of starting a stage, and what prevents the start.

    Args:
        blockers: any of them prevents a start.
        losses: what a start would discard; with any, the start button asks for a second click.
        is_done: a start would only repeat what was done; stages of the project need not say so.
        button: label of the start button; "" for the stage's own, which depends on whether the stage is done.
        details: values for the `details` of the stage; empty to leave them as they are.
    """

    facts: Sequence[tuple[str, str]] = ()
    blockers: Sequence[Notice] = ()
    losses: Sequence[Notice] = ()
    notes: Sequence[Notice] = ()
    is_done: bool = False
    button: str = ""
    details: Sequence[Any] = ()

    @property
    def loss_key(self) -> str:
        """The losses in one text: a second click confirms these and no others; "" without losses."""
        return "\n".join(notice.text for notice in self.losses)


@dataclass(frozen=True)
class Start:
    """What a click on Start would run, and the page's outlook on it.

    Args:
        error: why nothing can be started, now or later; "" if it can.
        check: called before an immediate start, not for a job that waits; raises a UserError to prevent it.
    """

    commands: Sequence[Command] = ()
    launch: Launch = ALONE
    outlook: Outlook = Outlook()
    error: str = ""
    check: Callable[[], None] = lambda: None


def refused(error: UserError, facts: Sequence[tuple[str, str]] = ()) -> Start:
    """Return the start of an invalid form: its error is a blocker."""
    blocker = error.notice if isinstance(error, LinkedError) else Notice(str(error))
    return Start(outlook=Outlook(facts, [blocker]), error=str(error))


def outlook_html(
    outlook: Outlook, *, is_ready: bool = True, is_done: bool = False, is_main: bool = False
) -> str:
    """Return the outlook for the run panel.

    Args:
        is_ready: the start button works; without blockers and losses, the outlook says so.
        is_main: the first blocker's link to an earlier stage is the main button of the tab.
    """
    css = [" blocks" * is_main, *[""] * len(outlook.blockers)]
    notices = [
        *(_item(COLOURS[each.kind] + more, each) for each, more in zip(outlook.blockers, css, strict=False)),
        *(_item("warn", notice) for notice in outlook.losses),
        *(_item("note", notice) for notice in outlook.notes),
    ]
    state = f'<ul class="notices" aria-live="polite">{"".join(notices)}</ul>' if notices else ""
    if is_ready and not (outlook.blockers or outlook.losses):
        text = escape(t("outlook.up_to_date" if is_done else "outlook.ready"))
        state += f'<p class="is-ready"><span class="symbol">✓</span> {text}</p>'
    return (facts_html(outlook.facts) if outlook.facts else "") + state


def _item(level: str, notice: Notice) -> str:
    is_button = notice.kind == "missing" and "blocks" in level
    css = "primary-link" if is_button else ""
    link = f" {link_html(notice.link, notice.link_text or t('outlook.go_there'), css)}" if notice.link else ""
    return f'<li class="{level}">{wrapping(notice.text)}{link}</li>'


def disk_full(folder: Path) -> list[Notice]:
    """Return a blocker if the disk of `folder` has less space than any start needs."""
    free, needed = free_bytes(folder), shown_size(LEAST_FREE_BYTES)
    if free >= LEAST_FREE_BYTES:
        return []
    return [Notice(t("outlook.disk_full", free=shown_size(free), needed=needed))]


def missing(path: Path, what: str, tab: str) -> list[Notice]:
    """Return a blocker if the output of an earlier tab is missing; `what` is the id of its text."""
    return [] if path.exists() else [made_by(tab, t(what))]


def made_by(tab: str, text: str) -> Notice:
    """Return a notice about something missing, with a link to the tab that makes it."""
    return Notice(text, f"#{tab}", t("outlook.open_tab", tab=t(f"tab.{tab}")), kind="missing")


def with_next_step(outlook: Outlook, states: Sequence[StageState], stage: str) -> Outlook:
    """Return the outlook with one blocker for all missing outputs: the one of the project's next step.

    Unchanged if all stages of the project are done: then other files were chosen, and the blockers name them.
    """
    step, absent = step_to_take(states), [each for each in outlook.blockers if each.kind == "missing"]
    if step is None or step.stage.name == stage or not absent:
        return outlook
    tab = step.stage.tab
    text = "outlook.runs_first" if step.state == "running" else "outlook.comes_first"
    own = (each for each in absent if each.link.startswith(f"#{tab}"))
    first = next(own, made_by(tab, t(text, tab=t(step.stage.title))))
    return replace(outlook, blockers=[first, *(each for each in outlook.blockers if each not in absent)])
