"""The checkpoint format, safe reading of a `.pth`, and writing with a digest.

model                 name -> tensor, every weight of the GPT: IndexTTS2 loads the file as gpt.pth; of a LoRA
                      run, only what it trained
lora                  how that and the base make a model (`indextts.models.lora`); only of a LoRA run
optimizer             AdamW's state, with the parameters' names
scheduler             the numbers of an indextts.runs.schedule.Schedule
scaler                state of torch.amp.GradScaler; None unless float16
averaged              {"decay", "num_updates", "weights"}: moving average of the trained values; for a text
                      table only the rows after the base's; None without --ema-decay
epoch step batch_idx  position of the run; batch_idx counts micro-steps of the epoch
sampler               {"samples_done", "data_order"}: position in the order of the epoch
rng                   {"seed"}: all randomness is a function of the seed, the epoch and the step
tokenizer             {"fingerprint", "pieces", "base_size", "model", "normalizer"}: `model` is the
                      SentencePiece file, `normalizer` is `NormalizerOptions.record`
recent_checkpoints    names of the run's checkpoints, newest last
manifests             {"train": [...], "val": [...]}
learning_rate text_loss_weight mel_loss_weight
meta                  the content of the `.json` beside it, without the size and the digest of this file
state                 the rest of a `TrainState`: log window, best loss, result of a probe of the model; and
                      {"codes": {"backend", "identity"}}, of the speech backend that made the codes
format_version

All tensors are on the CPU, whatever device the run was trained on.
"""

import hashlib
import io
import logging
import pickle
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from indextts.commands.speech import Weights
from indextts.errors import RESUME_REFUSED, UserError
from indextts.models.adapter_file import content_of
from indextts.models.lora import lora_record, merge, require_full_strength
from indextts.models.weight_names import published_names
from indextts.runs.directory import BEST, CheckpointMeta, checkpoint_path
from indextts.runs.lora_base import find_base
from indextts.runs.owner import commit, publish
from indextts.system.amounts import counted, listed
from indextts.system.digest import DigestWriter, file_digest
from indextts.system.files import sync
from indextts.system.yaml_files import problems_of

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
MAX_DEPTH = 100
MAX_CONTAINERS = 1_000_000
TEXT_TABLES = ("text_embedding.weight", "text_head.weight", "text_head.bias")

# The types in numpy's random state, which other trainers save; none of them runs code.
NUMPY_STATE: list[Any] = [
    _reconstruct,
    (_reconstruct, "numpy.core.multiarray._reconstruct"),
    np.ndarray,
    np.dtype,
    np.dtypes.UInt32DType,
]

# Raised by torch.load for files that are not checkpoints.
LOAD_ERRORS = (
    RuntimeError,
    ValueError,
    OSError,
    EOFError,
    KeyError,
    TypeError,
    AttributeError,
    MemoryError,
    IndexError,
    AssertionError,
    struct.error,
)


def codes_identity(content: Mapping[str, Any]) -> str | None:
    """Return the identity of the speech backend that made a checkpoint's codes; None if not recorded."""
    state = content.get("state")
    codes = state.get("codes") if isinstance(state, dict) else None
    return codes.get("identity") if isinstance(codes, dict) else None


