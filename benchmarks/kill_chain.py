"""Runs in sequence, each killed and resumed until it finishes, with a check after every kill."""

import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from pydantic import Field

from benchmarks.frame import Benchmark
from indextts.data.manifest import read_pairs, write_pairs
from indextts.data.pair_index import find_index, index_path
from indextts.text.bases import load_tokenizer
from tests import corruption
from tests.run_checks import (
    CommittedCheckpoints,
    last_step,
    metrics_lines,
    problems_at_end,
    problems_in_replayed_lines,
)
from tests.tiny_run import TinyRun
from tests.trainer_process import IN_CREATE, IN_DELETE, IN_MODIFY, IN_MOVED_TO, FolderEvents, TrainerProcess

WORKERS = [0, 2]
ORPHANED_S = 20.0  # a data worker that still imports looks for its trainer afterwards, late on a busy machine
TIMEOUT_S = 300.0  # a process that takes longer hangs
# Kills happen within this share of the duration of a whole run: the start, and hundreds of steps. Processes
# that resume late in a run are killed in the last steps and in the exit.
REACH = 0.6
MAX_EVENTS = 12  # most runs have more of each that follow
AT_ANY_INSTANT = "at any instant"
WHILE_TRAINING = "at any instant after the start-up"
WHILE_INDEXING = "while the pairs are indexed"
CHECKPOINT_NAMES = ("model_step", "latest", "best")
# Folder events that a kill may wait for.
EVENTS: dict[str, Callable[[int, str], bool]] = {
    "a save begins": lambda mask, name: mask == IN_CREATE and name.startswith(".tmp-"),
    "a file gets its final name": lambda mask, name: (
        mask == IN_MOVED_TO and name.startswith(CHECKPOINT_NAMES)
    ),
    "an old checkpoint is deleted": lambda mask, name: mask == IN_DELETE and name.startswith("model_step"),
    # its line precedes the index
    WHILE_INDEXING: lambda mask, name: mask == IN_MODIFY and name == "train.log",
    "metrics are written": lambda mask, name: mask == IN_MODIFY and name == "metrics.jsonl",
}
STATUS_AFTER = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
NUM_NEW = 98  # of 116 pairs; with a share of 0.85, the other file contributes 17 to an epoch
SHARES = "shares"  # not a setting: train on two files with shares, and validate in two languages
OF_RECIPES = {"min_lr_ratio": 0.08, "new_row_lr_scale": 5, "style_noise": 0.01, "emotion_dropout": 0.1}
LORA = {"lora_rank": 4, "lora_code_head": True, "train_text_rows": "used"}
LISTENING: dict[str, object] = {"listen_interval": 7, "listen_sentences": 4, "listen_share": 1, "patience": 4}
# By name, the first word of which is the base: what a kind of run sets besides `command_line`.
KINDS: dict[str, dict[str, object]] = {
    "2.0": {},
    "2.5": {},
    "2.0 LoRA": {"lora_rank": 4, "lora_targets": "attention"},
    "2.5 LoRA recipe": {**OF_RECIPES, **LORA, "language_row_init": "en"},
    "2.5 full recipe": {**OF_RECIPES, "train_text_rows": "used", "language_row_init": "en"},
    "2.0 shares": {SHARES: True},
    "2.5 shares with LoRA": {SHARES: True, **LORA},
    "2.0 rows before body": {"freeze_body_steps": 15, "train_text_rows": "all", "emotion_from": "target"},
    "2.0 averages and bfloat16 moments": {"ema_decay": 0.9, "optimizer_state": "bfloat16"},
    "2.5 averages and own language row": {"ema_decay": 0.9, "language_row_init": "own"},
    "2.0 padded and recomputed": {"padding": "reference", "grad_checkpointing": True},
    "2.0 listening": LISTENING,
    "2.5 listening with LoRA and averages": {**LISTENING, **LORA, "ema_decay": 0.9},
}
# Exit statuses of Python itself for a signal before the trainer's first line has run.
STATUS_BEFORE_TRAINER = (-signal.SIGTERM, -signal.SIGINT, 1)


