"""Steps of a project through the tabs: done, running and next. Read from disk. No Gradio here."""

from dataclasses import dataclass
from html import escape
from typing import Literal

from indextts.commands.app import Stage
from indextts.projects.jobs.records import Job, newest_job
from indextts.projects.project import Project, read_project
from indextts.projects.stages import plan_stage
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
STATE_TEXTS: dict[State, str] = {
    "done": "steps.states.done",
    "running": "steps.states.running",
    "failed": "steps.states.failed",
    "stopped": "steps.states.stopped",
    "later": "steps.states.later",
}


@dataclass(frozen=True)
class Step:
    """A stage of a project; `todo` is the instruction while it is next."""

    stage: Stage
    tab: str
    title: str
    todo: str


STEPS = (
    Step("data", "data", "steps.data.title", "steps.data.todo"),
    Step("tokenizer", "tokenizer", "steps.tokenizer.title", "steps.tokenizer.todo"),
    Step("preprocess", "preprocess", "steps.preprocess.title", "steps.preprocess.todo"),
    Step("pairs", "pairs", "steps.pairs.title", "steps.pairs.todo"),
    Step("train", "training", "steps.train.title", "steps.train.todo"),
    Step("export", "listen", "steps.export.title", "steps.export.todo"),
)


@dataclass(frozen=True)
class StepState:
    """State of a step."""

    step: Step
    state: State

    @property
    def text(self) -> str:
        return t(self.step.todo if self.state == "next" else STATE_TEXTS[self.state])


def step_states(project: Project) -> list[StepState]:
    """Return all steps in order; the first one that is neither done nor active is next."""
    settings = read_project(project)
    found: list[StepState] = []
    for step in STEPS:
        writes = plan_stage(project, settings, step.stage).writes
        is_there = all(path.exists() for path in writes)
        state = _state(newest_job(project, step.stage), is_there)
        # a stopped training has checkpoints to listen to
        if state == "next" and not all(each.state in ("done", "running", "stopped") for each in found):
            state = "later"
        found.append(StepState(step, state))
    return found


def steps_html(found: list[StepState]) -> str:
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


def _item(each: StepState) -> str:
    # click on the tab itself, so that the page registers the open tab
    go = f"document.getElementById('tab-{each.step.tab}-button').click();return false"
    title = f'<a href="#" onclick="{escape(go, quote=True)}">{escape(t(each.step.title))}</a>'
    symbol = f'<span class="symbol" aria-hidden="true">{SYMBOLS[each.state]}</span>'
    return f'<li class="{each.state}">{symbol} {title}: {escape(each.text)}</li>'
