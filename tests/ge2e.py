"""A speaker encoder with trained weights for the tests: the GE2E network that Resemblyzer's wheel contains.

Axes: S samples, N mel frames (100 per second), M mel bands, W windows of 1.6 s.

    samples (S,) -> speech only, at least -30 dBFS -> mel power (N, M) -> windows (W, 160, M)
      -> 3 layers of LSTM, the last state -> linear, ReLU, unit length -> mean over W, unit length (256,)

./test.sh unpacks the wheel beside the packages of the environment; no test imports it.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from indextts.features.log_mel import corners_hz, slaney_filters
from indextts.features.vad import find_speech
from tests.conftest import REPOSITORY

WEIGHTS = REPOSITORY / ".venv/test-weights/resemblyzer/pretrained.pt"
SAMPLE_RATE_HZ = 16_000
WINDOW, HOP, NUM_BANDS, HIDDEN = 400, 160, 40, 256
WINDOW_FRAMES, STEP_FRAMES = 160, 77
LOUDNESS_DBFS = -30.0


def ge2e_weights() -> Path:
    """Return the file with the weights; skip the test where it is absent."""
    if not WEIGHTS.is_file():
        if os.environ.get("CI"):
            pytest.fail(f"{WEIGHTS} is absent: in CI the weights must be there")
        pytest.skip(f"needs {WEIGHTS}; ./test.sh unpacks it")
    return WEIGHTS


class GE2E(nn.Module):
    def __init__(self, weights: Path) -> None:
        super().__init__()
        self.lstm = nn.LSTM(NUM_BANDS, HIDDEN, num_layers=3, batch_first=True)
        self.linear = nn.Linear(HIDDEN, HIDDEN)
        state = torch.load(weights, map_location="cpu", weights_only=True)["model_state"]
        self.load_state_dict({name: state[name] for name in self.state_dict()})
        self.eval().requires_grad_(False)

    def forward(self, frames: Tensor) -> Tensor:
        """Map frames (W, N, M) to unit vectors (W, 256)."""
        _, (hidden, _) = self.lstm(frames)
        return nn.functional.normalize(self.linear(hidden[-1]).relu())

    def __call__(self, samples: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """Return the vector of a voice (256,); None for samples without speech."""
        spoken = [
            samples[round(span.start_s * SAMPLE_RATE_HZ) : round(span.end_s * SAMPLE_RATE_HZ)]
            for span in find_speech(samples)
        ]
        if not spoken:
            return None
        frames = mel_power(at_least_as_loud(np.concatenate(spoken)))  # (N, M)
        missing = max(0, WINDOW_FRAMES - len(frames))
        windows = nn.functional.pad(frames, (0, 0, 0, missing)).unfold(0, WINDOW_FRAMES, STEP_FRAMES)
        vector = super().__call__(windows.transpose(1, 2)).mean(dim=0)
        return nn.functional.normalize(vector, dim=0).numpy()


def at_least_as_loud(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    gain_db = LOUDNESS_DBFS - 10 * np.log10(np.mean(samples.astype(np.float64) ** 2) + 1e-12)
    return samples * np.float32(10 ** (max(0.0, gain_db) / 20))


def mel_power(samples: NDArray[np.float32]) -> Tensor:
    """Return the power in each band: (N, M)."""
    corners = corners_hz(SAMPLE_RATE_HZ, NUM_BANDS)
    areas = (corners[2:] - corners[:-2]) / 2
    filters = torch.from_numpy(slaney_filters(SAMPLE_RATE_HZ, WINDOW, NUM_BANDS) / areas[:, None]).float()
    spectrum = torch.stft(
        torch.from_numpy(samples),
        WINDOW,
        HOP,
        window=torch.hann_window(WINDOW),
        pad_mode="constant",
        return_complex=True,
    )  # (bins, N)
    return (filters @ spectrum.abs().square()).T
