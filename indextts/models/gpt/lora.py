"""LoRA adapters of the GPT's blocks: trained beside matrices that stay frozen.

Axes: N positions, I inputs and O outputs of a matrix, r rank.

    output = x W + bias + alpha / rank x (x a) b        a (I, r), b (r, O)

b starts at zero, so a model with fresh adapters computes what it did without them.
"""

import math
import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from indextts.models.gpt.gpt2 import Adapter, InOutLinear
from indextts.models.lora import IN, OUT, LoraSettings, resized

# The matrices of a block by the value of --lora-targets.
TARGETS = {"all": "attn|mlp", "attention": "attn", "mlp": "mlp"}
BLOCK_MATRIX = re.compile(r"gpt\.h\.\d+\.(attn|mlp)\.\w+\.weight")


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
        a, b = _fresh(module.weight.shape, settings.rank, seed_of(name))
        if name + IN in saved:
            _take(a, b, saved[name + IN], saved[name + OUT], saved_scale / settings.scale)
        module.adapter = Adapter(a, b, settings.scale).to(module.weight.device)


def _fresh(shape: torch.Size, rank: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return a (I, r) of N(0, 1/I), and b (r, O) of zeros."""
    num_in, num_out = shape
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(num_in, rank, generator=generator) / math.sqrt(num_in)
    return a, torch.zeros(rank, num_out)


def _take(a: Tensor, b: Tensor, saved_a: Tensor, saved_b: Tensor, factor: float) -> None:
    """Overwrite a (I, r) and b (r, O) with a saved adapter of any rank, whose product gets `factor`."""
    if saved_a.shape != a.shape or factor != 1.0:
        saved_a, saved_b = resized(saved_a, saved_b, a.shape[1], factor)
    rank = saved_a.shape[1]
    a[:, :rank], b[:rank] = saved_a, saved_b
