"""One training after another, killed and resumed until it ends, and what is found on the way.

Kill   when and how a process is killed
Tally  what was done and what was found
Chain  one process after another on one run after another
"""

import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.damage import KINDS, damage
from benchmarks.run_checks import (
    Standing,
    last_step,
    metrics_lines,
    wrong_at_the_end,
    wrong_in_replayed_lines,
)
from benchmarks.trainer_process import (
    IN_CREATE,
    IN_DELETE,
    IN_MODIFY,
    IN_MOVED_TO,
    FolderEvents,
    TrainerProcess,
)
from tests.tiny_run import TinyRun

LONGEST_S = 300.0  # a process that takes longer hangs
# Kills fall into this share of the duration of a whole run: the start, and hundreds of steps. The last steps
# and the exit are killed in processes that went on from late in a run.
REACH = 0.6
AT_ANY_INSTANT = "at any instant"
WHILE_TRAINING = "at any instant after the start-up"
CHECKPOINT_NAMES = ("model_step", "latest", "best")
# What of the folder's events a kill may wait for.
EVENTS: dict[str, Callable[[int, str], bool]] = {
    "a save begins": lambda mask, name: mask == IN_CREATE and name.startswith(".tmp-"),
    "a file gets its final name": lambda mask, name: (
        mask == IN_MOVED_TO and name.startswith(CHECKPOINT_NAMES)
    ),
    "an old checkpoint is deleted": lambda mask, name: mask == IN_DELETE and name.startswith("model_step"),
    "numbers are written": lambda mask, name: mask == IN_MODIFY and name == "metrics.jsonl",
}
STATUS_AFTER = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
# What Python itself does with a signal before the trainer's first line has run.
STATUS_BEFORE_THE_TRAINER = (-signal.SIGTERM, -signal.SIGINT, 1)


@dataclass(frozen=True)
class Arguments:
    """Kill and resume a tiny training; compare it with one left alone."""

    kills: int = 100
    """Kills in all."""
    seed: int = 0
    """Seed of instants, signals and damage."""
    parallel: int = 1
    """Chains side by side; about one per core."""
    workers: tuple[int, ...] = (0, 2)
    """Data workers; each process takes one of these numbers."""
    keep: int = 3
    """--keep-checkpoints of the trainer."""
    save_interval: int = 5
    """--save-interval of the trainer."""
    epochs: int = 8
    """Epochs of the run, of 39 steps each."""
    damage: float = 0.1
    """Share of the kills after which the newest checkpoint is damaged, never after two in a row."""
    folder: Path | None = None
    """Where to work; a temporary folder by default."""
    output: Path | None = None
    """File for the table."""


@dataclass(frozen=True)
class Kill:
    """When and how a process is killed.

    Args:
        trigger: AT_ANY_INSTANT, WHILE_TRAINING, or a key of EVENTS.
        count: at which event.
        delay_s: after the start, or after the event.
        then_kill_after_s: SIGKILL so long after another signal, as a container's stop does; None for not.
    """

    trigger: str
    count: int
    delay_s: float
    signal: signal.Signals
    to_group: bool
    then_kill_after_s: float | None

    @classmethod
    def draw(cls, random: Random, durations_s: tuple[float, float]) -> "Kill":
        """Return a random kill.

        Args:
            durations_s: of a whole process, and of its training.
        """
        moment = random.random()
        number = signal.SIGKILL if random.random() < 0.8 else random.choice((signal.SIGTERM, signal.SIGINT))
        has_second = number != signal.SIGKILL and random.random() < 0.2
        if moment < 0.3:
            trigger, count, delay_s = AT_ANY_INSTANT, 0, random.uniform(0, REACH * durations_s[0])
        elif moment < 0.6:
            trigger, count, delay_s = WHILE_TRAINING, 1, random.uniform(0, REACH * durations_s[1])
        else:
            trigger, count = random.choice(list(EVENTS)), random.randint(1, 25)
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
        """Whether the trainer may end in its own way: it then saves, and loses nothing."""
        return self.signal != signal.SIGKILL and self.then_kill_after_s is None


