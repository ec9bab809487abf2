"""Load weights into a module after checking all names and shapes.

Only the tensors that the module has are read from a file.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from indextts.errors import UserError
from indextts.system.amounts import counted

Shape = tuple[int, ...]

NOTHING = re.compile(r"(?!)")


def load_safetensors(module: nn.Module, path: Path, advice: str, unused: re.Pattern[str] = NOTHING) -> None:
    """Load a file into a module as float32 weights, freeze the module and set it to eval mode.

    Args:
        module: usually on the meta device; the file must have its names and shapes.
        path: a safetensors file of any floating-point type.
        advice: the remedy for a wrong file, for messages.
        unused: names that the file may have besides the module's, matched at their start.

    Raises:
        UserError: the file cannot be read, or a tensor is missing, unexpected or has the wrong shape.
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
        raise UserError(f"{path}: the file does not exist; {advice}") from None
    except (OSError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: cannot be read as safetensors ({reason}); {advice}") from None
    module.load_state_dict(weights, assign=True)
    module.requires_grad_(False).eval()


def fill_weights(
    module: nn.Module, weights: Mapping[str, Tensor], source: str, advice: str, device: torch.device
) -> None:
    """Copy `weights` into a module, freeze the module and set it to eval mode.

    Args:
        module: usually on the meta device; its names and shapes must match, the copies get its types.
        source: the origin of the weights, for messages.
        advice: the remedy for wrong weights, for messages.
        device: the device of the copies.

    Raises:
        UserError: a tensor is missing, unexpected or has the wrong shape.
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
    """Yield a phrase per kind of problem with the tensors of a file, with the name of every such tensor."""
    missing = [name for name in expected if name not in given]
    if missing:
        yield f"{counted(len(missing), 'missing weight')} of {len(expected)}: {', '.join(missing)}"
    unexpected = [name for name in given if name not in expected and not unused.match(name)]
    if unexpected:
        yield f"{counted(len(unexpected), 'unexpected tensor')}: {', '.join(unexpected)}"
    misshapen = [
        f"{name} is {given[name]}, expected {shape}"
        for name, shape in expected.items()
        if name in given and given[name] != shape
    ]
    if misshapen:
        yield f"{counted(len(misshapen), 'weight')} with the wrong shape: {', '.join(misshapen)}"
