"""Weights of a file into a module; names and shapes are checked first, all problems named.

Only the tensors that the module has are read: the rest of a file costs nothing.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from indextts.errors import UserError

Shape = tuple[int, ...]

NOTHING = re.compile(r"(?!)")


def load_safetensors(module: nn.Module, path: Path, advice: str, unused: re.Pattern[str] = NOTHING) -> None:
    """Give a module, usually on the meta device, the float32 weights in `path`; it is frozen, in eval mode.

    Args:
        module: whose names and shapes the file must have.
        path: tensors of any floating-point type.
        advice: what the user can do about a wrong file.
        unused: names that the file may hold besides the module's, matched from their beginning.

    Raises:
        UserError: the file cannot be read, or a tensor is missing, unexpected or of another shape.
    """
    expected = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    try:
        with safe_open(path, framework="pt") as file:
            given = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            problems = list(weight_problems(expected, given, unused))
            if problems:
                raise UserError(f"{path}: {'; '.join(problems)}; {advice}")
            weights = {name: file.get_tensor(name).float() for name in expected}
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; {advice}") from None
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: cannot be read as safetensors ({reason}); {advice}") from None
    module.load_state_dict(weights, assign=True)
    module.requires_grad_(False).eval()


def fill_weights(
    module: nn.Module, weights: Mapping[str, Tensor], source: str, advice: str, device: torch.device
) -> None:
    """Give a module, usually on the meta device, its own copy of `weights`; it is frozen, in eval mode.

    Args:
        module: whose names and shapes `weights` must have, and whose types the copies get.
        source: where the weights are from, for messages.
        advice: what the user can do about wrong weights.
        device: where the copies shall be.

    Raises:
        UserError: a tensor is missing, unexpected or of another shape.
    """
    wanted = module.state_dict()
    problems = list(
        weight_problems(
            {name: tuple(tensor.shape) for name, tensor in wanted.items()},
            {name: tuple(tensor.shape) for name, tensor in weights.items()},
        )
    )
    if problems:
        raise UserError(f"{source}: {'; '.join(problems)}; {advice}")
    copies = {name: weights[name].to(device, tensor.dtype, copy=True) for name, tensor in wanted.items()}
    module.load_state_dict(copies, assign=True)
    module.requires_grad_(False).eval()


def weight_problems(
    expected: Mapping[str, Shape], given: Mapping[str, Shape], unused: re.Pattern[str] = NOTHING
) -> Iterator[str]:
    """Yield what is wrong with the tensors of a file, a phrase per kind, with the name of every tensor."""
    missing = [name for name in expected if name not in given]
    if missing:
        yield f"{len(missing)} of {len(expected)} weights are missing: {', '.join(missing)}"
    unexpected = [name for name in given if name not in expected and not unused.match(name)]
    if unexpected:
        yield f"{len(unexpected)} tensors are unexpected: {', '.join(unexpected)}"
    misshapen = [
        f"{name} is {given[name]}, expected {shape}"
        for name, shape in expected.items()
        if name in given and given[name] != shape
    ]
    if misshapen:
        yield f"{len(misshapen)} weights are of another shape: {', '.join(misshapen)}"