@dataclass
class Tally:
    """What was done and what was found; tallies of several chains add up."""

    signals: Counter[str] = field(default_factory=Counter)
    triggers: Counter[str] = field(default_factory=Counter)
    phases: Counter[str] = field(default_factory=Counter)
    damages: Counter[str] = field(default_factory=Counter)
    resumes: int = 0
    runs: int = 0
    broken_off: int = 0
    identical: int = 0
    lost: int = 0
    unusable: int = 0
    lost_s: list[float] = field(default_factory=list)
    lost_steps: list[int] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return self.signals.total()

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class Chain:
    """One process after another on one run after another."""

    def __init__(
        self, project: TinyRun, arguments: Arguments, random: Random, durations_s: tuple[float, float]
    ) -> None:
        self.project = project
        self.arguments = arguments
        self.random = random
        self.durations_s = durations_s
        self.tally = Tally()

    def run(self, run_dir: Path, kills: int) -> None:
        """Train in `run_dir` to the end, killed on the way until there are `kills` in all."""
        self.run_dir = run_dir
        self.log = run_dir.with_name(f"{run_dir.name}.log")
        self.damaged: set[str] = set()  # names of what was damaged on purpose
        self.before = Standing()
        self.was_damaged = False
        self.tally.runs += 1
        run_dir.mkdir()
        num_wrong = len(self.tally.wrong)
        status = None
        while status != 0:
            kill = Kill.draw(self.random, self.durations_s) if self.tally.kills < kills else None
            status = self.one_process(kill)
            if status is None:
                self.tally.broken_off += 1
                return
        self._count_unusable(Standing.read(run_dir), "at the end")
        wrong = wrong_at_the_end(self.project.output, run_dir, self.project.folder / "base/gpt.pth")
        self.tally.identical += not wrong
        for problem in wrong[:5]:
            self._wrong(f"at the end: {problem}")
        if len(self.tally.wrong) == num_wrong:
            shutil.rmtree(run_dir)
            self.log.unlink()

    def one_process(self, kill: Kill | None) -> int | None:
        """Start a process, kill it, look at what it left; return its exit status, None if that is wrong."""
        num_lines = len(metrics_lines(self.run_dir))
        events = FolderEvents(self.run_dir)
        workers = self.random.choice(self.arguments.workers)
        is_resume = bool(self.before.good)
        process = TrainerProcess(command_line(self.project, self.arguments, self.run_dir, workers), self.log)
        try:
            had_begun = _carry_out(kill, process, events) if kill else True
            killed_at = time.time()
            status = process.wait(LONGEST_S)
            left_over = process.wait_for_members(5.0)
        finally:
            process.end()
            events.close()
        if left_over:
            self._wrong(f"processes {left_over} outlived the trainer by 5 s")
        if status is None:
            self._wrong(f"did not end within {LONGEST_S:.0f} s after {kill}")
            return None
        lines = metrics_lines(self.run_dir)[num_lines:]
        self._check_where_it_began(lines)
        self.tally.resumes += is_resume and bool(lines)
        if status == 0:  # finished, or the signal came too late
            return status
        if not self._is_right_status(status, kill, had_begun):
            return None
        assert kill is not None
        self._check_after_kill(kill, lines, killed_at)
        return status

    def _is_right_status(self, status: int, kill: Kill | None, had_begun: bool) -> bool:
        expected = {STATUS_AFTER[kill.signal]} if kill else {0}
        if kill and kill.then_kill_after_s is not None:
            expected.add(-signal.SIGKILL)
        if kill and not had_begun:
            expected.update(STATUS_BEFORE_THE_TRAINER)
        if status in expected:
            return True
        self._wrong(
            f"exit status {status}, expected one of {sorted(expected)}, after {kill}: {self._last_words()}"
        )
        # a signal that ended it too roughly is no reason not to go on
        return kill is not None and status in STATUS_BEFORE_THE_TRAINER

    def _check_where_it_began(self, lines: Sequence[dict[str, Any]]) -> None:
        for line in lines:  # further on is right: a resume finishes the commit that a kill interrupted
            if line["kind"] == "start" and line["step"] < self.before.step:
                self._wrong(f"went on from step {line['step']}, the newest good one is {self.before.step}")

    def _check_after_kill(self, kill: Kill, lines: Sequence[dict[str, Any]], killed_at: float) -> None:
        """Look at what a kill left behind, count it, and perhaps damage it."""
        now = Standing.read(self.run_dir)
        self._count_unusable(now, f"after {kill}")
        if now.serial < self.before.serial:
            self.tally.lost += 1
            self._wrong(f"serial {self.before.serial} is lost, the newest is {now.serial}, after {kill}")
        lost_steps = max(0, last_step(lines) - now.step) if lines else 0
        if lost_steps >= (1 if kill.is_stop else 2 * self.arguments.save_interval):
            self._wrong(f"{lost_steps} steps lost, after {kill}")
        wrong_lines = wrong_in_replayed_lines(self.project.output, self.run_dir)
        if wrong_lines:
            self._wrong(f"{wrong_lines[0]}, before {kill}")
        self._count(kill, lines, now, lost_steps, killed_at)
        self._perhaps_damage(now)

    def _count(
        self, kill: Kill, lines: Sequence[dict[str, Any]], now: Standing, lost_steps: int, killed_at: float
    ) -> None:
        name = kill.signal.name if kill.then_kill_after_s is None else f"{kill.signal.name}, then SIGKILL"
        self.tally.signals[f"{name} to the {'group' if kill.to_group else 'process'}"] += 1
        self.tally.triggers[kill.trigger] += 1
        self.tally.phases[self._phase(kill, lines)] += 1
        self.tally.lost_steps.append(lost_steps)
        if lines and not kill.is_stop:
            saved_at = max((path.stat().st_mtime for path in now.newest), default=0.0)
            self.tally.lost_s.append(max(0.0, killed_at - max(saved_at, lines[0]["time"])))

    def _phase(self, kill: Kill, lines: Sequence[dict[str, Any]]) -> str:
        """Return what the process was doing, as far as its traces show."""
        if not lines:
            return "before the first step"
        if kill.is_stop:
            return "in training, which saved and ended"
        return "in a save" if any(self.run_dir.glob(".tmp-*")) else "in training"

    def _perhaps_damage(self, now: Standing) -> None:
        """Damage the newest checkpoint, if there is one before it and the last was not damaged too."""
        self.before = now
        has_older = len({meta.serial for _, meta in now.good}) > 1
        self.was_damaged = not self.was_damaged and has_older and self.random.random() < self.arguments.damage
        if not self.was_damaged:
            return
        kind = self.random.choice(list(KINDS))
        damage(now.newest, kind, self.random)
        self.damaged |= {path.name for path in now.newest}
        self.tally.damages[kind] += 1
        self.before = Standing.read(self.run_dir)
        if self.before.serial >= now.serial:
            raise RuntimeError(f"{self.run_dir}: {kind} was not noticed by verify_checkpoint")

    def _count_unusable(self, now: Standing, when: str) -> None:
        """Count the files that do not verify, those left out that were damaged on purpose."""
        self.damaged -= {path.name for path, _ in now.good}
        for name, problem in now.unusable.items():
            if name not in self.damaged:
                self.tally.unusable += 1
                self._wrong(f"unusable under a final name: {problem}, {when}")

    def _wrong(self, what: str) -> None:
        self.tally.wrong.append(f"{self.run_dir}: {what}")
        print(f"WRONG: {self.tally.wrong[-1]}", flush=True)

    def _last_words(self) -> str:
        return self.log.read_bytes()[-300:].decode(errors="replace").strip().replace("\n", " | ")


def _carry_out(kill: Kill, process: TrainerProcess, events: FolderEvents) -> bool:
    """Wait for the kill's moment and kill; return whether the trainer's own lines had begun to run."""
    if kill.trigger == AT_ANY_INSTANT or process.wait_for(events, _event_of(kill), kill.count):
        process.wait(kill.delay_s)
    had_begun = process.has_loaded_torch()
    process.send(kill.signal, to_group=kill.to_group)
    if kill.then_kill_after_s is not None:
        process.wait(kill.then_kill_after_s)
        process.send(signal.SIGKILL, to_group=kill.to_group)
    return had_begun


def _event_of(kill: Kill) -> Callable[[int, str], bool]:
    """Return what the kill waits for; a training begins with a first line of numbers."""
    return EVENTS["numbers are written" if kill.trigger == WHILE_TRAINING else kill.trigger]


def command_line(project: TinyRun, arguments: Arguments, run_dir: Path, workers: int) -> list[str]:
    """Return the trainer's arguments; only the folder and the workers differ between processes."""
    return project.flags(
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
    )
