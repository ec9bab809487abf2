"""The run directory: its files, the meta file of a checkpoint, and metrics.jsonl. No torch.

    OUTPUT_DIR/
      config.json            the command with all defaults, versions, git commit, part, schedule, normaliser
      model_step{N}.pth      a checkpoint, torch.load(weights_only=True); keys: indextts/models/checkpoint.py
      model_step{N}.json     its meta, written last; a resume restores a lost one from the checkpoint itself
      model_step{N}.pinned   an empty file: this checkpoint is never deleted
      model_step{N}.part{P}.pth/.json   a checkpoint of part P whose name a later part reused
      model_step{N}.foreign.pth         a file of another program whose name a save needed
      damaged-model_step{N}.pth/.json   a corrupt checkpoint that a resume quarantined
      latest.pth latest.json            the newest checkpoint, by serial (hard links, or copies)
      best.pth   best.json              the one with the lowest validation mel loss, whatever its part
      best_heard.pth best_heard.json    the one that spoke best (indextts/training/listening.py)
      tokenizer.model        the tokenizer of the run
      base-{digest}.pth      of a LoRA run: its base, if that is a checkpoint of another run (lora_base.py)
      metrics.jsonl          one JSON object per line; for a replayed step the later line counts
      trash/                 deleted checkpoints (indextts/runs/checkpoints.py)
      samples/part{P}_step{N}/  what was heard of fixed sentences (indextts/training/listening.py)
      train.log              the log
      train_rank{K}.log      warnings and errors of rank K
      logs/run_{time}/       TensorBoard
      tracker.json           identity of the run in its tracker (indextts/training/tracking.py)
      wandb/                 files of Weights & Biases
      exit.json              how the last process ended
      .lock                  held by the running trainer
      .tmp-*                 being written; the next owner removes leftovers

Operations of the owner (lock, commit, prune, repair) are in indextts/runs/owner.py.

A run has parts: part 1 starts from the base checkpoint; a new part starts when the vocabulary changes or an
older checkpoint is resumed. Every save has a serial number that only grows: "newest" means serial, not step.
"""

import json
import logging
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ValidationError

from indextts.system.digest import file_digest
from indextts.system.files import write_bytes
from indextts.system.yaml_files import problems_of

logger = logging.getLogger(__name__)

# A meta file holds the pieces of a tokenizer, a few hundred kilobytes; a far larger file is something else.
MAX_META_BYTES = 64 << 20

BEST = {"best.pth": "is_best", "best_heard.pth": "is_best_heard"}  # by the field of the meta
LINKS = ("latest.pth", "best_heard.pth", "best.pth")  # a run directory as a model is the last that exists
# Prefixes of the meta file, which is renamed first when a checkpoint is deleted or quarantined.
PRUNED = ".tmp-pruned-"
QUARANTINED = "damaged-"

MetricsKey = tuple[Any, Any, Any]  # part, kind, step


class FileIdentity(BaseModel, frozen=True):
    """An input file of a run, at the time of the run.

    Args:
        digest: `indextts.system.digest.file_digest` of its bytes.
        mtime_ns: if path, size and time are unchanged, the file need not be read again.
    """

    path: str
    num_bytes: int
    mtime_ns: int
    digest: str


