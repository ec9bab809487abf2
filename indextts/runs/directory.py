"""THE RUN DIRECTORY: what a run leaves behind. No torch here.

    OUTPUT_DIR/
      config.json            the whole command with defaults, versions, git commit, part, schedule, normaliser
      model_step{N}.pth      a checkpoint, torch.load(weights_only=True); keys: indextts/models/checkpoint.py
      model_step{N}.json     its meta, written last: a checkpoint without it does not count
      model_step{N}.pinned   an empty file that you make: this checkpoint is never removed
      model_step{N}.part{P}.pth/.json   a checkpoint of part P whose name a later part used again
      model_step{N}.foreign.pth         a file of another program whose name a save needed
      damaged-model_step{N}.pth/.json   a checkpoint that a resume found damaged and went around
      latest.pth latest.json            the newest checkpoint, by serial (hard links, or copies)
      best.pth   best.json              the one with the lowest validation mel loss
      tokenizer.model        the tokenizer of the run
      metrics.jsonl          one JSON object a line; of a step replayed after a resume the later counts
      trash/                 checkpoints that somebody threw away (indextts/runs/checkpoints.py)
      samples/part{P}_step{N}/  what the model said of the same few sentences (indextts/training/samples.py)
      train.log              what a person reads
      train_rank{K}.log      what went wrong in process K of several
      logs/run_{time}/       TensorBoard
      exit.json              how the last process ended
      .lock                  held by the running trainer
      .tmp-*                 what is being written; swept by the next owner

What only the folder's owner does (lock, commit, prune, repair) is in indextts/runs/owner.py.

A run has parts: part 1 from the base checkpoint; a new part when the vocabulary changed or an older
checkpoint was resumed. Every save has a serial number that only grows: "newest" means serial, never step.
"""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ValidationError

from indextts.system.digest import file_digest
from indextts.system.files import write_bytes

logger = logging.getLogger(__name__)

# A meta file holds the pieces of a tokenizer, some hundred kilobytes; what is far larger is none.
LARGEST_META = 64 << 20

LINKS = ("latest.pth", "best.pth")

MetricsKey = tuple[Any, Any, Any]  # part, kind, step


class FileIdentity(BaseModel, frozen=True):
    """A file that a run was made from, as it was then.

    Args:
        digest: `indextts.system.digest.file_digest` of its bytes.
        mtime_ns: with path and size, spares reading the file again where nothing touched it.
    """

    path: str
    num_bytes: int
    mtime_ns: int
    digest: str


