"""Stages of a project and their tabs, with the state of each. Read from disk. No Gradio here.

    done        its files are complete, and no input changed after it was made
    outdated    an input changed after it was made
    running     its job, the job of the demo, or a trainer from a terminal runs it
    failed      the newest job failed, and its files were not complete before
    stopped     as failed, after a stop or a loss of the machine; or a training run that can resume
    next        the first stage to start now
    ready       could start now too
    later       lacks files of the stages before it

A job that failed or was stopped after the files were complete leaves the stage done, with a note.
"""

import filecmp
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Literal

from indextts.commands.app import Stage
from indextts.data.quality.summary import OVERVIEW_NAME, Overview, read_overview
from indextts.data.review import check_folder, overlay_files
from indextts.projects.jobs.records import Job, list_jobs, newest_job
from indextts.projects.jobs.starting import DEMO_JOB
from indextts.projects.pipeline import current_stage
from indextts.projects.project import Project, read_project
from indextts.projects.stage_records import stage_record
from indextts.projects.stages import StagePlan, plan_stage
from indextts.runs.owner import is_training
from indextts.webui.language import t
from indextts.webui.run_progress import progress_of, read_run

State = Literal["done", "running", "failed", "stopped", "outdated", "next", "ready", "later"]
PROBLEMS = ("failed", "killed")  # states of a job
STOPS = ("stopped", "lost")

# Clocks of file servers differ, and a copied workspace has the times of the copying.
TOLERANCE_S = 5.0

# symbol and colour
MARKS: dict[State, tuple[str, str]] = {
    "done": ("✓", "--ok"),
    "running": ("▶", "--accent"),
    "failed": ("✗", "--bad"),
    "stopped": ("■", "--warn"),
    "outdated": ("!", "--warn"),
    "next": ("→", "--accent"),
    "ready": ("○", "--faint"),
    "later": ("·", "--faint"),
}


@dataclass(frozen=True)
class ListedStage:
    name: Stage
    tab: str

    @property
    def title(self) -> str:
        return f"tab.{self.tab}"


STAGES = (
    ListedStage("data", "data"),
    ListedStage("tokenizer", "tokenizer"),
    ListedStage("preprocess", "preprocess"),
    ListedStage("pairs", "pairs"),
    ListedStage("train", "training"),
    ListedStage("export", "listen"),
)
BY_NAME = {stage.name: stage for stage in STAGES}


@dataclass(frozen=True)
class StageState:
    """State of a listed stage.

    Args:
        changed: the stage whose output changed after this one was made; its own name for uploads.
        last_start: "failed" or "stopped" if the newest job of a done stage was; "unfit" for imported data in
            which the newest check finds problems.
    """

    stage: ListedStage
    state: State
    changed: Stage | None = None
    last_start: Literal["", "failed", "stopped", "unfit"] = ""

    @property
    def text(self) -> str:
        """The state as text; of a done stage only a remark on its last start."""
        if self.last_start == "unfit":
            return t("steps.unfit")
        if self.state == "done":
            return t(f"steps.last_start_{self.last_start}") if self.last_start else ""
        if self.state == "next":
            return t(f"steps.todo.{self.stage.name}")
        if self.changed == self.stage.name:
            return t("steps.new_uploads")
        return t("steps.outdated_by", what=t(BY_NAME[self.changed].title)) if self.changed else self.mark_text

    @property
    def mark_text(self) -> str:
        is_run = (self.stage.name, self.state) == ("train", "stopped")
        return t("steps.stopped_training" if is_run else f"steps.states.{self.state}")


def stage_states(project: Project) -> list[StageState]:
    settings = read_project(project)
    demo = newest_job(project, DEMO_JOB)
    found = [_state(project, plan_stage(project, settings, stage.name), demo) for stage in STAGES]
    return [
        replace(each, state="next") if each is step_to_take(found) and each.state == "ready" else each
        for each in found
    ]


def step_to_take(found: Sequence[StageState]) -> StageState | None:
    """Return the running stage, else the first that is not done; None if all are done."""
    running = (each for each in found if each.state == "running")
    return next(running, next((each for each in found if each.state != "done"), None))


def next_link(project: Project, last: Literal["train", "export"] = "train") -> tuple[str, str]:
    """Return link and text that lead to a project's next step, or to the stage `last` if all are done."""
    step = step_to_take(stage_states(project))
    stage = step.stage if step is not None else BY_NAME[last]
    return f"#{stage.tab}", t("next.continue", tab=t(stage.title))


def stages_version(project: Project) -> str:
    return " ".join(f"{each.state}{each.changed or ''}{each.last_start}" for each in stage_states(project))


def tab_marks(found: list[StageState]) -> str:
    """Return a style sheet with the state of each stage: a new label would make Gradio draw all tabs."""
    rules = [
        f"#tab-{each.stage.tab}-button::after "
        f'{{ content: "{MARKS[each.state][0]}" / "{each.mark_text}"; '
        f"color: var({MARKS[each.state][1]}) }}"
        for each in found
    ]
    return f"<style>{' '.join(rules)}</style>"


def stages_html(found: Sequence[StageState], facts: Sequence[str], is_way: bool = True) -> str:
    """Return the stages as a list with links and facts; `is_way` is False for those that one job runs."""
    items = (_item(each, fact, is_way) for each, fact in zip(found, facts, strict=True))
    return f'<ol class="way">{"".join(items)}</ol>'


def _item(each: StageState, fact: str, is_way: bool) -> str:
    symbol = f'<span class="symbol" role="img" aria-label="{escape(each.mark_text)}">'
    symbol += f"{MARKS[each.state][0]}</span>"
    words = each.text if is_way or each.state not in ("next", "ready", "later") else ""
    text = " · ".join(part for part in (fact, words) if part)
    inside = f"{symbol}<span>{escape(t(each.stage.title))}</span><span>{escape(text)}</span>"
    return f'<li class="{each.state}"><a href="#{each.stage.tab}">{inside}</a></li>'


