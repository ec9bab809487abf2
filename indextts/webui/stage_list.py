"""Stages of a project and their tabs: done, running and next. Read from disk. No Gradio here."""

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
class ListedStage:
    """A stage of a project; `todo` is the instruction while it is next."""

    name: Stage
    tab: str
    title: str
    todo: str


STAGES = (
    ListedStage("data", "data", "steps.data.title", "steps.data.todo"),
    ListedStage("tokenizer", "tokenizer", "steps.tokenizer.title", "steps.tokenizer.todo"),
    ListedStage("preprocess", "preprocess", "steps.preprocess.title", "steps.preprocess.todo"),
    ListedStage("pairs", "pairs", "steps.pairs.title", "steps.pairs.todo"),
    ListedStage("train", "training", "steps.train.title", "steps.train.todo"),
    ListedStage("export", "listen", "steps.export.title", "steps.export.todo"),
)


@dataclass(frozen=True)
class StageState:
    """State of a listed stage."""

    stage: ListedStage
    state: State

    @property
    def text(self) -> str:
        return t(self.stage.todo if self.state == "next" else STATE_TEXTS[self.state])


def stage_states(project: Project) -> list[StageState]:
    """Return all stages in order; the first one that is neither done nor active is next."""
    settings = read_project(project)
    found: list[StageState] = []
    for stage in STAGES:
        writes = plan_stage(project, settings, stage.name).writes
        is_there = all(path.exists() for path in writes)
        state = _state(newest_job(project, stage.name), is_there)
        # a stopped training run has checkpoints to listen to
        if state == "next" and not all(each.state in ("done", "running", "stopped") for each in found):
            state = "later"
        found.append(StageState(stage, state))
    return found


def stages_html(found: list[StageState]) -> str:
    """Return the stages as a list, each with a link to its tab."""
    return f'<ol class="way">{"".join(map(_item, found))}</ol>'


def _state(job: Job | None, is_there: bool) -> State:
    if job is not None and job.is_active:
        return "running"
    if job is not None and job.state in ("failed", "killed", "lost"):
        return "failed"
    if job is not None and job.state == "stopped":
        return "stopped"
    return "done" if is_there else "next"


def _item(each: StageState) -> str:
    # click on the tab itself, so that the page registers the open tab
    go = f"document.getElementById('tab-{each.stage.tab}-button').click();return false"
    title = f'<a href="#" onclick="{escape(go, quote=True)}">{escape(t(each.stage.title))}</a>'
    symbol = f'<span class="symbol" aria-hidden="true">{SYMBOLS[each.state]}</span>'
    return f'<li class="{each.state}">{symbol} {title}: {escape(each.text)}</li>'
