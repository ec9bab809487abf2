"""What would stop a training, said before it starts, with the way out. A check that trips blocks the start.

The rules are the trainer's own functions where it has one: the plan of a restore, the readers of manifests,
the owner of the folder. What only weights can tell is left to the trainer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from indextts.commands.data import VerifyTraining
from indextts.commands.launching import ALONE, Launch
from indextts.commands.train import Train
from indextts.data.manifest import sample_pairs
from indextts.errors import UserError
from indextts.planning.estimate import Estimate, estimate
from indextts.planning.hardware import MachineFacts, share_of
from indextts.planning.pairs_size import measure_pairs
from indextts.planning.restore_plan import MetaPlan, plan_from_meta
from indextts.runs.directory import checkpoint_files, read_complete
from indextts.runs.find_checkpoint import find_checkpoint
from indextts.runs.owner import is_training
from indextts.system.amounts import shown_size
from indextts.system.messages import Message, as_is
from indextts.text.tokenizer import Tokenizer
from indextts.text.verify import base_tokenizer, require_extension, unknown_pieces

IN_USE = "planning.in_use"
NOTHING_TO_RESUME = "planning.nothing_to_resume"
HAS_CHECKPOINTS = "planning.has_checkpoints"
NOT_WHOLE = "planning.not_whole"
DISK_TOO_SMALL = "planning.disk_too_small"
UNKNOWN_PIECES = "planning.unknown_pieces"
NO_PAIRS = "planning.no_pairs"
NO_TOKENIZER = "planning.no_tokenizer"
NO_BASE = "planning.no_base"
NO_PAIR_FITS = "planning.no_pair_fits"
NO_SUCH_GPU = "planning.no_such_gpu"
NO_GPU = "planning.no_gpu"
FEWER_GPUS = "planning.fewer_gpus"
FEWER_CORES = "planning.fewer_cores"

FOR_A_TRIAL = 2  # processes, on a processor of any kind
FEW_PAIRS = 100  # enough to see what kind of file it is
MAX_UNKNOWN_PERCENT: float = VerifyTraining.model_fields["max_unknown_percent"].default

Subject = Literal["folder", "resume", "pairs", "tokenizer", "base", "disk", "settings", "launch"]
Check = Callable[[Train], Message | None]


@dataclass(frozen=True)
class Problem:
    """What stops a training: about what, and a sentence with the way out."""

    about: Subject
    message: Message


@dataclass(frozen=True)
class Preflight:
    """What is known before a start.

    Args:
        problems: any of them blocks it.
        estimate: None where a problem makes it impossible.
        resumed: what the restore would do; None for a new run, or where only weights can tell.
    """

    problems: tuple[Problem, ...]
    estimate: Estimate | None
    resumed: MetaPlan | None


def run_preflight(
    command: Train, machine: MachineFacts, other_runs: Sequence[Path] = (), launch: Launch = ALONE
) -> Preflight:
    """Return what a start of `command` would meet; reads no weights, a second for the largest manifests.

    Args:
        other_runs: run directories of the workspace, whose pace may be known.
        launch: how many processes share the work, and which cards they take.
    """
    problems: list[Problem] = []
    if too_much := missing_hardware(machine, launch):
        problems.append(Problem("launch", too_much))
    for about, check in CHECKS:
        problem = _tried(about, check, command)
        # what one file lacks may stop two checks
        if problem and str(problem.message) not in [str(known.message) for known in problems]:
            problems.append(problem)
    resumed = None
    try:
        problems += _resume(command)
        resumed = plan_from_meta(command, launch.num_processes) if command.resume else None
    except UserError as error:
        problems.append(Problem("resume", as_is(str(error))))
    if any(_hides_estimate(problem, command) for problem in problems):
        return Preflight(tuple(problems), None, resumed)
    try:
        share = share_of(machine, launch)
        expected = estimate(command, share, resumed, other_runs, launch.num_processes)
    except UserError as error:
        return Preflight((*problems, Problem("settings", as_is(str(error)))), None, resumed)
    too_small = disk_too_small(command, expected)
    if too_small:
        problems.append(Problem("disk", too_small))
    return Preflight(tuple(problems), expected, resumed)


def _hides_estimate(problem: Problem, command: Train) -> bool:
    """Return whether nothing can be counted: a file is missing or wrong, or what is resumed is unknown."""
    return problem.about in ("pairs", "tokenizer", "launch") or (
        problem.about == "resume" and bool(command.resume)
    )


def missing_hardware(machine: MachineFacts, launch: Launch) -> Message | None:
    """Return that the processes would not find the cards or the cores that they are to take."""
    there = [card.number for card in machine.gpus]
    missing = sorted(set(launch.gpu_numbers) - set(there))
    if missing and not there:
        return Message(NO_GPU)
    if missing:
        values = {"missing": ", ".join(map(str, missing)), "there": ", ".join(map(str, there))}
        return Message(NO_SUCH_GPU, values)
    if launch.processes <= (len(there) or max(FOR_A_TRIAL, machine.num_cores)):
        return None
    values = {"processes": str(launch.processes), "count": str(len(there) or machine.num_cores)}
    return Message(FEWER_GPUS if there else FEWER_CORES, values)


def _tried(about: Subject, check: Check, command: Train) -> Problem | None:
    try:
        sentence = check(command)
    except UserError as error:
        sentence = as_is(str(error))
    return None if sentence is None else Problem(about, sentence)


def folder_in_use(command: Train) -> Message | None:
    """Return that another trainer has the output dir."""
    if not is_training(command.output_dir):
        return None
    return Message(IN_USE, {"folder": str(command.output_dir)})


def unusable_pairs(command: Train) -> Message | None:
    """Return that no pair fits; a UserError where a manifest cannot be read, or is none of pairs."""
    for path in (*command.train_manifest, *command.val_manifest):
        if not path.exists():
            return Message(NO_PAIRS, {"path": str(path)})
        sample_pairs(path, FEW_PAIRS)
    if not command.tokenizer.is_file():
        return None  # said of the tokenizer
    pairs = measure_pairs(command.train_manifest, command.tokenizer, command.config)
    if pairs.size.num_samples:
        return None
    return Message(NO_PAIR_FITS, {"paths": ", ".join(map(str, command.train_manifest))})


def tokenizer_mismatch(command: Train) -> Message | None:
    """Return that the tokenizer does not know the texts; a UserError if it does not extend the base's."""
    if not command.tokenizer.exists():
        return Message(NO_TOKENIZER, {"path": str(command.tokenizer)})
    tokenizer = Tokenizer.load(command.tokenizer)
    beside = base_tokenizer(command.base_checkpoint)
    if beside.is_file():
        require_extension(tokenizer, Tokenizer.load(beside))
    if not all(path.is_file() for path in command.train_manifest):
        return None  # said of the pairs
    texts = measure_pairs(command.train_manifest, command.tokenizer, command.config).texts
    found = unknown_pieces(texts, MAX_UNKNOWN_PERCENT)
    if found.verdict != "problem":
        return None
    values = {"path": str(command.tokenizer), "value": found.value, "advice": found.advice}
    return Message(UNKNOWN_PIECES, values)


