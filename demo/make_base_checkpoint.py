"""Write a base checkpoint: full structure, seeded random weights; it knows no language."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from indextts.commands.app import MakeBaseCheckpoint
from indextts.commands.bases import base_in
from indextts.commands.terminal import parse, run
from indextts.errors import UserError
from indextts.models.gpt.config import load_config
from indextts.models.gpt.weights import random_model


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


if __name__ == "__main__":
    run(main)
