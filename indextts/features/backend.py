"""Interface of the speech encoders, and asynchronous copies between host and GPU.

Axes: S samples, T feature vectors, F width of a feature vector.

    samples (S,)  ->  prepared  ->  features (T, F)  ->  codes (T,), one per feature vector
                                        |
                                        '--> the GPT's own encoders: conditioning latents, emotion vector

A reader process, which has no weights, computes `prepared`.

The output for a clip depends on that clip only: batching changes it by no more than rounding errors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SAMPLE_RATE_HZ = 24_000
FEATURE_DIM = 1024  # F: the width that the conditioning encoders of the published model take
CODES_PER_SECOND = 50
# Audio that a clip needs besides the 20 ms of each code: a clip has floor((duration - lead) * 50) codes.
LEAD_S = {
    "builtin": 0.0,
    "indextts2": 0.015,  # log-mel windows of 25 ms start every 10 ms; a code takes two
}


class SpeechBackend(Protocol):
    """A speech encoder and its codec."""

    @property
    def identity(self) -> str:
        """Return the hex sha256 of everything that determines features and codes."""

    @property
    def prepare(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        """Return the function from samples (S,) to `prepared`; module-level, so that it can be pickled."""

    def features_of_batch(self, prepared: Sequence[NDArray[np.float32]]) -> list[Tensor]:
        """Return the feature vectors of each prepared clip, float32: (T, F)."""

    def codes_of_batch(self, features: Sequence[Tensor]) -> list[Tensor]:
        """Return the semantic codes of each clip's features (T, F), int64: (T,)."""


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a host tensor on `device`; the copy to a GPU is queued behind its earlier work."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)  # a copy from pageable memory would block


@dataclass(frozen=True)
class PendingTensors:
    """Host copies of tensors that a GPU may still be computing."""

    tensors: Sequence[Tensor]
    copied: torch.cuda.Event | None

    def get(self) -> Sequence[Tensor]:
        """Wait for the copies and return them."""
        if self.copied is not None:
            self.copied.synchronize()
        return self.tensors


def to_host(tensors: Sequence[Tensor], device: torch.device) -> PendingTensors:
    """Start copying tensors from `device` to the host."""
    if device.type != "cuda":
        return PendingTensors(tensors, None)
    copies = [tensor.to("cpu", non_blocking=True) for tensor in tensors]  # into pinned memory
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record(torch.cuda.current_stream(device))
    return PendingTensors(copies, copied)