class CheckpointMeta(BaseModel, frozen=True):
    """The `.json` beside a checkpoint: all that a resume decides by, readable without torch.

    Args:
        samples_done: samples of the epoch that are done, in the order of the epoch.
        batch_idx: micro-steps of the epoch that are done, for people.
        serial: grows by one with every save in this folder, whatever the part.
        part: run part, from 1.
        is_best: it had the lowest validation mel loss of its part when it was saved.
        base_size: pieces of the base tokenizer; the rows of the text tables before it are frozen.
        gpt_config: the sizes of the model, as `dataclasses.asdict(GPTConfig)` gives them.
        data_order: digest of the samples and seed that `samples_done` counts along.
        num_samples: samples of an epoch.
        num_positions, longest: of the model's sequence: of all samples together, and of the longest; 0 in
            a file of an older version.
        manifests: the pairs files, `train` first and then `val`, in the order given.
        settings: every field of the Train command, as `model_dump(mode="json")` gives it.
        schedule: `dataclasses.asdict(Schedule)`.
        environment: versions of torch and python, device name, arithmetic ("float32", "bfloat16"), threads.
        losses: of the last [Train] line, by name.
        pieces: of the tokenizer, in the order of their ids.
        normalizer: `NormalizerOptions.record` of the tokenizer; empty in older files.
        num_bytes, digest: of the `.pth`.
    """

    format_version: Literal[1] = 1
    step: int
    epoch: int
    samples_done: int
    batch_idx: int
    serial: int
    part: int
    is_best: bool
    tokenizer_fingerprint: str
    tokenizer_size: int
    base_size: int
    gpt_config: dict[str, Any]
    data_order: str
    num_samples: int
    num_positions: int = 0
    longest: int = 0
    manifests: list[FileIdentity]
    base: FileIdentity
    settings: dict[str, Any]
    schedule: dict[str, Any]
    environment: dict[str, Any]
    losses: dict[str, float]
    num_bytes: int
    digest: str
    pieces: list[str]
    normalizer: dict[str, Any] = {}

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the meta file at `path`.

        Raises:
            ValueError: it is not one; the message says why.
        """
        try:
            if path.stat().st_size > LARGEST_META:
                raise ValueError(f"{path.name}: {path.stat().st_size} bytes, too large for a meta file")
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise ValueError(f"{path.name}: {error.strerror}") from None
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise ValueError(f"{path.name}: {place + ': ' if place else ''}{first['msg']}") from None

    def write(self, path: Path) -> None:
        """Write the meta file, a line for each field: the pieces are tens of thousands."""
        fields = self.model_dump(mode="json").items()
        lines = (f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields)
        write_bytes(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def identify(path: Path, known: Sequence[FileIdentity] = ()) -> FileIdentity:
    """Return what tells the file at `path` from another; reads it whole, unless nothing touched it.

    Args:
        known: identities from before; a file whose place, size and time are those of one is not read again.

    Raises:
        OSError: it cannot be read.
    """
    stat, place = path.stat(), str(path.resolve())
    for file in known:
        if (file.path, file.num_bytes, file.mtime_ns) == (place, stat.st_size, stat.st_mtime_ns):
            return file
    return FileIdentity(
        path=place, num_bytes=stat.st_size, mtime_ns=stat.st_mtime_ns, digest=file_digest(path)
    )


def checkpoint_path(run_dir: Path, step: int) -> Path:
    return run_dir / f"model_step{step}.pth"


def verify_checkpoint(path: Path) -> CheckpointMeta:
    """Return the meta of the checkpoint at `path` after comparing its size and digest.

    Raises:
        ValueError: the checkpoint or its meta file is missing or damaged; the message says what.
    """
    meta = read_complete(path)
    try:
        digest = file_digest(path)
    except OSError as error:
        raise ValueError(f"{path.name}: {error.strerror}") from None
    if digest != meta.digest:
        raise ValueError(f"{path.name}: its digest differs from its meta file's, the file is damaged")
    return meta


def read_complete(path: Path) -> CheckpointMeta:
    """Return the meta of the checkpoint at `path`, whose size is right; its bytes are not read.

    Raises:
        ValueError: the checkpoint or its meta file is missing or damaged; the message says what.
    """
    meta = CheckpointMeta.read(path.with_suffix(".json"))
    if path.is_symlink() or not path.is_file():
        raise ValueError(f"{path.name} is missing, or no plain file")
    if path.stat().st_size != meta.num_bytes:
        raise ValueError(f"{path.name}: {path.stat().st_size} bytes, its meta file says {meta.num_bytes}")
    return meta


def checkpoints(run_dir: Path) -> list[tuple[Path, CheckpointMeta]]:
    """Return the committed checkpoints with their metas, newest serial first; nothing is verified."""
    found = []
    for meta_path in [*run_dir.glob("model_step*.json"), run_dir / "latest.json", run_dir / "best.json"]:
        if meta_path.is_symlink() or not meta_path.is_file():
            continue
        try:
            found.append((meta_path.with_suffix(".pth"), CheckpointMeta.read(meta_path)))
        except ValueError as error:
            logger.warning("Not a checkpoint's meta file: %s", error)
    # of one serial: the numbered file first, whose name says what it is; the others are links to it
    return sorted(found, key=lambda item: (-item[1].serial, item[0].name in LINKS, item[0].name))


def checkpoint_files(run_dir: Path) -> list[Path]:
    """Return every checkpoint file of the folder, committed or not, damaged or not, for messages."""
    names = ("model_step*.pth", "damaged-model_step*.pth", "latest.pth", "best.pth")
    return sorted(path for name in names for path in run_dir.glob(name))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl in the order of writing; of one step of a part the last counts.

    What lies behind the step at which a later process began is gone: that process did those steps again, or
    others in their place. A line that is not whole JSON, as a kill leaves it, is skipped.
    """
    lines: dict[MetricsKey, dict[str, Any]] = {}
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            add_metrics_line(lines, line)
    return list(lines.values())


def add_metrics_line(lines: dict[MetricsKey, dict[str, Any]], line: dict[str, Any]) -> None:
    """Put a line behind those before it, without the ones that it makes undone; see `read_metrics`."""
    part, kind, step = key = (line.get("part"), line.get("kind"), line.get("step"))
    if kind == "start" and isinstance(step, int):
        for undone in [other for other in lines if other[0] == part and (other[2] or 0) > step]:
            del lines[undone]
    lines.pop(key, None)
    lines[key] = line