class KillResume(Benchmark):
    """Kill and resume a tiny training; compare it with an uninterrupted run."""

    program: ClassVar[str] = "benchmarks.kill_resume"
    kind: list[str] = Field([], description="Kinds of runs, in turn; by default all.")
    kills: int = Field(77, ge=1, description="Kills of each kind.")
    minutes: float = Field(0.0, ge=0, description="Kill no more after this time; 0 sets no limit.")
    seed: int = Field(0, description="Seed of moments, signals and corruption.")
    parallel: int = Field(1, ge=1, description="Chains in parallel; about one per core.")
    workers: list[int] = Field([], description="Data workers, one of these per process; 0 and 2 by default.")
    keep: int = Field(3, ge=1, description="--keep-checkpoints of the trainer.")
    save_interval: int = Field(5, ge=1, description="--save-interval of the trainer.")
    epochs: int = Field(2, ge=1, description="Epochs of the run, of 20 steps each.")
    corruption: float = Field(
        0.1, ge=0, le=1, description="Share of kills followed by a corruption, never after two in a row."
    )
    index_kills: int = Field(
        0, ge=0, description="The first so many kills of a kind are while the trainer indexes the pairs."
    )
    folder: Path | None = Field(None, description="Working folder; a temporary folder by default.")


@dataclass(frozen=True)
class Reference:
    """An uninterrupted run of a kind, and the durations of its process and of its training."""

    kind: str
    project: TinyRun
    durations_s: tuple[float, float] = (0.0, 0.0)

    @property
    def output(self) -> Path:
        return self.project.folder / self.kind.replace(" ", "_")


@dataclass(frozen=True)
class Kill:
    """Moment and signal of a kill.

    Args:
        trigger: AT_ANY_INSTANT, WHILE_TRAINING, or a key of EVENTS.
        count: number of the event.
        delay_s: delay after the start, or after the event.
        then_kill_after_s: delay of a second signal, SIGKILL, as when a container stops; None for none.
    """

    trigger: str
    count: int
    delay_s: float
    signal: signal.Signals
    to_group: bool
    then_kill_after_s: float | None

    @classmethod
    def draw(cls, random: Random, durations_s: tuple[float, float]) -> "Kill":
        """Return a random kill, for the durations of a whole process and of its training."""
        moment = random.random()
        number = signal.SIGKILL if random.random() < 0.8 else random.choice((signal.SIGTERM, signal.SIGINT))
        has_second = number != signal.SIGKILL and random.random() < 0.2
        if moment < 0.3:
            trigger, count, delay_s = AT_ANY_INSTANT, 0, random.uniform(0, REACH * durations_s[0])
        elif moment < 0.6:
            trigger, count, delay_s = WHILE_TRAINING, 1, random.uniform(0, REACH * durations_s[1])
        else:
            trigger = random.choice([name for name in EVENTS if name != WHILE_INDEXING])
            count = random.randint(1, MAX_EVENTS)
            delay_s = random.choice((0.0, random.uniform(0, 0.02)))
        return cls(
            trigger=trigger,
            count=count,
            delay_s=delay_s,
            signal=number,
            to_group=random.random() < 0.5,
            then_kill_after_s=random.uniform(0, 0.1) if has_second else None,
        )

    @property
    def is_stop(self) -> bool:
        """True if the trainer can save before it exits, so that no step is lost."""
        return self.signal != signal.SIGKILL and self.then_kill_after_s is None


