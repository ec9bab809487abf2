"""Tensors from the host to where the encoders compute, and back, without the host waiting for a card."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the host on `device`; a card reads it when its earlier work is done."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)  # of other memory, the copy would wait for it


@dataclass(frozen=True)
class OnTheirWay:
    """Tensors that a card is still computing, copied to the host as soon as they are there."""

    tensors: Sequence[Tensor]
    arrived: torch.cuda.Event | None

    def get(self) -> Sequence[Tensor]:
        """Wait for the tensors and return them, on the host."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.tensors


def to_host(tensors: Sequence[Tensor], device: torch.device) -> OnTheirWay:
    """Return the tensors of `device`, or of the host, as they will be on the host."""
    if device.type != "cuda":
        return OnTheirWay(tensors, None)
    copies = [tensor.to("cpu", non_blocking=True) for tensor in tensors]  # into pinned memory
    arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
    arrived.record(torch.cuda.current_stream(device))
    return OnTheirWay(copies, arrived)