def no_base(command: Train) -> Message | None:
    """Return that the base checkpoint is absent; a run that goes on can do without."""
    if command.resume or command.base_checkpoint.is_file():
        return None
    return Message(NO_BASE, {"path": str(command.base_checkpoint)})


def disk_too_small(command: Train, expected: Estimate) -> Message | None:
    """Return that the checkpoints will not fit."""
    disk = expected.disk
    if disk.fits:
        return None
    values = {
        "folder": str(command.output_dir),
        "free": shown_size(disk.free_bytes),
        "needed": shown_size(disk.needed_bytes),
        "count": str(disk.num_at_most),
        "each": shown_size(disk.checkpoint_bytes),
    }
    return Message(DISK_TOO_SMALL, values)


def _resume(command: Train) -> list[Problem]:
    """Return why nothing can be resumed, or that a new run cannot begin here; errors of the trainer's own."""
    present, folder = checkpoint_files(command.output_dir), str(command.output_dir)
    if command.resume == "auto" and not present:
        return [Problem("resume", Message(NOTHING_TO_RESUME, {"folder": folder}))]
    if not command.resume and present:
        values = {"folder": folder, "name": present[-1].name}
        return [Problem("resume", Message(HAS_CHECKPOINTS, values))]
    is_named = command.resume not in ("", "auto")
    if is_named and not Path(command.resume).is_file():
        find_checkpoint(command, may_change=False)  # of a file that is there it would read all bytes
    elif is_named and Path(command.resume).with_suffix(".json").is_file():
        try:
            read_complete(Path(command.resume))
        except ValueError as error:
            return [Problem("resume", Message(NOT_WHOLE, {"problem": str(error)}))]
    return []


CHECKS: tuple[tuple[Subject, Check], ...] = (
    ("folder", folder_in_use),
    ("pairs", unusable_pairs),
    ("tokenizer", tokenizer_mismatch),
    ("base", no_base),
)
