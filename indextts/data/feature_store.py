"""THE FEATURE STORE: what preprocessing keeps of each recording, packed. No torch here.

Axes: K latents, D model width, T codes of a recording.

    FOLDER/                       usually features/ beside train_manifest.jsonl
      IDENTITY.json               a StoreInfo and format_version; what manifests name
      codes/IDENTITY/             shards (feature_shards.py) of one speech encoder and codec
        shard_00000/ codes.npy    uint16 (sum of T,), the recordings' codes one after the other
      conditioning/IDENTITY/      shards of one speech encoder, one base checkpoint, one type of latents
        shard_00000/ condition.npy   float16, float32, or uint16 that holds bfloat16: (n, K, D)
                     emo_vec.npy     float32 (n, D)
      .lock                       held by the preprocessing that writes here
      recordings.jsonl            digests of the recordings (recording_keys.py)
      builtin.npz                 the speech backend's own file, if it has one (indextts/features/builtin.py)

IDENTITY are the first 16 digits of a sha256 over what the features were made with, so features of another
base checkpoint lie beside the old ones, and what they have in common is there once. In the shards a recording
is found by its key, the sha256 of its bytes: ids, texts, speakers and splits are the manifests' alone.

`feature_store_writer.py` writes it; a kill loses the shard in progress and nothing else.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from indextts.data.feature_shards import ANEW, ArrayFormat, Shards, read_json
from indextts.errors import UserError

FORMAT_VERSION = 2
DIGITS_IN_NAMES = 16
IMPORTED = "imported"  # a backend's name: features that another program made
LATENTS = {"float16": "<f2", "bfloat16": "<u2", "float32": "<f4"}  # how condition.npy holds them


@dataclass(frozen=True)
class StoreInfo:
    """What features were made with.

    Args:
        backend: name of the speech backend.
        backend_identity: sha256 over all that its features and codes depend on.
        encoders_identity: sha256 over the weights and sizes of the GPT's conditioning encoders.
        model_dim, num_latents: D and K.
        latents: what the conditioning latents are stored as, one of `LATENTS`.
    """

    backend: str
    backend_identity: str
    encoders_identity: str
    model_dim: int
    num_latents: int
    latents: str = "float32"

    @property
    def identity(self) -> str:
        """Return the sha256, in hex, of all of it: equal identities, interchangeable features."""
        return _digest(asdict(self))

    @property
    def is_imported(self) -> bool:
        """Tell whether another program made the features, so that nobody knows which weights did."""
        return self.backend == IMPORTED

    @property
    def codes_folder(self) -> str:
        """Return where the shards with codes lie in the store; another base checkpoint has the same."""
        what = {"backend": self.backend, "backend_identity": self.backend_identity}
        return f"codes/{_digest(what)[:DIGITS_IN_NAMES]}"

    @property
    def conditioning_folder(self) -> str:
        """Return where the shards with conditioning latents and emotion vectors lie in the store."""
        return f"conditioning/{self.identity[:DIGITS_IN_NAMES]}"

    @property
    def codes_formats(self) -> dict[str, ArrayFormat]:
        # Small, and silently trained on: worth its digest at first use. check_amharic_data.py compares all.
        return {"codes": ArrayFormat("<u2", is_verified=True)}

    @property
    def conditioning_formats(self) -> dict[str, ArrayFormat]:
        return {
            "condition": ArrayFormat(LATENTS[self.latents], (self.num_latents, self.model_dim)),
            "emo_vec": ArrayFormat("<f4", (self.model_dim,)),
        }


@dataclass
class FeatureStore:
    """The features of one StoreInfo, open for reading; may be pickled and used in worker processes.

    Args:
        path: the file that was opened.
    """

    path: Path
    info: StoreInfo
    _codes: Shards
    _conditioning: Shards

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open what is committed; array files are looked at when they are first used.

        Args:
            path: what manifests name, FOLDER/IDENTITY.json.

        Raises:
            UserError: there is no store, or it is damaged.
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

    def codes(self, key: str) -> NDArray[np.int64]:
        """Return a copy of a recording's codes: (T,)."""
        return self._codes.read("codes", key).astype(np.int64)

    def with_codes_from(self, code: int) -> set[str]:
        """Return the recordings that have this code or a higher one; reads the codes of all of them."""
        return self._codes.keys_reaching("codes", code)

    def condition(self, key: str) -> NDArray[np.float32]:
        """Return a copy of a recording's conditioning latents: (K, D)."""
        return unpacked(self._conditioning.read("condition", key)[0], self.info.latents)

    def emo_vec(self, key: str) -> NDArray[np.float32]:
        """Return a copy of a recording's emotion vector: (D,)."""
        emo_vec: NDArray[np.float32] = self._conditioning.read("emo_vec", key)[0]
        return emo_vec

    def damaged_files(self) -> Iterator[Path]:
        """Yield the files whose bytes are not those that were written; reads the whole store."""
        yield from self._codes.damaged_files()
        yield from self._conditioning.damaged_files()


def store_path(folder: Path, info: StoreInfo) -> Path:
    """Return the file in the store `folder` that stands for the features of `info`."""
    return folder / f"{info.identity[:DIGITS_IN_NAMES]}.json"


def read_info(path: Path) -> StoreInfo:
    if path.is_dir():
        raise UserError(f"{path}: is of a format that is no longer read, preprocess the manifest again")
    if not path.exists():
        raise UserError(f"{path}: there is no such feature store, preprocess the manifest first")
    content = read_json(path)
    if content.pop("format_version", None) != FORMAT_VERSION:
        raise UserError(f"{path}: is of another format than {FORMAT_VERSION}, {ANEW}")
    try:
        info = StoreInfo(**content)
    except TypeError as error:
        raise UserError(f"{path}: is damaged ({error}), {ANEW}") from None
    if path.name != store_path(path.parent, info).name:
        raise UserError(f"{path}: is damaged (its name is not that of its content), {ANEW}")
    return info


def packed(condition: NDArray[np.float32], latents: str) -> NDArray[Any]:
    """Return latents as `condition.npy` holds them, rounded to nearest; `float16` ends at 65,504."""
    if latents != "bfloat16":
        with np.errstate(over="ignore"):
            return condition.astype(LATENTS[latents])
    bits = np.ascontiguousarray(condition, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16  # of equals the even one
    return np.where(np.isnan(condition), 0x7FC0, rounded).astype("<u2")


def unpacked(condition: NDArray[Any], latents: str) -> NDArray[np.float32]:
    """Return latents that `packed` rounded."""
    if latents == "bfloat16":
        return (condition.astype(np.uint32) << 16).view(np.float32)
    return condition.astype(np.float32, copy=False)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