def read_file(path: Path) -> dict[str, Any]:
    """Return the dict in a `.pth` or a `.safetensors` file; its tensors are memory-mapped.

    Raises:
        UserError: no such file, not a checkpoint, or a pickle that would run code.
    """
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    content = _read(path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: contains a {type(content).__name__} instead of a dict; use another file")
    return content


def embedded_meta(content: Mapping[str, Any], path: Path) -> CheckpointMeta | None:
    """Return the meta record inside a checkpoint; None if another program wrote the checkpoint.

    Raises:
        UserError: with status 3 if the record is corrupt or of a newer format.
    """
    if "meta" not in content:
        return None
    try:
        return CheckpointMeta.model_validate({**content["meta"], "num_bytes": 0, "digest": ""})
    except (TypeError, ValidationError) as error:
        reason = problems_of(error)[0] if isinstance(error, ValidationError) else str(error)
        raise UserError(
            f"Failed to load checkpoint: {path}: its meta record is invalid ({reason}); if a newer version "
            "of this program wrote it, update this installation",
            RESUME_REFUSED,
        ) from None


def recover_meta(path: Path) -> CheckpointMeta | None:
    """Return the meta of a checkpoint that lost its meta file, from its record; None without a record.

    The `.pth` is a zip of uncompressed entries, each with its CRC-32. If one differs, the digest is empty.

    Raises:
        ValueError: the file is corrupt or cannot be read; with the reason.
    """
    try:
        if _is_of_old_format(path):  # before the first version of this program
            return None
        meta = embedded_meta(read_file(path), path)
        if meta is None:
            return None
        with zipfile.ZipFile(path) as archive:
            corrupt = archive.testzip()
    except OSError as error:
        raise ValueError(f"{path.name}: {error.strerror or error}") from None
    except (UserError, zipfile.BadZipFile, RuntimeError, ValueError, EOFError) as error:
        raise ValueError(f"{path.name} is truncated, corrupt or not a checkpoint ({error})") from None
    digest = "" if corrupt is not None else file_digest(path)
    return meta.model_copy(update={"num_bytes": path.stat().st_size, "digest": digest})


def read_tensor(path: Path) -> Tensor:
    """Return the single tensor in a file written by torch.save; errors as for `read_file`."""
    content = _read(path)
    if not isinstance(content, Tensor):
        raise UserError(f"{path}: contains a {type(content).__name__}, expected a tensor; download it again")
    return content


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights in a checkpoint or a bare state dict, by published name; tensors are memory-mapped.

    A LoRA checkpoint, or an adapter file, is merged into its base.

    Raises:
        UserError: the file cannot be loaded, contains no weights, or lacks its base.
    """
    content = read_file(path)
    if lora_record(content, path) is not None:
        return select_weights(content, "raw", path)
    weights = content.get("model", content)
    if not isinstance(weights, dict) or not any(isinstance(value, Tensor) for value in weights.values()):
        raise UserError(f"{path}: no weights; expected name -> tensor, bare or under the key 'model'")
    ignored = [str(name) for name, value in weights.items() if not isinstance(value, Tensor)]
    if ignored:
        amount = counted(len(ignored), "entry", "entries")
        logger.warning("%s: ignored %s that hold no tensor: %s", path, amount, listed(ignored))
    try:
        return published_names({name: value for name, value in weights.items() if isinstance(value, Tensor)})
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def select_weights(
    content: Mapping[str, Any],
    choice: Weights,
    path: Path,
    folders: Sequence[Path] = (),
    strength: float = 1.0,
) -> dict[str, Tensor]:
    """Return all weights of the model in a checkpoint: the trained ones, or their moving average.

    Args:
        folders: where else to look for the base of a LoRA checkpoint, see `find_base`.
        strength: see `merge`.

    Raises:
        UserError: the checkpoint has no averaged weights, they do not fit its model, or its base is missing;
            or it is no LoRA checkpoint, and `strength` is not 1.
    """
    averaged = averaged_weights(content, path) if choice == "averaged" else {}
    record = lora_record(content, path)
    if record is not None:
        base = find_base(record.base, path, folders)
        try:
            return merge(read_weights(base), averaged or content["model"], record, strength)
        except (KeyError, RuntimeError) as error:
            raise UserError(
                f"{path}: its adapters do not fit its base {base} ({_first_line(error)}); use another "
                "checkpoint"
            ) from None
    require_full_strength(path, strength)
    weights = published_names(content["model"])
    for name, average in averaged.items():
        if name not in weights or weights[name].shape[1:] != average.shape[1:]:
            raise UserError(f"{path}: the average of {name} does not fit the model; use --weights raw")
        num_frozen = len(weights[name]) - len(average)
        weights[name] = torch.cat([weights[name][:num_frozen], average]) if num_frozen else average
    return weights


def averaged_weights(content: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """Return the moving average in a checkpoint; a UserError if it has none."""
    averaged = content.get("averaged")
    if not isinstance(averaged, dict):
        raise UserError(
            f"{path}: no averaged weights, the run was trained without --ema-decay; remove --weights averaged"
        )
    weights: dict[str, Tensor] = averaged["weights"]
    return weights


def text_rows(path: Path) -> int:
    """Return the number of rows of a checkpoint's text embedding: its tokenizer's pieces and one more."""
    return table_rows(read_weights(path), str(path))


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, "pt") as file:  # mapped
            names, metadata = file.keys(), file.metadata() or {}
            return content_of({name: file.get_tensor(name) for name in names}, metadata)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; check the path") from None
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        found = describe_wrong_file(path)
        raise UserError(
            f"{path}: not a safetensors file: {found} ({_first_line(error)}); download it again"
        ) from None


def table_rows(weights: Mapping[str, Tensor], source: str) -> int:
    """Return the number of rows of the text tables in `weights`; it must be the same in all of them."""
    for name in TEXT_TABLES:
        if name not in weights:
            raise UserError(f"{source}: no tensor {name}; is this an IndexTTS2 gpt.pth?")
    rows = {name: weights[name].shape[0] for name in TEXT_TABLES}
    if len(set(rows.values())) != 1:
        raise UserError(f"{source}: the text tables have unequal numbers of rows: {rows}; use another file")
    return weights[TEXT_TABLES[0]].shape[0]


def move_text_rows(
    weights: Mapping[str, Tensor],
    row_of: tuple[int, ...],
    *,
    pieces: Sequence[str],
    base_size: int,
    seed: int,
    part: int,
) -> dict[str, Tensor]:
    """Return `weights` with text tables whose row i is the old row `row_of[i]`, or fresh if that is negative.

    A fresh row is the mean of the base's rows, the first `base_size`, plus noise of N(0, 0.02), the standard
    deviation of the model's initialisation. Its logit starts at the average of the other logits, so that
    fresh pieces do not outweigh the learned ones at the start (Hewitt 2021, "Initializing New Word Embeddings
    for Pretrained Language Models"). A fresh bias is the mean alone. benchmarks/results/new_rows.md
    compares this rule with two others.

    Args:
        pieces: of the new tables; there is one row more.
        seed, part: of the run. The noise of a row is a function of these and of its piece, not of its place:
            rows that are new in a later part do not start like those of an earlier one.
    """
    rows = torch.tensor(row_of)
    is_fresh = rows < 0
    fresh_pieces = [pieces[index] for index in is_fresh.nonzero().flatten().tolist()]
    moved = dict(weights)
    for name in TEXT_TABLES:
        old = weights[name]
        table = old[rows.clamp(min=0)].clone()  # (rows, D) or (rows,)
        fresh = old[:base_size].float().mean(dim=0).expand(len(fresh_pieces), *old.shape[1:])
        if old.dim() == 2 and fresh_pieces:
            noise = [_noise(f"{seed} {part} {name} {piece}", old.shape[1]) for piece in fresh_pieces]
            fresh = fresh + 0.02 * torch.stack(noise)
        table[is_fresh] = fresh.to(old.dtype)
        moved[name] = table
    return moved


def _noise(identity: str, size: int) -> Tensor:
    """Return normal noise that is a function of a text; torch's own generator has a seed of only 32 bits."""
    seed = int.from_bytes(hashlib.sha256(identity.encode()).digest())
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(size, dtype=np.float32))


def write_checkpoint(run_dir: Path, content: Mapping[str, Any], meta: CheckpointMeta) -> Path:
    """Write and commit `model_step{N}.pth` with its meta file; link it as latest.pth, and as each best it is.

    Args:
        meta: without size and digest; this function computes both.

    Raises:
        OSError: the disk is full, or the folder cannot be written; existing files are unchanged.
    """
    run_dir.mkdir(parents=True, exist_ok=True)  # the folder may have been moved away
    path = checkpoint_path(run_dir, meta.step)
    aside = run_dir / f".tmp-{path.name}"
    try:
        num_bytes, digest = write_and_sync(aside, content)
        commit(aside, meta.model_copy(update={"num_bytes": num_bytes, "digest": digest}))
        publish(path, run_dir / "latest.pth")
        for link, field in BEST.items():
            if getattr(meta, field):
                publish(path, run_dir / link)
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    return path


def write_and_sync(path: Path, content: Mapping[str, Any]) -> tuple[int, str]:
    """Write a dict of tensors with torch.save and sync it; return the file's size and digest.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    with path.open("wb") as file:
        hashing = _HashingFile(file)
        try:
            torch.save(dict(content), cast(BinaryIO, hashing))
        except RuntimeError as error:  # torch wraps the OSError
            if hashing.error is None:
                raise
            raise hashing.error from error
    sync(path)
    return hashing.digest.num_bytes, hashing.digest.hexdigest()


def _read(path: Path) -> object:
    if not path.is_file():
        raise UserError(f"{path}: no such file; check the path")
    is_old = _is_of_old_format(path)
    if not is_old:
        _refuse_other_archives(path)
    try:
        with torch.serialization.safe_globals(NUMPY_STATE):
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=not is_old)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL (\S+)", str(error))
        raise UserError(
            f"{path}: refused: the file contains {found[1] if found else 'an object'}, which could run code; "
            "use a plain state dict from a source that you trust"
        ) from None
    except LOAD_ERRORS as error:
        raise UserError(
            f"{path}: not a checkpoint that torch.load can read ({_first_line(error)}); use another file"
        ) from None
    for tensor in _tensors_in(content, path):
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise UserError(
                f"{path}: refused: a tensor of shape {tuple(tensor.shape)} is larger than its data; use "
                "another file"
            )
    return cast(object, content)


def _is_of_old_format(path: Path) -> bool:
    """Return whether torch.save of PyTorch before 1.6 wrote the file: pickles instead of a zip archive."""
    with path.open("rb") as file:
        return file.read(len(OLD_MAGIC)) == OLD_MAGIC


def _refuse_other_archives(path: Path) -> None:
    """Raise a UserError unless the file has the form of torch.save: an uncompressed zip of data."""
    try:
        with zipfile.ZipFile(path) as archive:
            is_plain = all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())
            is_program = any(Path(name).name == "constants.pkl" for name in archive.namelist())
    # zipfile raises NotImplementedError for an archive of a newer zip version
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError):
        found = describe_wrong_file(path)
        raise UserError(f"{path}: not a checkpoint of torch.save: {found}; download it again") from None
    if is_program:  # torch.load would pass it to torch.jit
        raise UserError(
            f"{path}: refused: a TorchScript program, not a checkpoint of torch.save; use a state dict"
        )
    if not is_plain:
        raise UserError(
            f"{path}: refused: a compressed archive, which torch.save never writes; use another file"
        )


def _tensors_in(content: object, path: Path) -> Iterator[Tensor]:
    """Yield the tensors of a checkpoint.

    A pickle of 2 kB whose lists share lists has 2^40 paths, and one that contains itself is endless, so each
    path counts; and whoever walks the content later may do so by recursion.
    """
    pending, num_visited = [(content, 1)], 0
    while pending:
        value, depth = pending.pop()
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (dict, list, tuple)):
            num_visited += 1
            if depth > MAX_DEPTH or num_visited > MAX_CONTAINERS:
                raise UserError(
                    f"{path}: refused: nested deeper than {MAX_DEPTH} levels, or more than "
                    f"{MAX_CONTAINERS:,} lists and dicts; no trainer writes that, use another file"
                )
            items = value.values() if isinstance(value, dict) else value
            pending += [(item, depth + 1) for item in items]


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class _HashingFile(io.RawIOBase):
    """A file that computes its digest during the write."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.digest = DigestWriter()
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            self.file.write(data)
        except OSError as error:
            self.error = self.error or error
            raise
        self.digest.write(data)
        return len(data)

    def flush(self) -> None:
        if self.file.closed:  # the interpreter flushes once more when it drops the object
            return
        try:
            self.file.flush()
        except OSError as error:
            self.error = self.error or error
            raise


# --- diagnosis of a file that is not what its name says: a web page saved as gpt.pth, a truncated download

NUM_BYTES_READ = 512
OLD_MAGIC = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)  # the first value in files of PyTorch before 1.6
LFS_POINTER = b"version https://git-lfs"
ZIP = b"PK\x03\x04"
WEB_PAGE = (b"<!doctype html", b"<html", b"<?xml")


def describe_wrong_file(path: Path) -> str:
    """Describe a file that should hold weights but does not, as a clause for an error message.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        start = file.read(NUM_BYTES_READ)
    if not start:
        return "it is empty"
    if start.startswith(LFS_POINTER):
        return "it is a git-LFS pointer instead of the real file"
    if start.lstrip().lower().startswith(WEB_PAGE):
        return "it is a web page"
    if start.startswith(ZIP):
        return "it is truncated"
    text = start.decode("utf-8", errors="replace")
    if len(start) > 20 and all(char.isprintable() or char.isspace() for char in text):
        return f"it is a text file that starts with {text.split(chr(10))[0][:40]!r}"
    return "it has another format or is truncated"
