"""Feature store: packed codes, conditioning latents and emotion vectors of recordings. No torch here.

Axes: K latents, D model width, T codes of a recording.

    FOLDER/                       usually features/ beside train_manifest.jsonl
      IDENTITY.json               a StoreInfo and format_version; manifests refer to this file
      codes/IDENTITY/             shards (feature_shards.py) of one speech encoder and codec
        shard_00000/ codes.npy    uint16 (sum of T,), the concatenated codes of the recordings
      conditioning/IDENTITY/      shards of one speech encoder, one base checkpoint, one type of latents
        shard_00000/ condition.npy   float16, float32, or bfloat16 as uint16: (n, K, D)
                     emo_vec.npy     float32 (n, D)
      .lock                       held by the preprocessing that writes to this folder
      builtin.npz                 the file of the builtin speech backend (indextts/features/builtin.py)

IDENTITY is the first 16 digits of a sha256 over everything that the features depend on. Features of another
base checkpoint are therefore stored next to the existing ones and share their codes. The key of a recording
in the shards is the sha256 of its bytes; only manifests have ids, texts, speakers and splits.

`feature_store_writer.py` writes the store; a kill loses only the shards in progress.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from indextts.commands.bases import BASE_2_0
from indextts.data.feature_shards import REBUILD_ADVICE, ArrayFormat, Shards
from indextts.errors import RESUME_REFUSED, UserError
from indextts.runs.restore_facts import Codebook, codebook_identity
from indextts.system.yaml_files import read_section

FORMAT_VERSION = 2
DIGITS_IN_NAMES = 16
IMPORTED = "imported"  # the backend of features from another program
LATENTS = {"float16": "<f2", "bfloat16": "<u2", "float32": "<f4"}  # types in condition.npy


@dataclass(frozen=True)
class StoreInfo:
    """Origin of features."""

    backend: str
    backend_identity: str  # sha256 of everything that its features and codes depend on
    encoders_identity: str  # sha256 of the weights and sizes of the GPT's conditioning encoders
    model_dim: int  # D
    num_latents: int  # K
    latents: str = "float32"  # the type of the stored conditioning latents, a key of `LATENTS`
    base: str = BASE_2_0.name  # name of the published model that the features are for
    condition_dim: int = 0  # width of a condition; 0 for `model_dim`

    @property
    def identity(self) -> str:
        """Return the hex sha256 of all fields; features with equal identities are interchangeable."""
        return _digest(self.content)

    @property
    def content(self) -> dict[str, Any]:
        """Return the fields as stored: without those that only another base than 2.0 needs."""
        usual = {"base": BASE_2_0.name, "condition_dim": 0}
        return {name: value for name, value in asdict(self).items() if usual.get(name) != value}

    @property
    def condition_shape(self) -> tuple[int, int]:
        """Return the shape of a condition."""
        return self.num_latents, self.condition_dim or self.model_dim

    @property
    def is_imported(self) -> bool:
        """Return whether another program produced the features, with unknown weights."""
        return self.backend == IMPORTED

    @property
    def codes_folder(self) -> str:
        """Return the folder of the shards with codes, which does not depend on the base checkpoint."""
        what = {"backend": self.backend, "backend_identity": self.backend_identity}
        return f"codes/{_digest(what)[:DIGITS_IN_NAMES]}"

    @property
    def conditioning_folder(self) -> str:
        """Return the folder of the shards with conditioning latents and emotion vectors."""
        return f"conditioning/{self.identity[:DIGITS_IN_NAMES]}"

    @property
    def codes_formats(self) -> dict[str, ArrayFormat]:
        # The first use verifies codes: they are small, and corrupt codes would go unnoticed in training.
        return {"codes": ArrayFormat("<u2", is_verified=True)}

    @property
    def conditioning_formats(self) -> dict[str, ArrayFormat]:
        return {
            "condition": ArrayFormat(LATENTS[self.latents], self.condition_shape),
            "emo_vec": ArrayFormat("<f4", (self.model_dim,)),
        }


@dataclass
class FeatureStore:
    """Features of a StoreInfo, open for reading; the object can be pickled for worker processes."""

    path: Path
    info: StoreInfo
    _codes: Shards
    _conditioning: Shards

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the committed features; array files are opened and checked when they are first used.

        Args:
            path: FOLDER/IDENTITY.json, the path in manifests.

        Raises:
            UserError: the store is missing or corrupt.
        """
        info, folder = read_info(path), path.parent
        codes = Shards.open(folder / info.codes_folder, info.codes_formats)
        conditioning = Shards.open(folder / info.conditioning_folder, info.conditioning_formats)
        return cls(path, info, codes, conditioning)

    @property
    def keys(self) -> list[str]:
        """Return the recordings with codes and conditioning, in the order of encoding."""
        return [key for key in self._conditioning.keys if key in self._codes]

    def __contains__(self, key: str) -> bool:
        return key in self._codes and key in self._conditioning

    def num_codes(self, key: str) -> int:
        return self._codes.num_rows(key)

    def count_codes(self, keys: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the number of codes of recordings by keys (n, 32), -1 without features: (n,)."""
        is_complete = self._conditioning.count_rows(keys) >= 0
        return np.where(is_complete, self._codes.count_rows(keys), -1)

    def codes(self, key: str) -> NDArray[np.int64]:
        """Return a copy of a recording's codes: (T,)."""
        return self._codes.read("codes", key).astype(np.int64)

    def with_codes_from(self, code: int) -> set[str]:
        """Return the recordings that contain a code of at least `code`; reads all codes."""
        return self._codes.keys_reaching("codes", code)

    def condition(self, key: str) -> NDArray[np.float32]:
        """Return a copy of a recording's conditioning latents: (K, D)."""
        return unpacked(self._conditioning.read("condition", key)[0], self.info.latents)

    def styles(self) -> dict[str, NDArray[np.float32]]:
        """Return the style vectors (W,) at length 1, for a base whose conditions they are, by key."""
        found = self._conditioning.first_rows("condition")
        rows = unpacked(np.array(list(found.values())).reshape(len(found), -1), self.info.latents)
        return dict(zip(found, rows / np.linalg.norm(rows, axis=1, keepdims=True), strict=True))

    def emo_vec(self, key: str) -> NDArray[np.float32]:
        """Return a copy of a recording's emotion vector: (D,)."""
        emo_vec: NDArray[np.float32] = self._conditioning.read("emo_vec", key)[0]
        return emo_vec

    def corrupt_files(self) -> Iterator[Path]:
        """Yield the files whose bytes differ from those that were written; reads the entire store."""
        yield from self._codes.corrupt_files()
        yield from self._conditioning.corrupt_files()


def store_path(folder: Path, info: StoreInfo) -> Path:
    """Return the path of the StoreInfo file of `info` in the store `folder`."""
    return folder / f"{info.identity[:DIGITS_IN_NAMES]}.json"


def read_info(path: Path) -> StoreInfo:
    """Return the content of a StoreInfo file; a UserError if it is missing, corrupt or of another format."""
    if not path.exists():
        raise UserError(f"{path}: the feature store does not exist; preprocess the manifest first")
    content = read_section(dict[str, Any], path, REBUILD_ADVICE)
    version = content.pop("format_version", None)
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path}: unsupported format {version} (this version reads only {FORMAT_VERSION}); "
            f"{REBUILD_ADVICE}"
        )
    try:
        info = StoreInfo(**content)
    except TypeError as error:
        raise UserError(f"{path}: the file is corrupt ({error}); {REBUILD_ADVICE}") from None
    if path.name != store_path(path.parent, info).name:
        raise UserError(
            f"{path}: the file is corrupt (its name does not match its content); {REBUILD_ADVICE}"
        )
    return info


