"""Copy weights into a module after checking all names and shapes."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from indextts.errors import UserError
from indextts.system.amounts import counted


def fill_weights(
    module: nn.Module, weights: Mapping[str, Tensor], source: str, advice: str, device: torch.device
) -> None:
    """Copy `weights` into a module, freeze the module and set it to eval mode.

    Args:
        module: usually on the meta device; its names and shapes must match, the copies get its types.
        source: the origin of the weights, for messages.

    Raises:
        UserError: a tensor is missing, unexpected or has the wrong shape.
    """
    wanted = module.state_dict()
    problems = list(_problems(wanted, weights))
    if problems:
        raise UserError(f"{source}: {'; '.join(problems)}; {advice}")
    copies = {name: weights[name].to(device, tensor.dtype, copy=True) for name, tensor in wanted.items()}
    module.load_state_dict(copies, assign=True)
    module.requires_grad_(False).eval()


def _problems(expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Iterator[str]:
    """Yield a phrase per kind of problem with the tensors of a file, with the name of every such tensor."""
    missing = [name for name in expected if name not in given]
    if missing:
        yield f"{counted(len(missing), 'missing weight')} of {len(expected)}: {', '.join(missing)}"
    unexpected = [name for name in given if name not in expected]
    if unexpected:
        yield f"{counted(len(unexpected), 'unexpected tensor')}: {', '.join(unexpected)}"
    misshapen = [
        f"{name} is {tuple(given[name].shape)}, expected {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in given and given[name].shape != tensor.shape
    ]
    if misshapen:
        yield f"{counted(len(misshapen), 'weight')} with the wrong shape: {', '.join(misshapen)}"
