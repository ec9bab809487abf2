"""Write a feature store; `feature_store.py` defines its format and the axes.

Shards are written under a temporary name, synced and renamed. A kill loses only the shards in progress; the
next writer removes their files.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indextts.data.feature_shards import INDEX, ArrayFormat, Shards, shard_folders
from indextts.data.feature_store import FORMAT_VERSION, StoreInfo, packed, read_info, store_path
from indextts.errors import UserError, disk_errors
from indextts.system.digest import file_sha256
from indextts.system.disk import locked_folder
from indextts.system.files import sync, write_json

MAX_CODE = 2**16 - 1
CLIPS_PER_SHARD = 128  # 11 MB at the published size; a kill loses less than this many clips
KEY_DIGITS = 64


@dataclass(frozen=True)
class EncodedUtterance:
    """Features of an utterance for a store."""

    id: str  # for messages; the store does not contain it
    key: str  # hex sha256 of the recording's bytes
    codes: NDArray[np.int64]  # (T,), never padded
    condition: NDArray[np.float32]  # (K, D), float32
    emo_vec: NDArray[np.float32]  # (D,), float32


class FeatureStoreWriter:
    """Writer that appends to a store at `path`: `add` utterances, then `flush`, inside `locked(folder)`."""

    def __init__(self, folder: Path, info: StoreInfo, clips_per_shard: int = CLIPS_PER_SHARD) -> None:
        """Create the store, or open it; features with another StoreInfo stay. A UserError if that fails."""
        self.info = info
        self.path = store_path(folder, info)
        with disk_errors(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                write_json(self.path, {"format_version": FORMAT_VERSION, **info.content})
        read_info(self.path)
        self._codes = _ShardWriter(folder / info.codes_folder, info.codes_formats, clips_per_shard)
        self._conditioning = _ShardWriter(
            folder / info.conditioning_folder, info.conditioning_formats, clips_per_shard
        )

    def __contains__(self, key: str) -> bool:
        return key in self._codes and key in self._conditioning

    def add(self, utterance: EncodedUtterance) -> None:
        """Add the features of an utterance that the store lacks; they are committed with their shard.

        Raises:
            ValueError: the features are invalid: no codes, codes out of range, or a wrong shape.
            UserError: latents overflow the store's type, or the disk is full.
        """
        if not (len(utterance.key) == KEY_DIGITS and bytes.fromhex(utterance.key)):
            raise ValueError(f"{utterance.id!r}: {utterance.key!r} is not a sha256")
        if utterance.key not in self._codes:
            codes = utterance.codes
            if len(codes) == 0 or not 0 <= codes.min() <= codes.max() <= MAX_CODE:
                raise ValueError(f"{utterance.id!r}: there are no codes, or codes outside 0 to {MAX_CODE}")
            self._codes.add(utterance.key, {"codes": codes.astype("<u2")})
        if utterance.key not in self._conditioning:
            self._conditioning.add(utterance.key, self._checked_conditioning(utterance))

    def flush(self) -> None:
        """Commit the features added since the last shards."""
        self._codes.flush()
        self._conditioning.flush()

    def _checked_conditioning(self, utterance: EncodedUtterance) -> dict[str, NDArray[Any]]:
        condition, emo_vec = utterance.condition, utterance.emo_vec
        shape = self.info.condition_shape
        if (condition.shape, emo_vec.shape) != (shape, (self.info.model_dim,)):
            raise ValueError(f"{utterance.id!r}: the conditioning must have the shape {shape}")
        stored = packed(condition, self.info.latents)
        if self.info.latents == "float16" and np.isinf(stored).any() and not np.isinf(condition).any():
            raise UserError(
                f"utterance {utterance.id!r}: conditioning latents up to {np.abs(condition).max():.3g} "
                "overflow float16; use --latents bfloat16"
            )
        return {"condition": stored[None], "emo_vec": emo_vec[None].astype("<f4")}


class _ShardWriter:
    """Writer that appends shards to a folder: clips with their key and the rows of each array."""

    def __init__(self, folder: Path, formats: Mapping[str, ArrayFormat], clips_per_shard: int) -> None:
        self.folder = folder
        self.formats = formats
        self.clips_per_shard = clips_per_shard
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            sync(folder.parent)
            sync(folder.parent.parent)
            for leftover in folder.glob("shard_*.part"):
                shutil.rmtree(leftover)
        self._committed = Shards.open(folder, formats)
        self._num_shards = 1 + max((int(path.name[6:]) for path in shard_folders(folder)), default=-1)
        self._added: set[str] = set()
        self._pending: list[tuple[str, dict[str, NDArray[Any]]]] = []

    def __contains__(self, key: str) -> bool:
        return key in self._added or key in self._committed

    def add(self, key: str, rows: dict[str, NDArray[Any]]) -> None:
        self._added.add(key)
        self._pending.append((key, rows))
        if len(self._pending) >= self.clips_per_shard:
            self.flush()

    def flush(self) -> None:
        if not self._pending:
            return
        target = self.folder / f"shard_{self._num_shards:05d}"
        part = target.with_name(f"{target.name}.part")
        try:
            with disk_errors(part):
                part.mkdir()
                self._write(part)
                part.rename(target)
                sync(self.folder)
        except UserError:
            shutil.rmtree(part, ignore_errors=True)  # to free the disk
            raise
        self._num_shards += 1
        self._pending = []

    def _write(self, folder: Path) -> None:
        arrays: dict[str, NDArray[Any]] = {
            name: np.concatenate([rows[name] for _, rows in self._pending]) for name in self.formats
        }
        index = np.zeros(len(self._pending), INDEX)
        first = next(iter(self.formats))
        for number, (key, rows) in enumerate(self._pending):
            index[number] = (bytes.fromhex(key), len(rows[first]))
        for name, array in {"index": index, **arrays}.items():
            _save(folder / f"{name}.npy", array)
        digests = {name: file_sha256(folder / f"{name}.npy") for name in ("index", *arrays)}
        write_json(folder / "digests.json", digests)
        sync(folder)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Create the folder and hold its lock; a UserError if that fails or another process has it (status 5)."""
    in_use = f"{folder}: another preprocessing run writes to this folder; wait for it or stop it"
    with locked_folder(folder / ".lock", in_use=in_use):
        yield


def _save(path: Path, array: NDArray[Any]) -> None:
    """Write the format of np.save, whose errors do not have the errno of a full disk."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.tobytes())
        file.flush()
        os.fsync(file.fileno())
