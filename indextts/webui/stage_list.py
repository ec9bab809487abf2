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


MARK_TEXTS: dict[State, str] = {**STATE_TEXTS, "next": "steps.states.next"}
MARK_COLOURS: dict[State, str] = {
    "done": "--ok",
    "running": "--accent",
    "failed": "--bad",
    "stopped": "--warn",
    "next": "--accent",
    "later": "--faint",
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


def stages_version(project: Project) -> str:
    """Return a version that changes with the state of any stage."""
    return " ".join(each.state for each in stage_states(project))


def tab_marks(found: list[StageState]) -> str:
    """Return a style sheet that adds the state of each stage to the label of its tab.

    A style sheet and not the label, because a new label makes Gradio draw all tabs again.
    """
    rules = [
        f"#tab-{each.stage.tab}-button::after "
        f'{{ content: "{SYMBOLS[each.state]}" / "{t(MARK_TEXTS[each.state])}"; '
        f"color: var({MARK_COLOURS[each.state]}) }}"
        for each in found
    ]
    return f"<style>{' '.join(rules)}</style>"


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
    symbol = f'<span class="symbol" aria-hidden="true">{SYMBOLS[each.state]}</span>'
    title, text = escape(t(each.stage.title)), escape(each.text)
    return (
        f'<li class="{each.state}"><a href="#{each.stage.tab}">{symbol}<span>{title}</span>'
        f"<span>{text}</span></a></li>"
    )
