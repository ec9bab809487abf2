"""Pipeline: run all stages of a project in order. Each command is logged before it runs.

A stage is skipped if it finished, would run the same commands, and neither its input nor its output files
changed since (compared by size and modification time). A training that was stopped resumes. Changed readings
are no reason to rebuild the tokenizer: they are stored in it, and its pieces stay.

    NAME/pipeline/STAGE.json    of a finished stage (stage_records.py)
    NAME/pipeline/now.json      {"stage": "pairs", "started": 1764000000.5}: the stage that began last, ENDED
                                after the last one
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from indextts.commands.app import OfProject, RunPipeline, Stage
from indextts.commands.bases import BASES, base_in
from indextts.commands.launching import ALONE, Launch
from indextts.commands.terminal import to_argv
from indextts.errors import UserError, disk_errors
from indextts.projects.project import DEMO, REPOSITORY, Project, ProjectSettings, read_settings, write_project
from indextts.projects.readings import apply_edited_readings
from indextts.projects.stage_records import argvs, is_up_to_date, stamp, write_record
from indextts.projects.stages import PLANNERS, StagePlan, plan_stage, plan_stages
from indextts.system.files import link_or_copy, read_object, write_json, written_aside
from indextts.system.processes import LAUNCHER_STOPPED, shell_text

logger = logging.getLogger(__name__)

CURRENT, ENDED = Path("pipeline/now.json"), "ended"


@dataclass(frozen=True)
class StageResult:
    """A row of the final table; `status` is the exit status of the failed command, or 0."""

    name: Stage
    seconds: float
    text: str
    status: int = 0


def run_pipeline(command: RunPipeline) -> list[StageResult]:
    """Run the stages from `--first` up to `--until` or a failure; a UserError for a wrong flag or file."""
    stages = list(PLANNERS)
    if stages.index(command.first) > stages.index(command.until):
        raise UserError(f"--first {command.first}: comes after --until {command.until}; swap the two stages")
    project, settings = chosen_project(command)
    copy_base_files(project, settings)
    for stage in PLANNERS:  # report a wrong flag now, not after hours of earlier stages
        plan_stage(project, settings, stage)
    apply_edited_readings(project, settings)
    results = []
    for plan in plan_stages(project, settings, command.max_steps):
        if stages.index(plan.name) < stages.index(command.first):
            continue
        (project.root / CURRENT).parent.mkdir(exist_ok=True)
        write_json(project.root / CURRENT, {"stage": plan.name, "started": time.time()})
        results.append(run_stage(project, plan))
        if results[-1].status or plan.name == command.until:
            break
    if not results[-1].status:
        write_json(project.root / CURRENT, {"stage": ENDED, "started": time.time()})
    return results


def chosen_project(command: OfProject) -> tuple[Project, ProjectSettings]:
    """Return the project, whose folder may be absent, and its settings; a UserError for wrong ones."""
    if command.demo == (command.config is not None):
        raise UserError("pass either --demo, or --config FILE with the settings of a project")
    settings = read_settings(command.config or DEMO)
    return Project((command.workspace / settings.name).resolve()), settings


def current_stage(project: Project, since: float) -> str:
    """Return the stage that a pipeline began last, "" if it began none after the Unix time `since`."""
    now = read_object(project.root / CURRENT)
    try:
        return str(now["stage"]) if now["started"] >= since else ""
    except (KeyError, TypeError):
        return ""


def table(results: list[StageResult]) -> str:
    rows = [f"{'stage':<12}{'seconds':>9}  result"]
    rows += [f"{result.name:<12}{result.seconds:>9.1f}  {result.text}" for result in results]
    return "\n".join(rows)


def copy_base_files(project: Project, settings: ProjectSettings) -> None:
    """Copy the base model into the project and write its project.json; a UserError if that fails."""
    folder = project.config.parent
    published = base_in(settings.base)
    tokenizer = folder / published.tokenizer_file
    targets = (project.config, tokenizer, project.base_checkpoint)
    for target in targets:
        source = settings.base / target.name
        if not source.is_file():
            raise UserError(
                f"base: {source} is absent; copy the published {target.name} there, or download it with "
                f"tools/download_checkpoints.py --base {published.name} --output-dir {settings.base}"
            )
    with disk_errors(f"--workspace: {project.root}"):
        # rsync and scp make no folder above the one that they copy
        for place in (folder, project.uploads, project.recordings):
            place.mkdir(parents=True, exist_ok=True)
        for base in BASES.values():  # the tokenizer tells the base
            if folder / base.tokenizer_file != tokenizer:
                (folder / base.tokenizer_file).unlink(missing_ok=True)
        for target in targets:
            source = settings.base / target.name
            if stamp(target) == stamp(source):
                continue
            if source.suffix == ".pth":  # may be linked: large, and never edited
                link_or_copy(source, target)
                continue
            with written_aside(target) as aside:
                shutil.copy2(source, aside)  # keeps the modification time, which shows changes
        write_project(project, settings)


def run_stage(project: Project, plan: StagePlan) -> StageResult:
    """Run the commands of a stage unless it is up to date; record its files when it finishes."""
    commands = argvs(plan)
    if is_up_to_date(project, plan):
        logger.info("%s: skipped, because nothing changed since it finished", plan.name)
        return StageResult(plan.name, 0.0, f"{plan.summary()} (unchanged)")
    started = time.monotonic()
    for command, argv in zip(plan.commands, commands, strict=True):
        logger.info("%s: %s", plan.name, shell_text(["python", *argv], plan.launch.environment))
        status = run_program([command.program, *to_argv(command)], plan.launch)
        seconds = time.monotonic() - started
        if status:
            text = (
                "stopped; run the same command to resume"
                if status in (130, 143)
                else f"failed with status {status}; fix the problem, then run the same command again"
            )
            return StageResult(plan.name, seconds, text, status)
    write_record(project, plan, round(seconds, 1))
    return StageResult(plan.name, seconds, plan.summary())


def run_program(argv: list[str], launch: Launch = ALONE) -> int:
    """Run a program of the repository in this terminal; return its exit status, 128 + n for signal n."""
    program = subprocess.Popen(
        [sys.executable, *launch.prefix, REPOSITORY / argv[0], *argv[1:]],
        env={**os.environ, **launch.environment},
    )
    with _forwarding_signals(program) as signals:
        status = program.wait()
    if launch.prefix and signals and status == LAUNCHER_STOPPED:
        return 128 + signals[0]
    return 128 - status if status < 0 else status


@contextmanager
def _forwarding_signals(program: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Let the program handle SIGINT and SIGTERM while this process waits; yield the signals so far.

    Ctrl-C reaches the whole process group, so SIGINT is only recorded here; SIGTERM is forwarded.
    """
    received: list[int] = []

    def record(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if number == signal.SIGTERM:
            program.send_signal(number)

    old = {number: signal.signal(number, record) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
