"""All stages of a project, one after another: the programs a person would type, each shown before it runs.

    data -> tokenizer -> preprocess -> pairs -> train -> export

A stage is skipped if it ended well, would run the same commands, and neither its input nor its output changed
since (by size and time of each file). A training that was stopped goes on where it was.

    NAME/pipeline/STAGE.json    {"commands": [argv, ...], "files": {path: [size, time]}, "seconds": 1.2}
"""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from indextts.commands.app import MakeBaseCheckpoint, RunPipeline, Stage
from indextts.commands.base import Command
from indextts.commands.data import (
    BuildPairs,
    CheckData,
    ExtendTokenizer,
    ImportDataset,
    Preprocess,
    VerifyTraining,
)
from indextts.commands.launching import ALONE, Launch, launch_of
from indextts.commands.normalizer_options import NormalizerOptions
from indextts.commands.speech import ExportModel
from indextts.commands.terminal import to_argv
from indextts.commands.train import Train
from indextts.data.review import check_folder, overlay_files, read_rejected
from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings, read_settings, write_project
from indextts.runs.directory import read_metrics
from indextts.system.files import link_or_copy, write_json
from indextts.system.processes import LAUNCHER_STOPPED, shell_text

logger = logging.getLogger(__name__)

REPOSITORY = Path(__file__).resolve().parents[2]
DEMO = REPOSITORY / "demo/project.yaml"


@dataclass(frozen=True)
class StagePlan:
    """What a stage runs and what it depends on.

    Args:
        reads, writes: files and folders; a change of any makes the stage run again.
        summary: says in a few words what came out.
        launch: how its commands are launched.
    """

    name: Stage
    commands: tuple[Command, ...]
    reads: tuple[Path, ...]
    writes: tuple[Path, ...]
    summary: Callable[[], str]
    launch: Launch = ALONE


@dataclass(frozen=True)
class StageResult:
    """One row of the table at the end; `status` is the exit status of the command that failed, else 0."""

    name: Stage
    seconds: float
    text: str
    status: int = 0


def run_pipeline(command: RunPipeline) -> list[StageResult]:
    """Run the stages up to `--until`; stop after the first that fails."""
    if command.demo == (command.config is not None):
        raise UserError("give either --demo or --config FILE, the project to run")
    settings = read_settings(command.config or DEMO)
    project = Project((command.workspace / settings.name).resolve())
    copy_base_files(project, settings)
    for stage in PLANNERS:  # a wrong flag is said now, not after hours of the stages before it
        plan_stage(project, settings, stage)
    results = []
    for plan in plan_stages(project, settings, command.max_steps):
        results.append(run_stage(project, plan))
        if results[-1].status or plan.name == command.until:
            break
    return results


def table(results: list[StageResult]) -> str:
    """Return the results as a short table."""
    rows = [f"{'stage':<12}{'seconds':>9}  result"]
    rows += [f"{result.name:<12}{result.seconds:>9.1f}  {result.text}" for result in results]
    return "\n".join(rows)


def copy_base_files(project: Project, settings: ProjectSettings) -> None:
    """Put the base model and project.json into the project."""
    for target in (project.config, project.base_tokenizer, project.base_checkpoint):
        source = settings.base / target.name
        if not source.is_file() and (target != project.base_checkpoint or not _is_demo(settings)):
            raise UserError(
                f"base: {source} is absent; put the published {target.name} there, or fetch it with "
                f"tools/download_checkpoints.py --output-dir={settings.base}"
            )
    try:
        project.config.parent.mkdir(parents=True, exist_ok=True)
        for target in (project.config, project.base_tokenizer, project.base_checkpoint):
            source = settings.base / target.name
            if source.is_file() and _stamp(target) != _stamp(source):
                _place(source, target)
        write_project(project, settings)
    except OSError as error:
        raise UserError(f"--workspace: {project.root} cannot be made ({error.strerror})") from None


def _place(source: Path, target: Path) -> None:
    """Put a base file into a project; the weights are gigabytes and never edited, so they may be a link."""
    if source.suffix == ".pth":
        link_or_copy(source, target)
        return
    aside = target.with_name(f".tmp-{target.name}")
    shutil.copy2(source, aside)  # with its time, by which a change is noticed
    aside.replace(target)


def plan_stages(project: Project, settings: ProjectSettings, max_steps: int) -> Iterator[StagePlan]:
    """Yield the stages of a project in order; each is planned when those before it are done."""
    if max_steps:
        settings = settings.with_fields("train", max_steps=max_steps)
    for stage in PLANNERS:
        yield plan_stage(project, settings, stage)


def plan_stage(project: Project, settings: ProjectSettings, stage: Stage) -> StagePlan:
    """Return one stage, as the files of the project are now.

    Raises:
        UserError: the settings hold a flag that the stage's command does not have, or a bad value.
    """
    try:
        return PLANNERS[stage](project, settings)
    except UserError as error:
        raise UserError(f"the project's settings of {stage}: {error}") from None


