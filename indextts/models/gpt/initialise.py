"""Fresh weights, as the published model was started from; deterministic in a seed."""

import math

import torch
from torch import Generator, nn

from indextts.models.gpt.config import GPTConfig
from indextts.models.gpt.conformer import PositionAwareAttention, PositionTable, sinusoids
from indextts.models.gpt.gpt2 import InOutLinear
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.perceiver import PerceiverResampler, RMSNorm

STD = 0.02


def random_model(config: GPTConfig, seed: int) -> UnifiedVoice:
    """A model on the CPU with fresh weights; the global random state is left alone."""
    with torch.device("meta"):
        model = UnifiedVoice(config)
    model.to_empty(device="cpu")
    initialise(model, seed)
    return model


@torch.no_grad()
def initialise(model: UnifiedVoice, seed: int) -> None:
    """Overwrite every parameter and buffer of a model on the CPU; the global random state is left alone."""
    generator = Generator().manual_seed(seed)
    residual_std = STD / math.sqrt(2 * model.config.layers)
    for name, module in model.named_modules():
        if isinstance(module, InOutLinear):
            module.weight.normal_(0, residual_std if name.endswith(".c_proj") else STD, generator=generator)
            module.bias.zero_()
        else:
            _initialise_module(module, generator)
    model.speed_emb.weight.zero_()


def _initialise_module(module: nn.Module, generator: Generator) -> None:
    match module:
        case nn.Embedding():
            module.weight.normal_(0, STD, generator=generator)
        case nn.Linear() | nn.Conv1d() | nn.Conv2d():
            bound = 1 / math.sqrt(module.weight[0].numel())  # what torch does by default
            module.weight.uniform_(-bound, bound, generator=generator)
            if module.bias is not None:
                module.bias.uniform_(-bound, bound, generator=generator)
        case nn.LayerNorm():
            module.weight.fill_(1)
            module.bias.zero_()
        case RMSNorm():
            module.gamma.fill_(1)
        case PerceiverResampler():
            module.latents.normal_(0, STD, generator=generator)
        case PositionAwareAttention():
            nn.init.xavier_uniform_(module.pos_bias_u, generator=generator)
            nn.init.xavier_uniform_(module.pos_bias_v, generator=generator)
        case PositionTable():
            module.pe.copy_(sinusoids(*module.pe.shape[1:])[None])
        case _:
            assert not list(module.parameters(recurse=False)), type(module)
