"""Checks of a run directory: after every kill, and at the end against an uninterrupted run.

Every check returns a list of problems, empty if there are none.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from indextts.commands.train import Train
from indextts.models.checkpoint import read_weights, recover_meta
from indextts.runs.directory import (
    BEST,
    LINKS,
    CheckpointMeta,
    checkpoints,
    files_without_meta,
    read_metrics,
    verify_checkpoint,
)

# May differ in a checkpoint: names and number of the saves in between, and settings of the last process.
OF_THE_STOPS = frozenset({"recent_checkpoints", "serial"})
OF_THE_PROCESS = Train.of_process
# May differ in a line of metrics.jsonl.
OF_THE_CLOCK = frozenset({"time", "tokens_per_second", "data_wait", "seconds", "time_share"})
# Kinds of lines that describe a process: its start, and the distance that the rows have moved since.
START = "start"
OF_A_PROCESS = frozenset({START, "facts"})
TEXT_TABLES = ("text_embedding.weight", "text_head.weight", "text_head.bias")


@dataclass
class CommittedCheckpoints:
    """Committed checkpoints of a run directory."""

    valid: list[tuple[Path, CheckpointMeta]] = field(default_factory=list)  # those that verify, newest first
    corrupt: dict[str, str] = field(default_factory=dict)  # name -> problem

    @classmethod
    def read(cls, run_dir: Path) -> "CommittedCheckpoints":
        """Verify every file that has a meta file, or the record of one inside."""
        found = cls()
        with _silent(
            logging.getLogger("indextts.runs.directory")
        ):  # it warns about corrupt files, which this counts
            committed = checkpoints(run_dir)
        for path, meta in committed:
            try:
                verify_checkpoint(path)
            except ValueError as problem:
                found.corrupt[path.name] = str(problem)
            else:
                found.valid.append((path, meta))
        readable = {path for path, _ in committed}
        for path in set(files_without_meta(run_dir)) - readable:  # the next trainer restores its meta file
            with suppress(ValueError):
                recovered = recover_meta(path)
                if recovered is not None and recovered.digest:
                    found.valid.append((path, recovered))
                    readable.add(path)
        found.valid.sort(key=lambda item: (-item[1].serial, item[0].name in LINKS))
        for path in sorted(run_dir.glob("*.json")):
            if _is_meta(path) and path.with_suffix(".pth") not in readable:
                found.corrupt[path.with_suffix(".pth").name] = f"{path.name} is not readable"
        return found

    @property
    def serial(self) -> int:
        """Serial number of the newest valid checkpoint; 0 if there is none."""
        return self.valid[0][1].serial if self.valid else 0

    @property
    def step(self) -> int:
        """Step of the newest valid checkpoint; 0 if there is none."""
        return self.valid[0][1].step if self.valid else 0

    @property
    def newest(self) -> list[Path]:
        """Newest valid checkpoint under all its names."""
        return [path for path, meta in self.valid if meta.serial == self.serial]


def metrics_lines(run_dir: Path) -> list[dict[str, Any]]:
    """Return every complete line of metrics.jsonl, also those of steps that were replayed later."""
    path = run_dir / "metrics.jsonl"
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            lines.append(json.loads(text))
        except ValueError:  # a partial line after a kill
            continue
    return lines


def last_step(lines: Sequence[dict[str, Any]]) -> int:
    """Return the last step with a line; 0 if there is none."""
    return max((line["step"] for line in lines), default=0)


def problems_in_replayed_lines(reference: Path, run_dir: Path) -> list[str]:
    """Compare every line, also of replayed steps, with the reference's line of the same kind and step."""
    expected = {_key(line): _numbers(line) for line in metrics_lines(reference)}
    return [
        f"metrics.jsonl: {_numbers(line)}, the reference has {expected.get(_key(line))}"
        for line in metrics_lines(run_dir)
        if line["kind"] not in OF_A_PROCESS and _numbers(line) != expected.get(_key(line))
    ]


def problems_at_end(reference: Path, run_dir: Path, base: Path) -> list[str]:
    """Compare a finished run with an uninterrupted run bit by bit.

    Args:
        base: the base checkpoint, whose rows of the text tables are frozen.
    """
    problems = problems_in_replayed_lines(reference, run_dir)
    mine, other = (
        {_key(line): _numbers(line) for line in read_metrics(folder / "metrics.jsonl")}
        for folder in (run_dir, reference)
    )
    for key in sorted(mine.keys() ^ other.keys(), key=str):
        if key[0] not in OF_A_PROCESS:
            problems.append(
                f"metrics.jsonl: {key} is only in the {'killed run' if key in mine else 'reference'}"
            )
    final, expected = _load(run_dir / "latest.pth"), _load(reference / "latest.pth")
    for content in (final, expected):
        for part, names in (
            (content, OF_THE_STOPS),
            (content["meta"], OF_THE_STOPS),
            (content["meta"]["settings"], OF_THE_PROCESS),
        ):
            for name in names:
                part.pop(name, None)
    problems += [f"latest.pth: {where}" for where in differences(final, expected)]
    for link in (link for link in BEST if link == "best.pth" or (reference / link).exists()):
        best, expected_best = (_load(folder / link) for folder in (run_dir, reference))
        for name in ("model", "step", "epoch", "best_mel_loss"):
            problems += [f"{link}: {where}" for where in differences(best[name], expected_best[name], name)]
    frozen, trained = _load(base), read_weights(run_dir / "latest.pth")
    is_frozen = final["meta"]["settings"].get("train_text_rows", "new") == "new"
    for name in TEXT_TABLES if is_frozen else ():
        rows = slice(0, len(frozen[name]) - 1)  # the last row belongs to no piece
        problems += differences(trained[name][rows], frozen[name][rows], f"frozen rows of {name}")
    return problems


def differences(one: object, other: object, where: str = "") -> Iterator[str]:
    """Yield the places where two nested values of dicts, lists, tensors and scalars are not bit-identical."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if (one.dtype, one.shape) != (other.dtype, other.shape) or _bits(one) != _bits(other):
            yield f"{where} differs"
    elif isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys(), key=str):
            if key in one and key in other:
                yield from differences(one[key], other[key], f"{where}[{key!r}]")
            else:
                yield f"{where}[{key!r}] is in one only"
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        for number, (mine, others) in enumerate(zip(one, other, strict=True)):
            yield from differences(mine, others, f"{where}[{number}]")
    elif type(one) is not type(other) or one != other:
        yield f"{where}: {one!r:.80} is not {other!r:.80}"


@contextmanager
def _silent(logger: logging.Logger) -> Iterator[None]:
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False


def _load(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return content


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _is_meta(path: Path) -> bool:
    return f"{path.stem}.pth" in LINKS or path.stem.startswith("model_step")


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["kind"], line["step"], line["part"]


def _numbers(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name not in OF_THE_CLOCK}
