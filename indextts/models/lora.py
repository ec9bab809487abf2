"""LoRA checkpoints: the search for their base, and the merge of both into a complete model.

A LoRA run trains adapters beside the matrices of the blocks and the rows of the new pieces; all other weights
are those of its base checkpoint, which it does not copy. Axes: I inputs and O outputs of a matrix, r rank.

model    name -> tensor, the trained values: MATRIX.adapter.a (I, r) and MATRIX.adapter.b (r, O); of each
         table in `first_rows` the rows from that one on; any other weight as a whole
lora     {"rank", "alpha", "targets", "first_rows": table -> its first row in this file,
         "base": {"path", "num_bytes", "digest", ...}}

    merged matrix = base matrix + alpha / rank x a b      in float32

Every reader of such a file goes through `find_base` and `merge`.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, Field, ValidationError
from torch import Tensor

from indextts.errors import UserError
from indextts.runs.directory import FileIdentity, identify

logger = logging.getLogger(__name__)

IN, OUT = ".adapter.a", ".adapter.b"
PUBLISHED_FOLDER = Path("checkpoints")  # where the download puts the published files


class LoraRecord(BaseModel, frozen=True):
    """The entry "lora" of a checkpoint.

    Args:
        alpha: the adapters' output is scaled by alpha / rank.
        targets: as in the Train command.
        first_rows: by table, the first row that the checkpoint holds; the earlier ones are the base's.
        base: the checkpoint whose weights were frozen.
    """

    rank: int = Field(ge=1)
    alpha: float
    targets: str
    first_rows: dict[str, int]
    base: FileIdentity

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


def lora_record(content: Mapping[str, Any], path: Path) -> LoraRecord | None:
    """Return the LoRA record of the checkpoint at `path`; None for a checkpoint of all weights.

    Raises:
        UserError: the record is invalid.
    """
    if "lora" not in content or content["lora"] is None:
        return None
    try:
        return LoraRecord.model_validate(content["lora"])
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        raise UserError(f"{path}: its LoRA record is invalid ({problem}); use another checkpoint") from None


def find_base(base: FileIdentity, path: Path, folders: Sequence[Path] = ()) -> Path:
    """Return the base checkpoint of the LoRA checkpoint at `path`, known by its size and digest.

    It is searched where the run had it, beside the checkpoint, in `folders`, and in `checkpoints/`; in a
    folder under its name and as `gpt.pth`.

    Args:
        base: as the checkpoint records it.
        folders: that this reader knows, such as the folder of the published files.

    Raises:
        UserError: the base is in none of these places; the message names each.
    """
    recorded = Path(base.path)
    names = (recorded.name, "gpt.pth")
    inside = [folder / name for folder in (path.parent, *folders, PUBLISHED_FOLDER) for name in names]
    looked_at = []
    for file in dict.fromkeys([recorded, *inside]):
        problem = _why_not(file, base)
        if not problem:
            return file
        looked_at.append(f"{file} ({problem})")
    raise UserError(
        f"{path}: a LoRA checkpoint, and its base ({recorded.name}, {base.num_bytes:,} bytes, digest "
        f"{base.digest[:16]}) is at none of these places: {'; '.join(looked_at)}; copy it to one of them, "
        "for example beside the checkpoint"
    )


def merge(base: Mapping[str, Tensor], trained: Mapping[str, Tensor], record: LoraRecord) -> dict[str, Tensor]:
    """Return all weights of the model: those of `base` with the adapters merged in float32.

    Args:
        base: by published name; weights that were not trained stay the same tensors.
        trained: values of the entry "model" of the checkpoint, or their moving average.
    """
    weights = with_rows(base, trained, record)
    for name, a in trained.items():
        if name.endswith(IN):
            matrix = f"{name.removesuffix(IN)}.weight"
            product = a.float() @ trained[name.removesuffix(IN) + OUT].float()  # (I, O)
            weights[matrix] = weights[matrix].float().add(product, alpha=record.scale)
    return weights


def with_rows(
    base: Mapping[str, Tensor], trained: Mapping[str, Tensor], record: LoraRecord
) -> dict[str, Tensor]:
    """Return the weights of `base` with the trained rows and tables, without the adapters; see `merge`."""
    weights = dict(base)
    for name, values in trained.items():
        if not name.endswith((IN, OUT)):
            first = record.first_rows.get(name, 0)
            weights[name] = torch.cat([base[name][:first].to(values.dtype), values]) if first else values
    return weights


def adapters_in(trained: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the matrices of the adapters among the trained values of a LoRA checkpoint."""
    return {name: values for name, values in trained.items() if name.endswith((IN, OUT))}


def resized(a: Tensor, b: Tensor, rank: int, factor: float) -> tuple[Tensor, Tensor]:
    """Return the adapter of at most `rank` whose product is nearest to `factor` x a b.

    Args:
        a: (I, r).
        b: (r, O).

    Returns:
        a, (I, k) with orthonormal columns, and b, (k, O), where k is the smallest of `rank`, r, I and O. The
        product is the same up to rounding if `rank` is r or more.
    """
    columns, triangle = torch.linalg.qr(a.double())
    left, values, right = torch.linalg.svd(triangle @ b.double(), full_matrices=False)
    kept = min(rank, len(values))
    new_a, new_b = columns @ left[:, :kept], factor * values[:kept, None] * right[:kept]
    return new_a.float(), new_b.float()


def _why_not(file: Path, base: FileIdentity) -> str:
    """Return why `file` is not the base; empty if it is."""
    if not file.is_file():
        return "missing"
    num_bytes = file.stat().st_size
    if num_bytes != base.num_bytes:
        return f"another file, of {num_bytes:,} bytes"
    try:
        is_same = identify(file, known=[base]).digest == base.digest
    except OSError as error:
        return error.strerror or str(error)
    return "" if is_same else "another file of this size"