@dataclass
class Tally:
    """Counts of kills and problems; tallies of several chains can be added."""

    signals: Counter[str] = field(default_factory=Counter)
    triggers: Counter[str] = field(default_factory=Counter)
    corruptions: Counter[str] = field(default_factory=Counter)
    resumes: int = 0
    runs: int = 0
    abandoned: int = 0
    identical: int = 0
    lost: int = 0
    corrupt: int = 0
    lost_steps: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return self.signals.total()

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass
class Chain:
    """Sequence of runs of a kind, each a sequence of processes, until there were `kills` kills."""

    reference: Reference
    arguments: KillResume
    random: Random
    kills: int
    end: float  # time.monotonic() after which no more processes are killed
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.tokenizer = load_tokenizer(self.reference.project.folder / "tokenizer.model")

    @property
    def is_due(self) -> bool:
        return self.tally.kills < self.kills and time.monotonic() < self.end

    def run(self, run_dir: Path) -> None:
        """Train in `run_dir` to the end, with kills while they are due."""
        self.run_dir = run_dir
        self.log = run_dir.with_name(f"{run_dir.name}.log")
        self.corrupted: set[str] = set()  # names of deliberately corrupted files
        self.before = CommittedCheckpoints()
        self.was_corrupted = False
        self.tally.runs += 1
        run_dir.mkdir()
        num_problems = len(self.tally.problems)
        status = None
        while status != 0:
            kill = Kill.draw(self.random, self.reference.durations_s) if self.is_due else None
            num_indexing = self.tally.triggers[WHILE_INDEXING] * self.arguments.parallel
            if kill and num_indexing < self.arguments.index_kills:  # the build takes about 50 ms
                count, delay_s = self.random.randint(1, 4), self.random.uniform(0, 0.05)
                kill = replace(kill, trigger=WHILE_INDEXING, count=count, delay_s=delay_s)
            status = self.one_process(kill)
            if status is None:
                self.tally.abandoned += 1
                return
        self._count_corrupt(CommittedCheckpoints.read(run_dir), "at the end")
        problems = problems_at_end(
            self.reference.output, run_dir, self.reference.project.folder / "base/gpt.pth"
        )
        self.tally.identical += not problems
        for problem in problems[:5]:
            self._report(f"at the end: {problem}")
        if len(self.tally.problems) == num_problems:
            shutil.rmtree(run_dir)
            self.log.unlink()

    def one_process(self, kill: Kill | None) -> int | None:
        """Start a process, kill it, and check its folder; return its exit status, None if that is wrong."""
        num_lines = len(metrics_lines(self.run_dir))
        events = FolderEvents(self.run_dir)
        workers = self.random.choice(self.arguments.workers or WORKERS)
        is_resume = bool(self.before.valid)
        if kill and kill.trigger == WHILE_INDEXING:
            for path in self._manifests:
                index_path(path).unlink(missing_ok=True)
        process = TrainerProcess(
            command_line(self.reference, self.arguments, self.run_dir, workers), self.log
        )
        try:
            had_started = _carry_out(kill, process, events) if kill else True
            status = process.wait(TIMEOUT_S)
            survivors = process.wait_for_members(ORPHANED_S)
        finally:
            process.end()
            events.close()
        if survivors:
            self._report(f"processes {survivors} still run {ORPHANED_S:.0f} s after the trainer")
        if status is None:
            self._report(f"did not exit within {TIMEOUT_S:.0f} s after {kill}")
            return None
        lines = metrics_lines(self.run_dir)[num_lines:]
        for line in lines:  # a later step is correct: a resume finishes the commit that a kill interrupted
            if line["kind"] == "start" and line["step"] < self.before.step:
                self._report(f"resumed from step {line['step']}, the newest valid one is {self.before.step}")
        self.tally.resumes += is_resume and bool(lines)
        if status == 0:  # finished, or the signal was too late
            return status
        if not self._is_expected_status(status, kill, had_started):
            return None
        assert kill is not None
        self._check_after_kill(kill, lines)
        return status

    @property
    def _manifests(self) -> list[Path]:
        return [self.reference.project.folder / f"{split}_pairs.jsonl" for split in ("train", "val")]

    def _is_expected_status(self, status: int, kill: Kill | None, had_started: bool) -> bool:
        expected = {STATUS_AFTER[kill.signal]} if kill else {0}
        if kill and kill.then_kill_after_s is not None:
            expected.add(-signal.SIGKILL)
        if kill and not had_started:
            expected.update(STATUS_BEFORE_TRAINER)
        if status in expected:
            return True
        end = self.log.read_bytes()[-300:].decode(errors="replace").strip().replace("\n", " | ")
        self._report(f"exit status {status}, expected one of {sorted(expected)}, after {kill}: {end}")
        # the run can continue after a signal that ended the process without its own handler
        return kill is not None and status in STATUS_BEFORE_TRAINER

    def _check_after_kill(self, kill: Kill, lines: Sequence[dict[str, Any]]) -> None:
        """Check the folder after a kill, count the result, and maybe corrupt the newest checkpoint."""
        now = CommittedCheckpoints.read(self.run_dir)
        self._count_corrupt(now, f"after {kill}")
        if now.serial < self.before.serial:
            self.tally.lost += 1
            self._report(f"serial {self.before.serial} is lost, the newest is {now.serial}, after {kill}")
        lost_steps = max(0, last_step(lines) - now.step) if lines else 0
        if lost_steps >= (1 if kill.is_stop else 2 * self.arguments.save_interval):
            self._report(f"{lost_steps} steps lost, after {kill}")
        replayed = problems_in_replayed_lines(self.reference.output, self.run_dir)
        if replayed:
            self._report(f"{replayed[0]}, before {kill}")
        for path in self._manifests:  # another chain may remove it meanwhile
            if (
                index_path(path).exists()
                and not find_index(path, self.tokenizer)
                and index_path(path).exists()
            ):
                self._report(f"{index_path(path)} is not valid, after {kill}")
        name = kill.signal.name if kill.then_kill_after_s is None else f"{kill.signal.name}, then SIGKILL"
        self.tally.signals[f"{name} to the {'group' if kill.to_group else 'process'}"] += 1
        self.tally.triggers[kill.trigger] += 1
        self.tally.lost_steps.append(lost_steps)
        self._maybe_corrupt(now)

    def _maybe_corrupt(self, now: CommittedCheckpoints) -> None:
        """Corrupt the newest checkpoint if there is an older one and the last was not corrupted."""
        self.before = now
        has_older = len({meta.serial for _, meta in now.valid}) > 1
        self.was_corrupted = (
            not self.was_corrupted and has_older and self.random.random() < self.arguments.corruption
        )
        if not self.was_corrupted:
            return
        kind = self.random.choice(list(corruption.KINDS))
        corruption.corrupt(now.newest, kind, self.random)
        self.corrupted |= {path.name for path in now.newest}
        self.tally.corruptions[kind] += 1
        self.before = CommittedCheckpoints.read(self.run_dir)
        if kind in corruption.RESTORED and self.before.serial != now.serial:
            raise RuntimeError(f"{self.run_dir}: a checkpoint does not count any more: {kind}")
        if kind not in corruption.RESTORED and self.before.serial >= now.serial:
            raise RuntimeError(f"{self.run_dir}: verify_checkpoint did not notice: {kind}")

    def _count_corrupt(self, now: CommittedCheckpoints, when: str) -> None:
        """Count the files that do not verify, without those that were corrupted deliberately."""
        self.corrupted -= {path.name for path, _ in now.valid}
        for name, problem in now.corrupt.items():
            if name not in self.corrupted:
                self.tally.corrupt += 1
                self._report(f"corrupt under a final name: {problem}, {when}")

    def _report(self, problem: str) -> None:
        self.tally.problems.append(f"{self.run_dir}: {problem}")
        print(f"PROBLEM: {self.tally.problems[-1]}", flush=True)