def common_codebook(stores: Mapping[Path, StoreInfo]) -> Codebook | None:
    """Return the codebook of all feature stores; None if another program computed all of them.

    Codes of different codebooks are numbers without a common meaning.

    Raises:
        UserError: with status 3 if the codes of two stores are of different codebooks.
    """
    found: Codebook | None = None
    for path, info in stores.items():
        if info.is_imported:
            continue  # its codec is unknown; the trainer warns
        codebook = Codebook(codebook_identity(info.backend_identity), path)
        if found is not None and codebook.identity != found.identity:
            raise UserError(
                f"{path} and {found.store} have codes of different codebooks ({codebook.identity[:16]} and "
                f"{found.identity[:16]}); preprocess all recordings of a run with the same backend and "
                "codec, and build the pairs again",
                RESUME_REFUSED,
            )
        found = codebook
    return found


def packed(condition: NDArray[np.float32], latents: str) -> NDArray[Any]:
    """Return latents in the type of `condition.npy`, rounded to nearest; above 65,504 float16 overflows."""
    if latents != "bfloat16":
        with np.errstate(over="ignore"):
            return condition.astype(LATENTS[latents])
    bits = np.ascontiguousarray(condition, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # ties to even
    return np.where(np.isnan(condition), 0x7FC0, rounded).astype("<u2")


def unpacked(condition: NDArray[Any], latents: str) -> NDArray[np.float32]:
    """Return latents of `condition.npy` as float32, the inverse of `packed` up to rounding."""
    if latents == "bfloat16":
        return (condition.astype(np.uint32) << 16).view(np.float32)
    return condition.astype(np.float32, copy=False)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
