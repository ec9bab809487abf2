"""Voice activity detection with Silero's model.

The model (MIT licence) comes with the package `silero-vad`. Its "sequence" form takes many windows in one
call and returns the same values as the form that takes one. Only the model file is used: importing the
package would import torch, which this module does without.

Axes: S samples, W windows of 32 ms, N windows of one call.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from indextts.errors import UserError

if TYPE_CHECKING:
    import onnxruntime

SAMPLE_RATE_HZ = 16_000
WINDOW_SAMPLES = 512
WINDOW_S = WINDOW_SAMPLES / SAMPLE_RATE_HZ
THRESHOLD = 0.5  # speech starts at this probability; Silero's default
END_THRESHOLD = 0.35  # speech ends below this probability
MIN_PAUSE_S = 0.1  # a shorter pause does not end a span
MIN_SPEECH_S = 0.25  # a shorter span is a click or a breath

_CONTEXT_SAMPLES = 64  # of the previous window, part of the model's input
_WINDOWS_PER_CALL = 512  # bounds the memory for recordings of any length
_STATE_SHAPE = (1, 1, 128)


@dataclass(frozen=True)
class Span:
    """Time span, in seconds from the start of the recording."""

    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


def find_speech(samples: NDArray[np.float32]) -> list[Span]:
    """Return the spans with speech, in order, without overlap.

    Args:
        samples: (S,) mono at SAMPLE_RATE_HZ, in [-1, 1].
    """
    return speech_spans(speech_probabilities(samples), len(samples) / SAMPLE_RATE_HZ)


def speech_probabilities(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the probability of speech in each window: (W,).

    Args:
        samples: (S,) mono at SAMPLE_RATE_HZ, in [-1, 1]; an incomplete last window is padded with zeros.
    """
    if not len(samples):
        return np.zeros(0, np.float32)
    session = onnx_session("silero_vad", "data/silero_vad_16k_sequence.onnx")
    num_windows = -(-len(samples) // WINDOW_SAMPLES)
    hidden = cell = np.zeros(_STATE_SHAPE, np.float32)
    probabilities = []
    padded = np.zeros(_CONTEXT_SAMPLES + num_windows * WINDOW_SAMPLES, np.float32)
    padded[_CONTEXT_SAMPLES : _CONTEXT_SAMPLES + len(samples)] = samples
    windows = np.lib.stride_tricks.sliding_window_view(padded, _CONTEXT_SAMPLES + WINDOW_SAMPLES)
    for first in range(0, num_windows, _WINDOWS_PER_CALL):
        last = min(first + _WINDOWS_PER_CALL, num_windows)
        block = windows[first * WINDOW_SAMPLES : last * WINDOW_SAMPLES : WINDOW_SAMPLES]  # (N, 576)
        feed = {"input": np.ascontiguousarray(block), "h": hidden, "c": cell}
        values, hidden, cell = session.run(["speech_probs", "hn", "cn"], feed)
        probabilities.append(values.reshape(-1))
    return np.concatenate(probabilities)


def speech_spans(probabilities: Sequence[float] | NDArray[np.float32], duration_s: float) -> list[Span]:
    """Return the spans with speech, from the probability of each window.

    Args:
        probabilities: (W,).
        duration_s: of the recording; no span ends after it.
    """
    spans = []
    start: int | None = None
    pause: int | None = None  # first window of a pause that may still be too short
    for window, probability in enumerate([*probabilities, 0.0]):
        if probability >= THRESHOLD:
            start, pause = (window if start is None else start), None
        elif start is not None and probability < END_THRESHOLD:
            pause = window if pause is None else pause
            is_over = window == len(probabilities) or (window + 1 - pause) * WINDOW_S >= MIN_PAUSE_S
            if is_over:
                spans.append(Span(start * WINDOW_S, min(pause * WINDOW_S, duration_s)))
                start = pause = None
    return [span for span in spans if span.duration_s >= MIN_SPEECH_S]


@cache  # once per process: loading a model takes longer than a clip
def onnx_session(package: str, name: str) -> "onnxruntime.InferenceSession":
    """Return a model that comes with a package, without importing the package.

    Raises:
        UserError: the package is not installed.
    """
    import onnxruntime  # sends usage data when it is imported, which the page must not

    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise UserError(f"the package {package} is not installed; run pip install -r requirements.txt")
    options = onnxruntime.SessionOptions()
    options.inter_op_num_threads = options.intra_op_num_threads = 1  # many processes share the cores
    path = Path(spec.origin).parent / name
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
