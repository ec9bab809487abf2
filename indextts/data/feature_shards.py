"""Shards: arrays of many clips in few files, indexed by key. No torch here.

Axes: n clips of a shard, r rows of a clip (one per code, or a single one).

    FOLDER/
      shard_00000/       committed: written as shard_00000.part, synced, renamed, then immutable
        index.npy        (n,) of `INDEX`: the clips' keys and numbers of rows, in the order of the rows
        NAME.npy         (sum of r, ...), the rows of all clips, for each array
        digests.json     sha256 of index.npy and of each NAME.npy

A key is a sha256, usually that of the recording's bytes. `feature_store.py` defines the arrays.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from indextts.errors import UserError
from indextts.system.digest import file_sha256
from indextts.system.yaml_files import read_section

INDEX = np.dtype([("key", "V32"), ("num_rows", "<u4")])
SORTABLE_KEY = "S32"  # numpy cannot sort or search V32; a comparison of two S32 is exact for keys of 32 bytes

REBUILD_ADVICE = "delete the folder and preprocess again"


@dataclass(frozen=True)
class ArrayFormat:
    """Format of an array of a shard."""

    dtype: str  # numpy's name of the type
    row_shape: tuple[int, ...] = ()
    is_verified: bool = False  # whether the first use verifies the digest, not only `corrupt_files`

    @property
    def row_bytes(self) -> int:
        return math.prod(self.row_shape) * np.dtype(self.dtype).itemsize


@dataclass
class Shards:
    """Committed shards of a folder, open for reading; they can be pickled for worker processes.

    Keys are in sorted arrays: 200,000 keys take 12 MB, a dict of strings would take ten times as much.
    """

    folder: Path
    formats: Mapping[str, ArrayFormat]
    names: list[str]  # of the shards
    _totals: NDArray[np.int64] = field(repr=False)  # rows of each shard
    _keys: NDArray[np.bytes_] = field(repr=False)  # sorted, as are the next three
    _shard: NDArray[np.int32] = field(repr=False)
    _starts: NDArray[np.int64] = field(repr=False)
    _num_rows: NDArray[np.int64] = field(repr=False)
    _offsets: dict[tuple[int, str], int] = field(default_factory=dict, repr=False)  # of the files in use

    @classmethod
    def open(cls, folder: Path, formats: Mapping[str, ArrayFormat]) -> Self:
        """Open the committed shards, array files at their first use; a UserError if an index is corrupt."""
        names = [path.name for path in shard_folders(folder)]
        parts = [_read_index(folder / name / "index.npy") for name in names]
        index = np.concatenate(parts) if parts else np.zeros(0, INDEX)
        sizes = [len(part) for part in parts]
        num_rows = index["num_rows"].astype(np.int64)
        totals = np.array([part["num_rows"].sum(dtype=np.int64) for part in parts], np.int64)
        before = np.cumsum(totals) - totals  # rows in the shards before
        starts = np.cumsum(num_rows) - num_rows - np.repeat(before, sizes)
        shard = np.repeat(np.arange(len(parts), dtype=np.int32), sizes)
        keys = np.ascontiguousarray(index["key"]).view(SORTABLE_KEY)
        order = np.argsort(keys, kind="stable")
        return cls(folder, formats, names, totals, keys[order], shard[order], starts[order], num_rows[order])

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: str) -> bool:
        return self._position(key) is not None

    @property
    def keys(self) -> list[str]:
        """Return all keys, in the order of writing."""
        return [self._key(position) for position in np.lexsort((self._starts, self._shard)).tolist()]

    def num_rows(self, key: str) -> int:
        return int(self._num_rows[self._find(key)])

    def read(self, name: str, key: str) -> NDArray[Any]:
        """Return a copy of a clip's rows of the array `name`: (r, ...)."""
        position = self._find(key)
        start = int(self._starts[position])
        return self._read(int(self._shard[position]), name, start, start + int(self._num_rows[position]))

    def first_rows(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the first row of every clip in the array `name`; reads each file once."""
        rows = [self._read(shard, name, 0, total) for shard, total in enumerate(self._totals.tolist())]
        starts = (np.cumsum(self._totals) - self._totals)[self._shard] + self._starts
        return {
            self._key(place): row for place, row in enumerate(np.concatenate(rows)[starts] if rows else ())
        }

    def keys_reaching(self, name: str, value: int) -> set[str]:
        """Return the clips with a row of at least `value` in the array `name`, whose rows are scalars.

        The method reads every file sequentially: 200,000 clips in random order would take ten times as long.
        It skips corrupt files; reading their rows with `read` raises an error.
        """
        found = set()
        for shard, total in enumerate(self._totals.tolist()):
            try:
                rows = self._read(shard, name, 0, total)
            except (UserError, OSError, ValueError):
                continue
            if not len(rows) or rows.max() < value:
                continue
            for position in np.flatnonzero(self._shard == shard).tolist():
                start = int(self._starts[position])
                if (rows[start : start + int(self._num_rows[position])] >= value).any():
                    found.add(self._key(int(position)))
        return found

    def corrupt_files(self) -> Iterator[Path]:
        """Yield the files whose bytes differ from those that were written; reads all files."""
        for name in self.names:
            try:
                digests = _digests(self.folder / name)
            except UserError:
                yield self.folder / name / "digests.json"
                continue
            for stem in ("index", *self.formats):
                path = self.folder / name / f"{stem}.npy"
                if not path.is_file() or file_sha256(path) != digests.get(stem):
                    yield path

    def count_rows(self, keys: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the number of rows of clips by keys (n, 32), -1 for those that are absent: (n,)."""
        wanted = np.ascontiguousarray(keys).view(SORTABLE_KEY).reshape(-1)
        if not len(self):
            return np.full(len(wanted), -1, np.int64)
        positions = np.minimum(np.searchsorted(self._keys, wanted), len(self) - 1)
        return np.where(self._keys[positions] == wanted, self._num_rows[positions], -1)

    def _find(self, key: str) -> int:
        position = self._position(key)
        if position is None:
            raise UserError(
                f"{self.folder}: contains no features of the recording {key[:16]}...; preprocess its "
                "manifest again"
            )
        return position

    def _position(self, key: str) -> int | None:
        [wanted] = np.frombuffer(bytes.fromhex(key), SORTABLE_KEY)
        position = int(np.searchsorted(self._keys, wanted))
        return position if position < len(self) and self._keys[position] == wanted else None

    def _key(self, position: int) -> str:
        return self._keys[position : position + 1].tobytes().hex()  # an element alone loses trailing zeros

    def _read(self, shard: int, name: str, start: int, stop: int) -> NDArray[Any]:
        """Return a copy of rows of an array, after checking the file's shape, type and size on the first use.

        No memory map stays open: each of numpy's keeps a file descriptor, and 1,024 is a common limit.
        """
        folder, array = self.folder / self.names[shard], self.formats[name]
        path = folder / f"{name}.npy"
        if (shard, name) not in self._offsets:
            self._offsets[shard, name] = _checked_offset(path, array, int(self._totals[shard]))
            if array.is_verified:
                digests = _digests(folder)
                for file in (folder / "index.npy", path):
                    if file_sha256(file) != digests.get(file.stem):
                        raise UserError(f"{file}: the file is corrupt (wrong digest); {REBUILD_ADVICE}")
        offset = self._offsets[shard, name] + start * array.row_bytes
        count = (stop - start) * math.prod(array.row_shape)
        values: NDArray[Any] = np.fromfile(path, array.dtype, count=count, offset=offset)
        return values.reshape(stop - start, *array.row_shape)


def _checked_offset(path: Path, array: ArrayFormat, num_rows: int) -> int:
    """Return the place of the first row in an array file, in bytes."""
    found: Any = _load(path, mmap_mode="r")
    shape = (num_rows, *array.row_shape)
    if found.shape != shape or found.dtype != array.dtype:
        has = f"{found.dtype} {found.shape}, expected {np.dtype(array.dtype)} {shape}"
        raise UserError(f"{path}: the file is corrupt ({has}); {REBUILD_ADVICE}")
    if found.offset + found.nbytes != path.stat().st_size:
        raise UserError(f"{path}: the file is corrupt (its size does not match its header); {REBUILD_ADVICE}")
    offset: int = found.offset
    return offset


def shard_folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("shard_*") if path.name[6:].isdecimal())


def _read_index(path: Path) -> NDArray[np.void]:
    index = _load(path)
    if index.dtype != INDEX or index.ndim != 1:
        found = f"{index.dtype} {index.shape}, expected {INDEX} (n,)"
        raise UserError(f"{path}: the file is corrupt ({found}); {REBUILD_ADVICE}")
    return index


def _load(path: Path, mmap_mode: Literal["r"] | None = None) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, mmap_mode, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: cannot be read ({reason}); {REBUILD_ADVICE}") from None
    return array


def _digests(folder: Path) -> dict[str, Any]:
    return read_section(dict[str, Any], folder / "digests.json", REBUILD_ADVICE)
