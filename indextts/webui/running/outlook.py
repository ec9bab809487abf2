"""Outlook of a start: what it will do, what blocks it, and what it would lose."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from indextts.errors import UserError
from indextts.webui.language import t
from indextts.webui.layout import facts_html, link_html

READY = "outlook.ready"
GO_THERE = "outlook.go_there"
OPEN_TAB = "outlook.open_tab"


@dataclass(frozen=True)
class Notice:
    """A sentence of the outlook, with a link to the field or tab that changes it."""

    text: str
    link: str = ""
    link_text: str = ""


class LinkedError(UserError):
    """A UserError with a link to the field or tab that fixes it."""

    def __init__(self, message: str, link: str, link_text: str = "") -> None:
        super().__init__(message)
        self.link = link
        self.link_text = link_text


def blocker_of(error: UserError) -> Notice:
    """Return the blocker for an error."""
    if isinstance(error, LinkedError):
        return Notice(str(error), error.link, error.link_text)
    return Notice(str(error))


@dataclass(frozen=True)
class Outlook:
    """What a start of a stage would do.

    Args:
        facts: names and values: counts, time, disk, memory.
        blockers: any of them prevents a start.
        losses: what a start would discard; with any, the start button asks for a second click.
        notes: what else to know; they prevent nothing.
        button: label of the start button; "" for the stage's own.
        details: values for the `details` of the stage; empty to leave them as they are.
    """

    facts: Sequence[tuple[str, str]] = ()
    blockers: Sequence[Notice] = ()
    losses: Sequence[Notice] = ()
    notes: Sequence[Notice] = ()
    button: str = ""
    details: Sequence[Any] = ()

    @property
    def loss_key(self) -> str:
        """A digest of the losses: a second click confirms these and no others; "" without losses."""
        texts = "\n".join(notice.text for notice in self.losses)
        return hashlib.sha256(texts.encode()).hexdigest()[:16] if texts else ""


def outlook_html(outlook: Outlook, *, is_ready: bool = True) -> str:
    """Return the outlook for the run panel.

    Args:
        is_ready: the start button works; without blockers and losses, the outlook says so.
    """
    notices = [
        *(_item("bad", notice) for notice in outlook.blockers),
        *(_item("warn", notice) for notice in outlook.losses),
        *(_item("note", notice) for notice in outlook.notes),
    ]
    state = f'<ul class="notices" role="status">{"".join(notices)}</ul>' if notices else ""
    if is_ready and not (outlook.blockers or outlook.losses):
        state += f'<p class="ready"><span class="symbol">✓</span> {escape(t(READY))}</p>'
    return (facts_html(outlook.facts) if outlook.facts else "") + state


def _item(level: str, notice: Notice) -> str:
    link = f" {link_html(notice.link, notice.link_text or t(GO_THERE))}" if notice.link else ""
    return f'<li class="{level}">{escape(notice.text)}{link}</li>'


def missing(path: Path, what: str, tab: str) -> list[Notice]:
    """Return a blocker if the output of an earlier tab is missing.

    Args:
        what: id of the text that names the missing input.
        tab: the tab that makes it.
    """
    if path.exists():
        return []
    return [Notice(t(what), f"#{tab}", t(OPEN_TAB, tab=t(f"tab.{tab}")))]