def run_stage(project: Project, plan: StagePlan) -> StageResult:
    """Run a stage's commands unless it is done; what it depended on is written down once it ended well."""
    record = project.root / "pipeline" / f"{plan.name}.json"
    commands = [[*plan.launch.prefix, command.program, *to_argv(command)] for command in plan.commands]
    before = _read_record(record)
    if before and before["commands"] == commands and before["files"] == _files(plan):
        logger.info("%s: done and unchanged, skipped", plan.name)
        return StageResult(plan.name, 0.0, f"{plan.summary()} (unchanged)")
    started = time.monotonic()
    for command, argv in zip(plan.commands, commands, strict=True):
        logger.info("%s: %s", plan.name, shell_text(["python", *argv], plan.launch.environment))
        status = run_program([command.program, *to_argv(command)], plan.launch)
        seconds = time.monotonic() - started
        if status:
            is_stopped = status in (130, 143)
            text = (
                "stopped; run the same"
                if is_stopped
                else f"failed with status {status}; mend it, then run the same"
            )
            return StageResult(plan.name, seconds, f"{text} command to go on", status)
    record.parent.mkdir(exist_ok=True)
    write_json(record, {"commands": commands, "files": _files(plan), "seconds": round(seconds, 1)})
    return StageResult(plan.name, seconds, plan.summary())


def run_program(argv: list[str], launch: Launch = ALONE) -> int:
    """Run one of the repository's programs in this terminal; return its exit status, 128 + n for signal n."""
    program = subprocess.Popen(
        [sys.executable, *launch.prefix, REPOSITORY / argv[0], *argv[1:]],
        env={**os.environ, **launch.environment},
    )
    with _signals_go_to(program) as signals:
        status = program.wait()
    if launch.prefix and signals and status == LAUNCHER_STOPPED:
        return 128 + signals[0]
    return 128 - status if status < 0 else status


