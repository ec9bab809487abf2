"""THE FEATURE STORE: what preprocessing keeps of each utterance, packed. No torch here.

Axes: n utterances of a shard, K latents, D model width, T codes of an utterance.

    FOLDER/                    usually features/ beside train_manifest.jsonl
      store.json               StoreInfo and format_version; written first
      shard_00000/             committed: written as shard_00000.part, synced, renamed; never changed after
        codes.npy              uint16 (sum of T,), the utterances' codes one after the other
        condition.npy          float32 (n, K, D)
        emo_vec.npy            float32 (n, D)
        index.json             ids, num_codes (n true lengths), audio_sha256 (n), digests of the arrays
      .lock                    held by the preprocessing that writes here
      builtin.npz              the speech backend's own file, if it has one (indextts/features/builtin.py)

`feature_store_writer.py` writes it; a kill loses the shard in progress and nothing else.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from indextts.errors import UserError

FORMAT_VERSION = 1
ARRAYS = ("codes", "condition", "emo_vec")

_ANEW = "delete the folder and preprocess again"


@dataclass(frozen=True)
class StoreInfo:
    """What the features of a store were made with.

    Args:
        backend: name of the speech backend.
        backend_identity: sha256 over all that its features and codes depend on.
        encoders_identity: sha256 over the weights and sizes of the GPT's conditioning encoders.
        model_dim, num_latents: D and K.
    """

    backend: str
    backend_identity: str
    encoders_identity: str
    model_dim: int
    num_latents: int

    @property
    def identity(self) -> str:
        """Return the sha256, in hex, of all of it: equal identities, interchangeable features."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass
class _Shard:
    """A committed shard; its array files are looked at when they are first asked for."""

    folder: Path
    info: StoreInfo
    ids: list[str]
    num_codes: list[int]
    audio_sha256: list[str]
    digests: dict[str, str]

    @classmethod
    def open(cls, folder: Path, info: StoreInfo) -> Self:
        index = folder / "index.json"
        content = _read_json(index)
        try:
            shard = cls(folder, info, **content)
        except TypeError as error:
            raise UserError(f"{index}: is damaged ({error}), {_ANEW}") from None
        if not len(shard.ids) == len(shard.num_codes) == len(shard.audio_sha256):
            raise UserError(f"{index}: is damaged (lists of different lengths), {_ANEW}")
        return shard

    @cached_property
    def code_offsets(self) -> NDArray[np.int64]:
        """Return where each utterance's codes begin, and the end: (n + 1,)."""
        return np.concatenate([[0], np.cumsum(self.num_codes)])

    @cached_property
    def codes(self) -> "_Rows":
        codes = _Rows.open(self.folder / "codes.npy", np.uint16, (sum(self.num_codes),))
        # Small, and silently trained on: worth its digest at first use. check_amharic_data.py compares all.
        if file_sha256(codes.path) != self.digests.get("codes"):
            raise UserError(f"{codes.path}: is damaged (another digest), {_ANEW}")
        return codes

    @cached_property
    def condition(self) -> "_Rows":
        shape = (len(self.ids), self.info.num_latents, self.info.model_dim)
        return _Rows.open(self.folder / "condition.npy", np.float32, shape)

    @cached_property
    def emo_vec(self) -> "_Rows":
        return _Rows.open(self.folder / "emo_vec.npy", np.float32, (len(self.ids), self.info.model_dim))