def overview_since(project: Project, began: float) -> Overview | None:
    """Return what the newest check found; None if none ended since the Unix time `began`."""
    folder = check_folder(project.manifest)
    return read_overview(folder) if changed_at(folder / OVERVIEW_NAME) >= began else None


def changed_at(path: Path) -> float:
    """Return the Unix time of the last change of a file; 0 without one."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _state(project: Project, plan: StagePlan, demo: Job | None) -> StageState:
    stage, job = BY_NAME[plan.name], _newest_job_at(project, plan.name, demo)
    is_there = all(path.exists() for path in plan.writes)
    if (job is not None and job.is_active) or (plan.name == "train" and is_training(project.run_dir)):
        return StageState(stage, "running")
    changed = _changed_input(project, plan, job) if is_there else None
    if plan.name == "data" and is_there and not changed and job is not None and job.state == "failed":
        # the import succeeded if its check wrote a result; a later check with other limits counts too
        found = overview_since(project, job.began or job.started)
        if found is not None:
            is_fit = not found.problems
            return StageState(stage, "done" if is_fit else "outdated", last_start="" if is_fit else "unfit")
    is_stopped = job is not None and (job.state in STOPS or job.is_kill_asked)
    if job is None and plan.name == "train" and _is_unfinished(project):
        return StageState(stage, "outdated" if changed else "stopped", changed)
    if job is not None and (is_stopped or job.state in PROBLEMS):
        if plan.name == "train" and is_stopped:  # it can resume, unless its inputs changed
            return StageState(stage, "outdated" if changed else "stopped", changed)
        if not is_there or not _was_complete_before(project, plan, job):
            return StageState(stage, "stopped" if is_stopped else "failed")
    if not is_there:
        is_first = plan.name == STAGES[0].name
        optional = {project.tokenizer} if plan.name == "pairs" else set()
        needed = (path for path, _ in _inputs(project, plan, optional | _overlays(project)))
        waits = (demo is not None and demo.is_active) or not (
            is_first or all(path.exists() for path in needed)
        )
        return StageState(stage, "later" if waits else "ready")
    if changed:
        return StageState(stage, "outdated", changed)
    is_failed = job is not None and job.state in PROBLEMS
    return StageState(stage, "done", last_start="stopped" if is_stopped else "failed" if is_failed else "")


def _newest_job_at(project: Project, stage: Stage, demo: Job | None) -> Job | None:
    """Return the newest job of a stage, or the demo's job if it is or ended at this stage after that one."""
    job = newest_job(project, stage)
    if demo is None or demo.state in ("waiting", "finished", "not_started") or demo.began is None:
        return job
    if current_stage(project, demo.began) != stage or (job is not None and job.started > demo.started):
        return job
    return demo


def _was_complete_before(project: Project, plan: StagePlan, job: Job) -> bool:
    if any(other.state == "finished" for other in list_jobs(project, plan.name)):
        return True
    if stage_record(project, plan.name).exists():
        return True
    # a run has checkpoints long before its end
    return plan.name != "train" and changed_at(plan.writes[0]) < (job.began or job.started)


def _is_unfinished(project: Project) -> bool:
    """Return whether a run that no job of the page started ended before its last step."""
    found = progress_of(read_run(project.run_dir), project.run_dir, time.time())
    is_short = found.step is not None and found.step < (found.total_steps or 0)
    return is_short and found.ended != "finished"


def _inputs(project: Project, plan: StagePlan, without: set[Path]) -> Iterator[tuple[Path, Stage]]:
    """Yield the files of earlier stages that a stage reads, each with that stage."""
    by_stage: dict[Stage, tuple[Path, ...]] = {
        "data": (project.manifest, *_overlays(project)),
        "tokenizer": (project.tokenizer,),
        "preprocess": (project.utterances("train"), project.utterances("val")),
        "pairs": (project.pairs("train"), project.pairs("val")),
        "train": (project.run_dir / "best.pth", project.run_dir / "latest.pth"),
    }
    for stage, paths in by_stage.items():
        yield from ((path, stage) for path in paths if path in plan.reads and path not in without)


def _overlays(project: Project) -> set[Path]:
    return set(overlay_files(project.manifest))


def _changed_input(project: Project, plan: StagePlan, job: Job | None) -> Stage | None:
    """Return the stage whose output changed after this stage read it; None if none did."""
    made = _made_at(project, plan, job) + TOLERANCE_S
    if plan.name == "data":
        return "data" if any(changed_at(path) > made for path in project.uploaded()) else None
    copy = project.run_dir / "tokenizer.model"
    for path, stage in _inputs(project, plan, set()):
        if plan.name == "train" and stage == "tokenizer" and copy.exists():
            # by content; filecmp keeps its answer until one of the files changes
            if not (path.is_file() and filecmp.cmp(path, copy, shallow=False)):
                return stage
        elif changed_at(path) > made:
            return stage
    return None


def _made_at(project: Project, plan: StagePlan, job: Job | None) -> float:
    """Return the Unix time at which a stage last read its inputs, as far as files show it.

    A job that found nothing to change leaves its output as old as it was.
    """
    if plan.name == "train":
        return changed_at(project.run_dir / ".lock") or changed_at(plan.writes[0])
    jobs = [] if job is None else [job] if job.state == "finished" else list_jobs(project, plan.name)
    finished = next((job for job in jobs if job.state == "finished"), None)
    began = (finished.began or finished.started) if finished else 0.0
    return max(began, changed_at(plan.writes[0]), changed_at(stage_record(project, plan.name)))
