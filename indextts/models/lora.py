"""LoRA: adapters beside the frozen matrices of the GPT's blocks, and their merge with the base.

    output = x W + bias + alpha / rank x (x a) b        a (I, r), b (r, O)

b starts at zero, so a model with fresh adapters computes what it did without them. A LoRA run trains adapters
and the rows of the new pieces; all other weights are those of its base checkpoint, which it does not copy.
Axes: I inputs and O outputs of a matrix, r rank.

model    name -> tensor, the trained values: MATRIX.adapter.a (I, r) and MATRIX.adapter.b (r, O); of each
         table in `first_rows` the rows from that one on; any other weight as a whole
lora     {"rank", "alpha", "targets", "first_rows": table -> its first row in this file,
         "base": {"path", "num_bytes", "digest", ...}}

    merged matrix = base matrix + alpha / rank x a b      in float32

Every reader of such a file goes through `find_base` (runs/lora_base.py) and `merge`.
"""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import BaseModel, Field, ValidationError
from torch import Tensor, nn

from indextts.errors import UserError
from indextts.models.gpt.gpt2 import Adapter, InOutLinear
from indextts.runs.directory import FileIdentity
from indextts.system.yaml_files import problems_of

IN, OUT = ".adapter.a", ".adapter.b"
# The matrices of a block by the value of --lora-targets.
TARGETS = {"all": "attn|mlp", "attention": "attn", "mlp": "mlp"}
BLOCK_MATRIX = re.compile(r"gpt\.h\.\d+\.(attn|mlp)\.\w+\.weight")


class LoraSettings(BaseModel, frozen=True):
    """The settings of the adapters; fields as in the Train command."""

    rank: int = Field(ge=1)
    alpha: float
    targets: str

    @classmethod
    def of(cls, rank: int, alpha: float, targets: str) -> Self | None:
        """Return the settings of the Train command; None for rank 0, a run that trains all weights."""
        return cls(rank=rank, alpha=alpha, targets=targets) if rank else None

    @property
    def scale(self) -> float:
        """Factor of the adapters' output."""
        return self.alpha / self.rank


class LoraRecord(LoraSettings, frozen=True):
    """The entry "lora" of a checkpoint.

    Args:
        first_rows: by table, the first row that the checkpoint holds; the earlier ones are the base's.
    """

    first_rows: dict[str, int]
    base: FileIdentity


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
        raise UserError(
            f"{path}: its LoRA record is invalid ({problems_of(error)[0]}); use another checkpoint"
        ) from None


def require_full_strength(path: Path, strength: float) -> None:
    """Raise a UserError unless `strength` is 1, for a file of all weights."""
    if strength != 1:
        raise UserError(
            f"--adapter-strength {strength:g}: {path} is no LoRA checkpoint or adapter; leave it at 1"
        )


def merge(
    base: Mapping[str, Tensor], trained: Mapping[str, Tensor], record: LoraRecord, strength: float = 1.0
) -> dict[str, Tensor]:
    """Return all weights of the model: those of `base` with the adapters merged in float32.

    Args:
        base: by published name; weights that were not trained stay the same tensors.
        trained: values of the entry "model" of the checkpoint, or their moving average.
        strength: of all that was trained: 0 is the base, 1 the trained model. New rows stay as they are.
    """
    weights = with_rows(base, trained, record)
    if strength != 1:
        weights |= {name: _between(base[name], weights[name], strength) for name in trained if name in base}
    for name, a in trained.items():
        if name.endswith(IN):
            matrix = f"{name.removesuffix(IN)}.weight"
            product = a.float() @ trained[name.removesuffix(IN) + OUT].float()  # (I, O)
            weights[matrix] = weights[matrix].float().add(product, alpha=strength * record.scale)
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


def _between(base: Tensor, trained: Tensor, strength: float) -> Tensor:
    """Return values between those of the base and the trained ones; rows that only the latter has stay."""
    # the last row of a table that grew belonged to no token
    num_shared = len(base) - (len(trained) > len(base))
    mixed = torch.lerp(base[:num_shared].float(), trained[:num_shared].float(), strength)
    return torch.cat([mixed, trained[num_shared:]])


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


def is_block_matrix(name: str) -> bool:
    """Return whether a weight is a matrix of a block; with LoRA these are kept in the type of the forward."""
    return BLOCK_MATRIX.fullmatch(name) is not None


def add_adapters(
    model: nn.Module,
    settings: LoraSettings,
    seed_of: Callable[[str], int],
    saved: Mapping[str, Tensor],
    saved_scale: float,
) -> None:
    """Add adapters to the blocks of `model`, on the devices of their matrices.

    Args:
        seed_of: returns the seed of the fresh adapter of a layer, by its name.
        saved: adapters of a checkpoint by name; one of another rank or scale is replaced by the nearest that
            `resized` finds, and continued by fresh columns.
        saved_scale: alpha / rank of the checkpoint.
    """
    target = re.compile(rf"gpt\.h\.\d+\.({TARGETS[settings.targets]})\.\w+")
    for name, module in list(model.named_modules()):
        if not (isinstance(module, InOutLinear) and target.fullmatch(name)):
            continue
        num_in, num_out = module.weight.shape
        generator = torch.Generator().manual_seed(seed_of(name))
        a = torch.randn(num_in, settings.rank, generator=generator) / math.sqrt(num_in)
        b = torch.zeros(settings.rank, num_out)
        if name + IN in saved:
            saved_a, saved_b, factor = saved[name + IN], saved[name + OUT], saved_scale / settings.scale
            if saved_a.shape != a.shape or factor != 1.0:
                saved_a, saved_b = resized(saved_a, saved_b, settings.rank, factor)
            rank = saved_a.shape[1]
            a[:, :rank], b[:rank] = saved_a, saved_b
        module.adapter = Adapter(a, b, settings.scale).to(module.weight.device)
