"""Writing a feature store: shards are written aside, synced and renamed.

Axes as in `feature_store.py`, which also draws the format.

A kill loses the shard in progress and nothing else; the next writer sweeps what it left.
"""

import contextlib
import fcntl
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indextts.data.feature_store import (
    FORMAT_VERSION,
    FeatureStore,
    StoreInfo,
    file_sha256,
    read_info,
    shard_folders,
)
from indextts.errors import FOLDER_IN_USE, UserError
from indextts.run_dir import sync_file, write_json

MAX_CODE = 2**16 - 1
CLIPS_PER_SHARD = 128  # 21 MB at the published size; a kill loses less than this many clips


@dataclass(frozen=True)
class EncodedUtterance:
    """One utterance as it goes into a store.

    Args:
        audio_sha256: of the file's bytes.
        codes: (T,), the true length: never padded.
        condition: (K, D), float32.
        emo_vec: (D,), float32.
    """

    id: str
    audio_sha256: str
    codes: NDArray[np.int64]
    condition: NDArray[np.float32]
    emo_vec: NDArray[np.float32]


class FeatureStoreWriter:
    """Appends shards to a store; `add` utterances, then `flush`. Use it inside `locked(folder)`."""

    def __init__(self, folder: Path, info: StoreInfo, clips_per_shard: int = CLIPS_PER_SHARD) -> None:
        """Make the store, or take up one of the same identity.

        Raises:
            UserError: the folder holds a store that was made with something else.
        """
        self.folder = folder
        self.info = info
        self.clips_per_shard = clips_per_shard
        self._pending: list[EncodedUtterance] = []
        if (folder / "store.json").exists():
            _require_same(folder, read_info(folder), info)
        else:
            write_json(folder / "store.json", {"format_version": FORMAT_VERSION, **asdict(info)})
        for leftover in folder.glob("shard_*.part"):
            shutil.rmtree(leftover)
        self._num_shards = 1 + max((int(path.name[6:]) for path in shard_folders(folder)), default=-1)
        self._ids = set(FeatureStore.open(folder).ids)

    def __contains__(self, id: str) -> bool:
        return id in self._ids

    def add(self, utterance: EncodedUtterance) -> None:
        """Take an utterance; it is committed with its shard."""
        if utterance.id in self._ids:
            raise ValueError(f"{utterance.id!r} is in the store already")
        if len(utterance.codes) == 0 or not 0 <= utterance.codes.min() <= utterance.codes.max() <= MAX_CODE:
            raise ValueError(f"{utterance.id!r} has no codes, or codes outside 0 to {MAX_CODE}")
        self._ids.add(utterance.id)
        self._pending.append(utterance)
        if len(self._pending) >= self.clips_per_shard:
            self.flush()

    def flush(self) -> None:
        """Commit what was added since the last shard."""
        if not self._pending:
            return
        target = self.folder / f"shard_{self._num_shards:05d}"
        part = target.with_name(f"{target.name}.part")
        try:
            part.mkdir()
            _write_shard(part, self._pending)
            part.rename(target)
            sync_file(self.folder)
        except OSError as error:
            raise UserError(f"{part}: cannot be written ({error.strerror}), look at the disk") from None
        self._num_shards += 1
        self._pending = []

    def drop_shards_with(self, ids: Iterable[str]) -> None:
        """Remove the committed shards that hold any of `ids`.

        Their other utterances go with them and are to be added again: shards never change.
        """
        unwanted = set(ids)
        for shard in FeatureStore.open(self.folder).shards:
            if unwanted.intersection(shard.ids):
                part = shard.folder.with_name(f"{shard.folder.name}.part")
                shard.folder.rename(part)  # uncommitted in one instant, swept by any writer
                shutil.rmtree(part)
                self._ids.difference_update(shard.ids)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make the folder and hold its lock; the kernel frees it when the process ends, however it ends.

    Raises:
        UserError: with status 5 if another process holds it; or the folder cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror}), choose another folder") from None
    with (folder / ".lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{folder} is being written by another preprocessing, wait for it or stop it", FOLDER_IN_USE
            ) from None
        yield


def _write_shard(folder: Path, utterances: list[EncodedUtterance]) -> None:
    arrays: dict[str, NDArray[Any]] = {
        "codes": np.concatenate([utterance.codes for utterance in utterances]).astype(np.uint16),
        "condition": np.stack([utterance.condition for utterance in utterances]).astype(np.float32),
        "emo_vec": np.stack([utterance.emo_vec for utterance in utterances]).astype(np.float32),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
        sync_file(folder / f"{name}.npy")
    index = {
        "ids": [utterance.id for utterance in utterances],
        "num_codes": [len(utterance.codes) for utterance in utterances],
        "audio_sha256": [utterance.audio_sha256 for utterance in utterances],
        "digests": {name: file_sha256(folder / f"{name}.npy") for name in arrays},
    }
    write_json(folder / "index.json", index)
    sync_file(folder)


def _require_same(folder: Path, stored: StoreInfo, wanted: StoreInfo) -> None:
    """Refuse to mix features that were made with different things."""
    for name, what in (
        ("backend", "another speech backend"),
        ("backend_identity", "another codebook or speech encoder"),
        ("encoders_identity", "another base checkpoint or config"),
        ("model_dim", "another model_dim"),
        ("num_latents", "another num_latents"),
    ):
        if getattr(stored, name) != getattr(wanted, name):
            raise UserError(
                f"{folder}: its features were made with {what}, choose another --output-dir "
                "or delete this folder"
            )
