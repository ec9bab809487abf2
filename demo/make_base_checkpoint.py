"""Write a base checkpoint: full structure, seeded random weights; it knows no language."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Generator, nn

from indextts.commands.app import MakeBaseCheckpoint
from indextts.commands.bases import base_in
from indextts.commands.terminal import parse, run
from indextts.errors import UserError
from indextts.models.gpt.config import GPTConfig, load_config
from indextts.models.gpt.encoders import (
    PerceiverResampler,
    PositionAwareAttention,
    PositionTable,
    RMSNorm,
    sinusoids,
)
from indextts.models.gpt.gpt2 import InOutLinear
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.weights import empty_model

STD = 0.02


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(MakeBaseCheckpoint, argv)
    config = replace(load_config(command.config), base=base_in(command.config.parent).name)
    model = random_model(config, command.seed)
    aside = command.output.with_name(f".tmp-{command.output.name}")
    try:
        torch.save(model.state_dict(), aside)
        aside.replace(command.output)
    except (OSError, RuntimeError) as error:
        raise UserError(f"--output {command.output} cannot be written ({error})") from None
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{command.output}: {num_parameters:,} random parameters, seed {command.seed}")
    return 0


def random_model(config: GPTConfig, seed: int) -> UnifiedVoice:
    """Return a model on the CPU with fresh weights; does not change the global random state."""
    model = empty_model(config).to_empty(device="cpu")
    initialise(model, seed)
    return model


@torch.no_grad()
def initialise(model: UnifiedVoice, seed: int) -> None:
    """Overwrite every parameter and buffer of a model on the CPU; does not change the global random state."""
    generator = Generator().manual_seed(seed)
    residual_std = STD / math.sqrt(2 * model.config.layers)
    for name, module in model.named_modules():
        if isinstance(module, InOutLinear):
            module.weight.normal_(0, residual_std if name.endswith(".c_proj") else STD, generator=generator)
            module.bias.zero_()
        else:
            _initialise_module(module, generator)
    if model.reads_style:
        model.lang_embedding.weight.normal_(0, 1, generator=generator)
    else:
        model.speed_emb.weight.zero_()


def _initialise_module(module: nn.Module, generator: Generator) -> None:
    match module:
        case nn.Embedding():
            module.weight.normal_(0, STD, generator=generator)
        case nn.Linear() | nn.Conv1d() | nn.Conv2d():
            bound = 1 / math.sqrt(module.weight[0].numel())  # torch's default
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


if __name__ == "__main__":
    run(main)
