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