def _carry_out(kill: Kill, process: TrainerProcess, events: FolderEvents) -> bool:
    """Wait for the kill's moment and kill; return whether the trainer's own code had started."""
    # a training starts with the first line of metrics
    event = EVENTS.get("metrics are written" if kill.trigger == WHILE_TRAINING else kill.trigger)
    if event is None or process.wait_for(events, event, kill.count):
        process.wait(kill.delay_s)
    had_started = process.has_loaded_torch()
    process.send(kill.signal, to_group=kill.to_group)
    if kill.then_kill_after_s is not None:
        process.wait(kill.then_kill_after_s)
        process.send(signal.SIGKILL, to_group=kill.to_group)
    return had_started


def write_parts(project: TinyRun) -> None:
    """Divide the pairs of the project into those of a new and an old language."""
    for split, number in (("train", NUM_NEW), ("val", 4)):
        pairs = read_pairs(project.folder / f"{split}_pairs.jsonl")
        write_pairs(project.folder / f"new_{split}.jsonl", pairs[:number])
        write_pairs(project.folder / f"old_{split}.jsonl", pairs[number:])


def command_line(reference: Reference, arguments: KillResume, run_dir: Path, workers: int) -> list[str]:
    """Return the trainer's arguments; only folder and workers differ between processes."""
    project, settings = reference.project, dict(KINDS[reference.kind])
    new, old = project.folder / "new", project.folder / "old"  # of `write_parts`
    shares = {
        "train_manifest": [f"{new}_train.jsonl@0.85", f"{old}_train.jsonl@en@0.15"],
        "val_manifest": [f"{new}_val.jsonl", f"{old}_val.jsonl@en"],
    }
    return project.flags(
        **(shares if settings.pop(SHARES, False) else {}),
        output_dir=run_dir,
        num_workers=workers,
        epochs=arguments.epochs,
        warmup_steps=20,
        save_interval=arguments.save_interval,
        val_interval=7,
        log_interval=3,
        keep_checkpoints=arguments.keep,
        resume="auto",
        allow_cpu="",
        **{"listen_interval": 0, **settings},
    )
