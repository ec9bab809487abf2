"""How alike two voices are: the cosine between their CAM++ vectors.

Axes: S samples, N log-mel frames, M mel bands.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from indextts.features.campplus import CAMPPlus
from indextts.features.mel_spectrogram import KALDI_HOP, KALDI_RATE_HZ, KALDI_WINDOW, kaldi_frames

SAMPLE_RATE_HZ = KALDI_RATE_HZ
SHORTEST = KALDI_WINDOW + 99 * KALDI_HOP  # samples of the first 100 frames, a second


@torch.no_grad()
def style_of(campplus: CAMPPlus, samples: NDArray[np.float32]) -> Tensor | None:
    """Return the vector of a voice; None for less than a second of sound.

    Args:
        campplus: with its weights.
        samples: (S,) at SAMPLE_RATE_HZ in [-1, 1].
    """
    if len(samples) < SHORTEST:
        return None
    device = next(campplus.parameters()).device
    frames = kaldi_frames(torch.from_numpy(samples).to(device))  # (N, M)
    style: Tensor = campplus((frames - frames.mean(dim=0))[None])[0]
    return style


def likeness(a: Tensor | None, b: Tensor | None) -> float | None:
    """Return the cosine of two vectors: 1 for one voice; None if one is not known."""
    if a is None or b is None:
        return None
    return float((a / a.norm()) @ (b / b.norm()))  # torch's own takes short vectors for longer ones
