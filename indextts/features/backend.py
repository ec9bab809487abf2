"""The interface of all speech encoders: samples in, speech features and semantic codes out.

Axes: S samples, T feature vectors, F width of a feature vector.

    samples (S,)  ->  prepared  ->  features (T, F)  ->  codes (T,), one per feature vector
                                        |
                                        '--> the GPT's own encoders: conditioning latents, emotion vector

`prepared` is whatever a process that reads recordings can make of them without the weights.

What comes out of a clip depends on nothing but the clip: in a batch it is what it is alone, but for rounding.

Tensors from the host to where the encoders compute, and back, without the host waiting for a card.
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
# What a clip needs before its first code, besides the code's own 20 ms: a clip has
# floor((duration - this) * 50) codes.
LEAD_S = {
    "builtin": 0.0,
    "indextts2": 0.015,  # the log-mel windows are 25 ms long and begin every 10 ms, two for a code
}


class SpeechBackend(Protocol):
    """A speech encoder with its codec."""

    @property
    def identity(self) -> str:
        """Return the sha256, in hex, over everything that determines features and codes."""

    @property
    def num_codes(self) -> int:
        """Return how many different codes there are: codes are 0 to num_codes - 1."""

    @property
    def feature_dim(self) -> int:
        """Return F."""

    @property
    def prepare(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
        """Return the function from samples (S,) to `prepared`: a module's own, for another process."""

    def features(self, audio: NDArray[np.float32]) -> Tensor:
        """Return the feature vectors of one clip, float32: (T, F).

        Args:
            audio: (S,), samples at SAMPLE_RATE_HZ.
        """

    def codes(self, features: Tensor) -> Tensor:
        """Return the semantic codes of one clip's features (T, F), int64: (T,)."""

    def features_of_batch(self, prepared: Sequence[NDArray[np.float32]]) -> list[Tensor]:
        """Return `features` of every clip, each of which went through `prepare`."""

    def codes_of_batch(self, features: Sequence[Tensor]) -> list[Tensor]:
        """Return `codes` of every clip's features."""


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
