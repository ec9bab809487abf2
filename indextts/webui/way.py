"""The way through the tabs: what of a project is done, what runs, what to do next. Read from the disk.

No Gradio here.
"""

from dataclasses import dataclass
from html import escape
from typing import Literal

from indextts.commands.app import Stage
from indextts.projects.jobs.records import Job, newest_job
from indextts.projects.pipeline import plan_stage
from indextts.projects.project import Project, read_project
from indextts.webui.language import t

State = Literal["done", "running", "failed", "stopped", "next", "later"]

SYMBOLS: dict[State, str] = {
    "done": "✓",
    "running": "▶",
    "failed": "✗",
    "stopped": "■",
    "next": "→",
    "later": "·",
}
SAID: dict[State, str] = {
    "done": "way.said.done",
    "running": "way.said.running",
    "failed": "way.said.failed",
    "stopped": "way.said.stopped",
    "later": "way.said.later",
}


@dataclass(frozen=True)
class Step:
    """A stage as a newcomer meets it: `todo` says what to do when it is the next."""

    stage: Stage
    tab: str
    title: str
    todo: str


STEPS = (
    Step("data", "data", "way.data.title", "way.data.todo"),
    Step("tokenizer", "tokenizer", "way.tokenizer.title", "way.tokenizer.todo"),
    Step("preprocess", "preprocess", "way.preprocess.title", "way.preprocess.todo"),
    Step("pairs", "pairs", "way.pairs.title", "way.pairs.todo"),
    Step("train", "training", "way.train.title", "way.train.todo"),
    Step("export", "listen", "way.export.title", "way.export.todo"),
)


@dataclass(frozen=True)
class Stand:
    """How it stands with a step."""

    step: Step
    state: State

    @property
    def said(self) -> str:
        return t(self.step.todo if self.state == "next" else SAID[self.state])


def stands(project: Project) -> list[Stand]:
    """Return all steps in order; the first that is neither done nor under way is the next."""
    settings = read_project(project)
    found: list[Stand] = []
    for step in STEPS:
        writes = plan_stage(project, settings, step.stage).writes
        is_there = all(path.exists() for path in writes)
        state = _state(newest_job(project, step.stage), is_there)
        # a training that was stopped has checkpoints to listen to
        if state == "next" and not all(stand.state in ("done", "running", "stopped") for stand in found):
            state = "later"
        found.append(Stand(step, state))
    return found


def way_html(found: list[Stand]) -> str:
    """Return the steps as a list, each with a link to its tab."""
    return f'<ol class="way">{"".join(map(_item, found))}</ol>'


def _state(job: Job | None, is_there: bool) -> State:
    if job is not None and job.is_active:
        return "running"
    if job is not None and job.state in ("failed", "killed", "lost"):
        return "failed"
    if job is not None and job.state == "stopped":
        return "stopped"
    return "done" if is_there else "next"


def _item(stand: Stand) -> str:
    # a click on the tab itself, so that the page notices which tab is open
    go = f"document.getElementById('tab-{stand.step.tab}-button').click();return false"
    title = f'<a href="#" onclick="{escape(go, quote=True)}">{escape(t(stand.step.title))}</a>'
    symbol = f'<span class="symbol" aria-hidden="true">{SYMBOLS[stand.state]}</span>'
    return f'<li class="{stand.state}">{symbol} {title}: {escape(stand.said)}</li>'