class CheckpointMeta(BaseModel, frozen=True):
    """The `.json` next to a checkpoint: everything that a restore plan needs, readable without torch.

    Args:
        samples_done: done samples of the epoch, in the order of the epoch.
        batch_idx: done micro-steps of the epoch, for display.
        serial: grows by one with every save in this folder, across parts.
        part: run part, from 1.
        is_best: it had the lowest validation mel loss of this folder and validation set when it was saved.
        validation_set: digest of the pairs that a validation uses.
        validation_mel_loss: of this model on these pairs, None if this step was not validated.
        is_best_heard: it had the lowest `heard_score` of this folder by the same ear when it was saved.
        heard_by: identity of the sentences and of what judged them.
        heard_score: of this model, None if it was not listened to.
        base_size: pieces of the base tokenizer; the rows of the text tables before it are frozen.
        gpt_config: the sizes of the model, as `dataclasses.asdict(GPTConfig)` gives them.
        data_order: digest of the samples and seed that define the order of `samples_done`.
        num_samples: of an epoch.
        num_positions, longest: sequence positions of all samples, and of the longest.
        manifests: the pairs files, `train` first and then `val`, in the order given.
        settings: every field of the Train command, as `model_dump(mode="json")` gives it.
        schedule: `dataclasses.asdict(Schedule)`.
        environment: versions of torch and python, device name, arithmetic ("float32", "bfloat16"), threads.
        losses: of the last [Train] line, by name.
        pieces: of the tokenizer, by id.
        normalizer: `NormalizerOptions.record` of the tokenizer.
        codebook: `codebook_identity` of the codes; None if it is unknown.
        num_averaged: updates of the weight average; None without one.
        recipe: that the settings follow; empty for none.
        piece_counts: how often each piece of the tokenizer occurs in the training texts, up to the last that
            does; None if it is not known.
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
    validation_set: str = ""
    validation_mel_loss: float | None = None
    is_best_heard: bool = False
    heard_by: str = ""
    heard_score: float | None = None
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
    codebook: str | None = None
    num_averaged: int | None = None
    recipe: str = ""
    piece_counts: list[int] | None = None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the meta file at `path`.

        Raises:
            ValueError: it is missing or invalid; the message has the reason.
        """
        try:
            if path.exists() and not path.is_file():
                raise ValueError(f"{path.name}: not a regular file")
            if path.stat().st_size > MAX_META_BYTES:
                raise ValueError(f"{path.name}: {path.stat().st_size} bytes, too large for a meta file")
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise ValueError(f"{path.name}: {error.strerror}") from None
        except ValidationError as error:
            raise ValueError(f"{path.name}: {problems_of(error)[0]}") from None

    def write(self, path: Path) -> None:
        """Write the meta file, a line per field, since there are tens of thousands of pieces."""
        fields = self.model_dump(mode="json").items()
        lines = (f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields)
        write_bytes(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def identify(path: Path, known: Sequence[FileIdentity] = ()) -> FileIdentity:
    """Return the identity of the file at `path`; reads all of it, unless it is unchanged.

    Args:
        known: earlier identities; a file with the path, size and time of one of them is not read again.

    Raises:
        OSError: the file cannot be read.
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
    """Return the meta of the checkpoint at `path` after verifying its size and digest.

    Raises:
        ValueError: the checkpoint or its meta is missing or corrupt; the message has the reason.
    """
    meta = read_complete(path)
    try:
        digest = file_digest(path)
    except OSError as error:
        raise ValueError(f"{path.name}: {error.strerror}") from None
    if digest != meta.digest:
        raise ValueError(f"{path.name} is corrupt: its digest differs from that in its meta file")
    return meta


def read_complete(path: Path) -> CheckpointMeta:
    """Return the meta of the checkpoint at `path` after verifying its size, without reading its weights.

    Raises:
        ValueError: the checkpoint or its meta is missing or corrupt; the message has the reason.
    """
    meta = read_meta(path)
    if not path.is_file():
        raise ValueError(f"{path.name} is missing or not a regular file")
    if path.stat().st_size != meta.num_bytes:
        raise ValueError(f"{path.name} is corrupt: {path.stat().st_size} of {meta.num_bytes} bytes")
    return meta


def read_meta(path: Path) -> CheckpointMeta:
    """Return the meta of the checkpoint at `path`.

    Raises:
        ValueError: its meta file is missing or invalid; the message has the reason.
    """
    return CheckpointMeta.read(path.with_suffix(".json"))


def checkpoints(run_dir: Path) -> list[tuple[Path, CheckpointMeta]]:
    """Return the checkpoints with their metas, newest serial first, without verifying them.

    Symbolic links are followed. A file without a readable meta file is in `files_without_meta` only.
    """
    found = []
    names = ("model_step*.json", *(f"{Path(link).stem}.json" for link in LINKS))
    for path in {each.with_suffix(".pth") for name in names for each in run_dir.glob(name)}:
        try:
            found.append((path, read_meta(path)))
        except ValueError as error:
            logger.warning("Invalid meta file of a checkpoint: %s", error)
    # within a serial, the numbered file comes before the links to it
    return sorted(found, key=lambda item: (-item[1].serial, item[0].name in LINKS, item[0].name))


def files_without_meta(run_dir: Path) -> list[Path]:
    """Return the files that may be checkpoints and have no readable meta file, or that of another save.

    Only torch can read the record inside.
    """
    found = []
    for path in checkpoint_files(run_dir):
        if path.name.startswith(QUARANTINED) or not path.is_file() or is_half_removed(path):
            continue
        try:
            is_known = not _is_of_another_save(path, read_meta(path))
        except ValueError:
            is_known = False
        if not is_known:
            found.append(path)
    return found


def _is_of_another_save(path: Path, meta: CheckpointMeta) -> bool:
    """Return whether latest.pth or best.pth may be another checkpoint, copied over that of `meta`.

    A guess: the record inside and, where it is right after all, the digest decide.
    """
    if path.name not in LINKS:
        return False
    try:
        numbered = checkpoint_path(path.parent, meta.step)
        if numbered.is_file() and not path.samefile(numbered) and read_meta(numbered).serial == meta.serial:
            return _checksums(path) != _checksums(numbered)  # equal where the file system has no hard links
        # a save writes the meta file last; a copy may have any order
        return path.stat().st_mtime_ns > path.with_suffix(".json").stat().st_mtime_ns
    except (OSError, ValueError):
        return False


def _checksums(path: Path) -> list[tuple[str, int]] | None:
    """Return name and CRC-32 of each entry in a file of torch.save, a zip; None for another file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return [(entry.filename, entry.CRC) for entry in archive.infolist()]
    except zipfile.BadZipFile:
        return None


def is_half_removed(path: Path) -> bool:
    """Return whether a deletion or quarantine of `path` was interrupted; the next owner completes it."""
    if not path.is_file() or path.with_suffix(".json").exists():
        return False
    if path.with_name(f"{PRUNED}{path.stem}.json").exists():
        return True
    renamed = path.with_name(f"{QUARANTINED}{path.name}")
    return renamed.with_suffix(".json").exists() and not renamed.exists()


def checkpoint_files(run_dir: Path) -> list[Path]:
    """Return every checkpoint file of the folder, including uncommitted and corrupt ones."""
    names = ("model_step*.pth", f"{QUARANTINED}model_step*.pth", *LINKS)
    return sorted(path for name in names for path in run_dir.glob(name) if path.exists())


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl in order; for each part, kind and step the last one counts.

    Lines after the step at which a later process started are dropped, because that process replayed those
    steps. Incomplete lines, as a kill leaves them, are skipped.
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
    """Append a line to `lines` and drop those that it replaces; see `read_metrics`."""
    part, kind, step = key = (line.get("part"), line.get("kind"), line.get("step"))
    if kind == "start" and isinstance(step, int):
        for replayed in [other for other in lines if other[0] == part and (other[2] or 0) > step]:
            del lines[replayed]
    lines.pop(key, None)
    lines[key] = line
