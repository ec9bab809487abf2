"""The interface of all speech encoders: samples in, speech features and semantic codes out.

Axes: S samples, T feature vectors, F width of a feature vector.

    samples (S,)  ->  features (T, F)  ->  codes (T,), one per feature vector
                          |
                          '--> the GPT's own encoders: conditioning latents, emotion vector

One clip goes in at a time, so that what comes out depends on nothing but the clip.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

SAMPLE_RATE_HZ = 24_000
FEATURE_DIM = 1024  # F: the width that the conditioning encoders of the published model take
CODES_PER_SECOND = 50


class SpeechBackend(Protocol):
    """A speech encoder with its codec."""

    @property
    def identity(self) -> str:
        """Return the sha256, in hex, over everything that determines features and codes."""

    @property
    def num_codes(self) -> int:
        """Return how many different codes there are: codes are 0 to num_codes - 1."""

    def features(self, audio: NDArray[np.float32]) -> Tensor:
        """Return the feature vectors of one clip, float32: (T, F).

        Args:
            audio: (S,), samples at SAMPLE_RATE_HZ.
        """

    def codes(self, features: Tensor) -> Tensor:
        """Return the semantic codes of one clip's features (T, F), int64: (T,)."""
