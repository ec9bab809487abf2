"""Records of finished stages, by which the pipeline decides what to run again.

NAME/pipeline/STAGE.json    {"commands": [argv, ...], "files": {path: [size, time]}, "seconds": 1.2}
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from indextts.commands.app import Stage
from indextts.commands.terminal import to_argv
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.stages import StagePlan, plan_stage
from indextts.system.files import file_stamp, read_object, write_json


def stage_record(project: Project, stage: Stage) -> Path:
    return project.root / "pipeline" / f"{stage}.json"


def is_up_to_date(project: Project, plan: StagePlan) -> bool:
    """Return whether a stage finished and would run in the same way again; readings do not count."""
    before = _read_record(stage_record(project, plan.name))
    return (
        before is not None
        and _without_readings(before["commands"]) == _without_readings(argvs(plan))
        and before["files"] == _files(plan)
    )


@contextmanager
def tokenizer_stays_done(
    project: Project, settings: ProjectSettings, changed: ProjectSettings | None = None
) -> Iterator[None]:
    """Let a tokenizer stage that is up to date stay so while readings, options or settings change."""
    was_done = is_up_to_date(project, plan_stage(project, settings, "tokenizer"))
    yield
    if was_done:
        before = _read_record(stage_record(project, "tokenizer")) or {}
        write_record(
            project, plan_stage(project, changed or settings, "tokenizer"), before.get("seconds", 0.0)
        )


def argvs(plan: StagePlan) -> list[list[str]]:
    return [[*plan.launch.prefix, command.program, *to_argv(command)] for command in plan.commands]


def _without_readings(commands: list[list[str]]) -> list[list[str]]:
    return [[item for item in argv if not item.startswith("--readings=")] for argv in commands]


def write_record(project: Project, plan: StagePlan, seconds: float) -> None:
    record = stage_record(project, plan.name)
    record.parent.mkdir(exist_ok=True)
    write_json(record, {"commands": argvs(plan), "files": _files(plan), "seconds": seconds})


def _read_record(path: Path) -> dict[str, Any] | None:
    record = read_object(path)
    return record if {"commands", "files"} <= set(record) else None


def _files(plan: StagePlan) -> dict[str, list[int] | None]:
    """Return size and modification time of each file that a stage reads or writes; None if it is absent."""
    files: dict[str, list[int] | None] = {}
    for path in (*plan.reads, *plan.writes):
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        files.update({str(file): stamp(file) for file in inside if not file.is_dir()})
    return files


def stamp(path: Path) -> list[int] | None:
    if not path.is_file():
        return None
    found = file_stamp(path)
    return [found.num_bytes, found.mtime_ns]