@contextmanager
def _signals_go_to(program: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Let the running program answer SIGINT and SIGTERM; this process waits for how it ends.

    Ctrl-C reaches the whole process group, so SIGINT is only noted here; SIGTERM is passed on.

    Yields:
        The signals that came, which grow.
    """
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        if number == signal.SIGTERM:
            program.send_signal(number)

    old = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _plan_data(project: Project, settings: ProjectSettings) -> StagePlan:
    base: list[Command] = []
    if _is_demo(settings):
        base.append(MakeBaseCheckpoint(config=project.config, output=project.base_checkpoint))
    imports = plan_imports(project, settings)
    sources = [
        path for command in imports for path in (command.manifest, *command.source) if path is not None
    ]
    return StagePlan(
        "data",
        (*base, *imports, plan_check(project, settings)),
        reads=(*sources, project.config),
        writes=(
            project.manifest,
            project.dataset / "audio",
            check_folder(project.manifest),
            project.base_checkpoint,
        ),
        summary=lambda: (
            f"{_count_lines(project.manifest)} utterances, {len(read_rejected(project.manifest))} rejected"
        ),
    )


def plan_check(project: Project, settings: ProjectSettings) -> CheckData:
    """Return the check of what was imported; its verdicts count in the stages that follow."""
    return CheckData(
        **{
            "train_manifest": project.manifest,
            "report_dir": check_folder(project.manifest),
            **_normalizer(settings),
            **settings.check,
        }
    )


def plan_imports(project: Project, settings: ProjectSettings) -> list[ImportDataset]:
    """Return the imports of a project: of what its settings name, then of each upload, for its own speaker.

    A project without either gets one that says so.
    """
    output_dir = project.dataset
    uploads = [
        ImportDataset(source=[path], audio_root=[path] if path.is_dir() else [], output_dir=output_dir)
        for path in project.uploaded()
    ]
    if uploads and settings.manifest is None and not settings.data.get("source"):
        return uploads
    described = ImportDataset(**{"manifest": settings.manifest, "output_dir": output_dir, **settings.data})
    return [described, *uploads]


def _plan_tokenizer(project: Project, settings: ProjectSettings) -> StagePlan:
    extend = ExtendTokenizer(
        **{
            "base_model": project.base_tokenizer,
            "manifests": [project.manifest],
            "output_model": project.tokenizer,
            **_normalizer(settings),
            **settings.tokenizer,
        }
    )
    verify = VerifyTraining(
        tokenizer=project.tokenizer,
        config=project.config,
        base_checkpoint=project.base_checkpoint,
        manifest=[project.manifest],
    )
    return StagePlan(
        "tokenizer",
        (extend, verify),
        reads=(project.base_tokenizer, project.manifest, *overlay_files(project.manifest)),
        writes=(project.tokenizer,),
        summary=lambda: f"{project.tokenizer.name}, verified",
    )


def _normalizer(settings: ProjectSettings) -> dict[str, Any]:
    """Return how the project's texts are normalised, which stands in one place of its settings.

    Raises:
        UserError: it stands in another too.
    """
    elsewhere = settings.tokenizer.keys() | settings.check.keys()
    misplaced = sorted(NormalizerOptions.model_fields.keys() & elsewhere)
    if misplaced:
        raise UserError(f"{', '.join(misplaced)}: an option of the normaliser, it belongs under normalizer:")
    return settings.normalizer


def _plan_preprocess(project: Project, settings: ProjectSettings) -> StagePlan:
    command = Preprocess(
        **{
            "manifest": project.manifest,
            "output_dir": project.preprocessed,
            "config": project.config,
            "gpt_checkpoint": project.base_checkpoint,
            **_speech_files(settings),
            **settings.preprocess,
        }
    )
    speech_files = (command.speech_encoder, command.semantic_codec, command.stats)
    return StagePlan(
        "preprocess",
        (command,),
        reads=(
            project.manifest,
            *overlay_files(project.manifest),
            project.dataset / "audio",
            project.base_checkpoint,
            project.config,
            *(speech_files if command.backend == "indextts2" else ()),
        ),
        writes=(project.utterances("train"), project.utterances("val"), project.preprocessed / "features"),
        summary=lambda: _splits(project.utterances, "utterances"),
    )


def _speech_files(settings: ProjectSettings) -> dict[str, Path]:
    """Return the flags of the indextts2 backend: its files lie in the base folder as the defaults say.

    A speech encoder that is not there is left to the default, and so to the hub's cache.
    """
    if settings.preprocess.get("backend") != "indextts2":
        return {}
    files = {}
    for flag in ("speech_encoder", "semantic_codec", "stats"):
        default: Path = Preprocess.model_fields[flag].default
        files[flag] = settings.base / default.relative_to("checkpoints")
    if not files["speech_encoder"].is_dir():
        del files["speech_encoder"]
    return files


def _plan_pairs(project: Project, settings: ProjectSettings) -> StagePlan:
    commands = tuple(
        BuildPairs(
            **{"manifest": project.utterances(split), "output": project.pairs(split), **settings.pairs}
        )
        for split in ("train", "val")
    )
    return StagePlan(
        "pairs",
        commands,
        reads=(project.utterances("train"), project.utterances("val")),
        writes=(project.pairs("train"), project.pairs("val")),
        summary=lambda: _splits(project.pairs, "pairs"),
    )


def _plan_train(project: Project, settings: ProjectSettings) -> StagePlan:
    command = Train(
        **{
            "train_manifest": [project.pairs("train")],
            "val_manifest": [project.pairs("val")],
            "tokenizer": project.tokenizer,
            "config": project.config,
            "base_checkpoint": project.base_checkpoint,
            "output_dir": project.run_dir,
            "resume": "auto",
            "max_steps": 0,  # said, or the limit of an earlier try would still hold
            **settings.train,
        }
    )
    return StagePlan(
        "train",
        (command,),
        reads=(project.pairs("train"), project.pairs("val"), project.tokenizer, project.base_checkpoint),
        writes=(project.run_dir / "latest.pth",),
        summary=lambda: _losses(project.run_dir / "metrics.jsonl"),
        launch=launch_of(settings.launch),
    )


def _plan_export(project: Project, settings: ProjectSettings) -> StagePlan:
    best = project.run_dir / "best.pth"
    command = ExportModel(
        **{
            "checkpoint": best if best.is_file() else project.run_dir / "latest.pth",
            "config": project.config,
            "output_dir": project.export,
            **settings.export,
        }
    )
    return StagePlan(
        "export",
        (command,),
        reads=(command.checkpoint,),
        writes=(project.export,),
        summary=lambda: f"{project.export} from {command.checkpoint.name}",
    )


PLANNERS: dict[Stage, Callable[[Project, ProjectSettings], StagePlan]] = {
    "data": _plan_data,
    "tokenizer": _plan_tokenizer,
    "preprocess": _plan_preprocess,
    "pairs": _plan_pairs,
    "train": _plan_train,
    "export": _plan_export,
}


def _is_demo(settings: ProjectSettings) -> bool:
    return settings.base == DEMO.parent / "checkpoints"


def _read_record(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and {"commands", "files"} <= set(record) else None


def _files(plan: StagePlan) -> dict[str, list[int] | None]:
    """Return size and time of every file that a stage reads or writes; None for one that is absent."""
    files: dict[str, list[int] | None] = {}
    for path in (*plan.reads, *plan.writes):
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        files.update({str(file): _stamp(file) for file in inside if not file.is_dir()})
    return files


def _stamp(path: Path) -> list[int] | None:
    if not path.is_file():
        return None
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for line in file if line.strip())


def _splits(path_of: Callable[[str], Path], what: str) -> str:
    return (
        f"{_count_lines(path_of('train'))} {what} to train on, {_count_lines(path_of('val'))} to validate on"
    )


def _losses(metrics: Path) -> str:
    lines = read_metrics(metrics) if metrics.is_file() else []
    validations = [line for line in lines if line.get("kind") == "val"]
    if not validations:
        return "no validation in its metrics.jsonl"
    first, last = validations[0], validations[-1]
    change = 100 * (last["mel_loss"] / first["mel_loss"] - 1)
    return (
        f"step {last['step']}: validation mel loss {first['mel_loss']:.3f} -> {last['mel_loss']:.3f} "
        f"({change:+.0f} %)"
    )