@dataclass(frozen=True)
class _Rows:
    """An array file whose rows are read where they lie; the system's page cache keeps what is used.

    No map stays open: numpy's keep a file descriptor each, and 1,024 is a usual limit.
    """

    path: Path
    dtype: type
    row_shape: tuple[int, ...]
    offset: int  # of the first row, in bytes

    @classmethod
    def open(cls, path: Path, dtype: type, shape: tuple[int, ...]) -> Self:
        """Check that the file is what `shape` and `dtype` say, and as long as its header says."""
        try:
            array: np.memmap[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{path}: cannot be read ({reason}), {_ANEW}") from None
        if array.shape != shape or array.dtype != dtype:
            found = f"{array.dtype} {array.shape}, not {np.dtype(dtype)} {shape}"
            raise UserError(f"{path}: is damaged ({found}), {_ANEW}")
        if array.offset + array.nbytes != path.stat().st_size:
            raise UserError(f"{path}: is damaged (its size is not what its header says), {_ANEW}")
        return cls(path, dtype, shape[1:], array.offset)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return a copy of the rows from `start` to `stop`."""
        row_size = math.prod(self.row_shape)
        row_bytes = row_size * np.dtype(self.dtype).itemsize
        values: NDArray[Any] = np.fromfile(
            self.path, self.dtype, count=(stop - start) * row_size, offset=self.offset + start * row_bytes
        )
        return values.reshape(stop - start, *self.row_shape)


@dataclass
class FeatureStore:
    """A store, open for reading; may be pickled and used in worker processes."""

    folder: Path
    info: StoreInfo
    shards: list[_Shard]
    _place_of: dict[str, tuple[int, int]] = field(repr=False)  # id -> shard, row

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the committed shards of a store; array files are looked at when they are first used.

        Raises:
            UserError: there is no store, it is damaged, or two shards hold the same id.
        """
        info = read_info(folder)
        shards = [_Shard.open(path, info) for path in shard_folders(folder)]
        place_of: dict[str, tuple[int, int]] = {}
        for number, shard in enumerate(shards):
            for row, id in enumerate(shard.ids):
                if id in place_of:
                    raise UserError(
                        f"{shard.folder / 'index.json'}: id {id!r} is in the store twice, {_ANEW}"
                    )
                place_of[id] = (number, row)
        return cls(folder, info, shards, place_of)

    @property
    def identity(self) -> str:
        return self.info.identity

    @property
    def ids(self) -> list[str]:
        """Return all ids, in the order of encoding."""
        return list(self._place_of)

    def __contains__(self, id: str) -> bool:
        return id in self._place_of

    def num_codes(self, id: str) -> int:
        shard, row = self._find(id)
        return shard.num_codes[row]

    def audio_sha256(self, id: str) -> str:
        shard, row = self._find(id)
        return shard.audio_sha256[row]

    def codes(self, id: str) -> NDArray[np.int64]:
        """Return a copy of an utterance's codes: (T,)."""
        shard, row = self._find(id)
        codes = shard.codes.read(int(shard.code_offsets[row]), int(shard.code_offsets[row + 1]))
        return codes.astype(np.int64)

    def condition(self, id: str) -> NDArray[np.float32]:
        """Return a copy of an utterance's conditioning latents: (K, D)."""
        shard, row = self._find(id)
        condition: NDArray[np.float32] = shard.condition.read(row, row + 1)[0]
        return condition

    def emo_vec(self, id: str) -> NDArray[np.float32]:
        """Return a copy of an utterance's emotion vector: (D,)."""
        shard, row = self._find(id)
        emo_vec: NDArray[np.float32] = shard.emo_vec.read(row, row + 1)[0]
        return emo_vec

    def damaged_files(self) -> Iterator[Path]:
        """Yield the array files whose bytes are not those that were written; reads the whole store."""
        for shard in self.shards:
            for name in ARRAYS:
                path = shard.folder / f"{name}.npy"
                if not path.is_file() or file_sha256(path) != shard.digests.get(name):
                    yield path

    def _find(self, id: str) -> tuple[_Shard, int]:
        if id not in self._place_of:
            raise UserError(f"{self.folder}: has no features of {id!r}, preprocess its manifest again")
        number, row = self._place_of[id]
        return self.shards[number], row


def shard_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("shard_*") if path.name[6:].isdecimal())


def read_info(folder: Path) -> StoreInfo:
    path = folder / "store.json"
    if not path.exists():
        raise UserError(f"{folder}: is no feature store (no store.json), preprocess the manifest first")
    content = _read_json(path)
    if content.pop("format_version", None) != FORMAT_VERSION:
        raise UserError(f"{path}: is of another format than {FORMAT_VERSION}, {_ANEW}")
    try:
        return StoreInfo(**content)
    except TypeError as error:
        raise UserError(f"{path}: is damaged ({error}), {_ANEW}") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: cannot be read ({reason}), {_ANEW}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: is damaged (no JSON object), {_ANEW}")
    return content


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
