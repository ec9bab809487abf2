"""Quality of speech as listeners would rate it, by DNSMOS P.835 (Reddy, Gopal and Cutler, ICASSP 2022).

    SIG   distortion of the speech          1 (bad) to 5 (excellent), mean opinion scores
    BAK   noise, music, voices behind it
    OVRL  the overall impression

The model (MIT licence) comes with the package `speechmos`. Only its file is used: importing the package needs
packages that it does not declare. The network rates 9.01 s: a shorter recording is repeated to that length, a
longer one is rated every second and averaged. Polynomials map its values to the scale of the listeners.

Axes: S samples.
"""

import math

import numpy as np
from numpy.typing import NDArray

from indextts.features.vad import onnx_session

SAMPLE_RATE_HZ = 16_000
WINDOW_SAMPLES = 144_160  # 9.01 s
HOP_SAMPLES = SAMPLE_RATE_HZ
MAX_WINDOWS = 12  # of a recording; the windows of longer ones are spread evenly
WINDOW_COST_S = 0.165  # processor time of a window, for estimates

NAMES = ("sig", "bak", "ovrl")
# of 1, x and x squared, for the model that does not know the speaker
POLYNOMIALS = (
    (0.0052439, 1.22083953, -0.08397278),  # SIG
    (-0.39604546, 1.60915514, -0.13166888),  # BAK
    (0.04602535, 1.11546468, -0.06766283),  # OVRL
)


def rate(samples: NDArray[np.float32]) -> list[float]:
    """Return SIG, BAK and OVRL of a recording.

    Args:
        samples: (S,) mono at SAMPLE_RATE_HZ in [-1, 1], at least one.
    """
    repeated = samples if len(samples) >= WINDOW_SAMPLES else np.resize(samples, WINDOW_SAMPLES)
    count = (len(repeated) - WINDOW_SAMPLES) // HOP_SAMPLES + 1
    starts = np.arange(count) * HOP_SAMPLES
    if count > MAX_WINDOWS:
        starts = starts[np.linspace(0, count - 1, MAX_WINDOWS).round().astype(int)]
    session = onnx_session("speechmos", "dnsmos_models/sig_bak_ovr.onnx")
    rated = []
    for start in starts:
        window = repeated[start : start + WINDOW_SAMPLES][None]
        raw = session.run(None, {"input_1": window.astype(np.float32)})[0][0]
        rated.append([np.polynomial.polynomial.polyval(x, c) for x, c in zip(raw, POLYNOMIALS, strict=True)])
    scores: list[float] = np.mean(rated, axis=0).tolist()
    return scores


def cost_s(duration_s: float) -> float:
    """Return an estimate of the processor time that `rate` takes for a recording."""
    count = math.floor(duration_s - WINDOW_SAMPLES / SAMPLE_RATE_HZ) + 1
    return WINDOW_COST_S * min(max(1, count), MAX_WINDOWS)
