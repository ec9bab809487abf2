"""Preflight checks: problems that would stop a training run, found before it starts. Any problem blocks it.

The checks call the same functions as the trainer: the restore plan, the manifest readers, the lock of the run
directory. Checks that need the weights are left to the trainer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from indextts.commands.data import VerifyTraining
from indextts.commands.launching import ALONE, Launch
from indextts.commands.pairs_file import parse_files
from indextts.commands.train import Train
from indextts.data.manifest import sample_pairs
from indextts.errors import UserError
from indextts.planning.estimate import DiskNeed, Estimate, estimate
from indextts.planning.hardware import MachineFacts, share_of
from indextts.planning.pairs_size import measure_pairs, measure_texts
from indextts.planning.restore_plan import plan_from_meta
from indextts.runs.directory import checkpoint_files, read_complete
from indextts.runs.find_checkpoint import named_checkpoint
from indextts.runs.owner import is_training
from indextts.runs.restore_facts import RestorePlan
from indextts.system.amounts import shown_size
from indextts.system.messages import Message, as_is
from indextts.text.bases import base_tokenizer, load_tokenizer
from indextts.text.verify import require_extension, unknown_pieces

MIN_CPU_PROCESSES = 2  # allowed on any CPU, to try out several ranks
NUM_PROBED_PAIRS = 100  # enough to recognize the kind of file
MAX_UNKNOWN_PERCENT: float = VerifyTraining.model_fields["max_unknown_percent"].default

Subject = Literal["folder", "resume", "pairs", "tokenizer", "base", "disk", "settings", "launch"]
Check = Callable[[], Message | None]
MUST_END = {  # what must end within a run, and the message if it does not
    "warmup_steps": "planning.warmup_too_long",
    "val_interval": "planning.never_validates",
    "save_interval": "planning.never_saves",
}
SHORTENED = (*MUST_END, "listen_interval")  # without listening, a run learns as well


@dataclass(frozen=True)
class Problem:
    """A reason not to start, with its subject and the way to solve it."""

    about: Subject
    message: Message


@dataclass(frozen=True)
class Preflight:
    """Result of the preflight checks."""

    problems: tuple[Problem, ...]
    estimate: Estimate | None  # None if a problem makes it impossible
    resumed: RestorePlan | None  # the restore plan; None for a new run, or if only the weights can decide


def run_preflight(
    command: Train, machine: MachineFacts, other_runs: Sequence[Path] = (), launch: Launch = ALONE
) -> Preflight:
    """Check and estimate the training run that `command` would start, without reading weights."""
    problems: list[Problem] = []
    if missing := missing_hardware(machine, launch):
        problems.append(Problem("launch", missing))
    pairs, folder, base = (
        (command.train_manifest, command.tokenizer, command.config),
        command.output_dir,
        command.base_checkpoint,
    )
    checks: dict[Subject, Check] = {
        # another trainer holds the lock
        "folder": lambda: (
            Message("planning.in_use", {"folder": str(folder)}) if is_training(folder) else None
        ),
        "pairs": lambda: unusable_pairs(
            *pairs, [file.path for file in command.val_files], command.output_dir
        ),
        "tokenizer": lambda: tokenizer_mismatch(*pairs, command.base_checkpoint),
        # a resumed run does not need the base
        "base": lambda: (
            None if command.resume or base.is_file() else Message("planning.no_base", {"path": str(base)})
        ),
    }
    for about, check in checks.items():
        try:
            message = check()
        except UserError as error:
            message = as_is(str(error))
        # two checks may find the same problem of a file
        if message and str(message) not in [str(known.message) for known in problems]:
            problems.append(Problem(about, message))
    resumed = None
    try:
        problems += resume_problems(command.resume, command.output_dir)
        resumed = plan_from_meta(command, launch.num_processes) if command.resume else None
    except UserError as error:
        problems.append(Problem("resume", as_is(str(error))))
    prevent_estimate = {"pairs", "tokenizer", "launch", *(["resume"] if command.resume else [])}
    if any(problem.about in prevent_estimate for problem in problems):
        return Preflight(tuple(problems), None, resumed)
    try:
        share = share_of(machine, launch)
        expected = estimate(command, share, resumed, other_runs, launch.num_processes)
    except UserError as error:
        return Preflight((*problems, Problem("settings", as_is(str(error)))), None, resumed)
    if resumed and resumed.finished:
        problems.append(Problem("resume", resumed.finished))
    meta = resumed.checkpoint.meta if resumed else None
    if meta and (too_small := expected.facts.too_small(meta.environment.get("device"))):
        problems.append(Problem("resume", too_small))
    if not command.resume:
        problems += [Problem("settings", message) for message in useless_settings(expected)]
    if too_small := disk_too_small(command.output_dir, expected.disk):
        problems.append(Problem("disk", too_small))
    return Preflight(tuple(problems), expected, resumed)


def missing_hardware(machine: MachineFacts, launch: Launch) -> Message | None:
    present = [gpu.number for gpu in machine.gpus]
    missing = sorted(set(launch.gpu_numbers) - set(present))
    if missing and not present:
        return Message("planning.no_gpu")
    if missing:
        values = {"missing": ", ".join(map(str, missing)), "there": ", ".join(map(str, present))}
        return Message("planning.no_such_gpu", values)
    if launch.processes <= (len(present) or max(MIN_CPU_PROCESSES, machine.num_cores)):
        return None
    values = {"processes": str(launch.processes), "count": str(len(present) or machine.num_cores)}
    return Message("planning.fewer_gpus" if present else "planning.fewer_cores", values)


def unusable_pairs(
    manifests: Sequence[Path], tokenizer: Path, config: Path, val_paths: Sequence[Path], run_dir: Path
) -> Message | None:
    """Return a message if no pair fits the model or a file is missing; a UserError for an unreadable one."""
    paths = [file.path for file in parse_files(list(manifests))]
    for path in (*paths, *val_paths):
        if not path.exists():
            return Message("planning.no_pairs", {"path": str(path)})
        sample_pairs(path, NUM_PROBED_PAIRS)
    if not tokenizer.is_file():
        return None  # tokenizer_mismatch reports it
    if measure_pairs(manifests, tokenizer, config, run_dir).size.num_samples:
        return None
    return Message("planning.no_pair_fits", {"paths": ", ".join(map(str, paths))})


def tokenizer_mismatch(
    manifests: Sequence[Path], path: Path, config: Path, base_checkpoint: Path
) -> Message | None:
    """Return a message if the tokenizer lacks pieces; a UserError if it does not extend the base."""
    if not path.exists():
        return Message("planning.no_tokenizer", {"path": str(path)})
    tokenizer = load_tokenizer(path)
    base_path = base_tokenizer(base_checkpoint)
    if base_path.is_file():
        require_extension(tokenizer, load_tokenizer(base_path))
    if not all(file.path.is_file() for file in parse_files(list(manifests))):
        return None  # unusable_pairs reports it
    texts = measure_texts(manifests, path, config)
    found = unknown_pieces(texts, MAX_UNKNOWN_PERCENT, tokenizer.options.language)
    if found.verdict != "problem":
        return None
    values = {"path": str(path), "value": found.value, "advice": found.advice}
    return Message("planning.unknown_pieces", values)


def shortened(settings: Train, steps: int) -> dict[str, int]:
    """Return values, by field, with which a run does each five times and warms up in a fifth of its steps."""
    fifth = max(1, steps // 5)
    return {name: fifth for name in SHORTENED if getattr(settings, name) > fifth}


def useless_settings(expected: Estimate) -> list[Message]:
    """Return a message for each setting with which a new run cannot learn, or its result is not known."""
    settings, steps = expected.facts.settings, expected.total_steps
    shorter = shortened(settings, steps)
    values = {"steps": f"{steps:,}", "warmup": f"{settings.warmup_steps:,}"}
    return [
        Message(id, {**values, "fix": f"{shorter[name]:,}"})
        for name, id in MUST_END.items()
        if getattr(settings, name) >= steps + (name != "warmup_steps")  # an interval may be the whole run
        and name in shorter
    ]


def disk_too_small(run_dir: Path, disk: DiskNeed) -> Message | None:
    if disk.fits:
        return None
    values = {
        "folder": str(run_dir),
        "free": shown_size(disk.free_bytes),
        "needed": shown_size(disk.needed_bytes),
        "count": str(disk.num_at_most),
        "each": shown_size(disk.checkpoint_bytes),
    }
    return Message("planning.disk_too_small", values)


def resume_problems(resume: str, run_dir: Path) -> list[Problem]:
    """Return why no resume or new run can start here; a UserError without the named checkpoint."""
    present, folder = checkpoint_files(run_dir), str(run_dir)
    if resume == "auto" and not present:
        return [Problem("resume", Message("planning.nothing_to_resume", {"folder": folder}))]
    if not resume and present:
        values = {"folder": folder, "name": present[-1].name}
        return [Problem("resume", Message("planning.has_checkpoints", values))]
    if resume in ("", "auto"):
        return []
    path = named_checkpoint(resume)
    if path.with_suffix(".json").is_file():  # else only the weights can decide
        try:
            read_complete(path)
        except ValueError as error:
            return [Problem("resume", Message("planning.incomplete", {"problem": str(error)}))]
    return []
