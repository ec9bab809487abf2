"""Where in a recording somebody speaks: Silero's voice activity detector. No torch here.

The model (MIT licence) comes with the package `silero-vad`; its "sequence" form takes many windows in one
call and gives the same as the one that is called for each window. Only the file is used: importing the
package would import torch.

Axes: S samples, W windows of 32 ms, N windows of one call.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from indextts.errors import UserError

SAMPLE_RATE_HZ = 16_000
WINDOW_SAMPLES = 512
WINDOW_S = WINDOW_SAMPLES / SAMPLE_RATE_HZ
THRESHOLD = 0.5  # speech begins at this probability, Silero's own default
END_THRESHOLD = 0.35  # and ends below this one
MIN_PAUSE_S = 0.1  # a shorter pause does not end it
MIN_SPEECH_S = 0.25  # shorter is a click or a breath

_CONTEXT_SAMPLES = 64  # of the window before, which the model is shown too
_WINDOWS_PER_CALL = 512  # bounds the memory, whatever the length of a recording
_STATE_SHAPE = (1, 1, 128)


@dataclass(frozen=True)
class Span:
    """A stretch of time, in seconds from the start of the recording."""

    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


def find_speech(samples: NDArray[np.float32]) -> list[Span]:
    """Return where somebody speaks, in order, not overlapping.

    Args:
        samples: (S,) mono at SAMPLE_RATE_HZ, in [-1, 1].
    """
    return speech_spans(speech_probabilities(samples), len(samples) / SAMPLE_RATE_HZ)


def speech_probabilities(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return how sure the detector is of speech in each window: (W,), in [0, 1].

    Args:
        samples: (S,) mono at SAMPLE_RATE_HZ, in [-1, 1]; a last window that is not full is filled with zeros.
    """
    if not len(samples):
        return np.zeros(0, np.float32)
    session = _session()
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
    """Return the stretches of speech that the windows' probabilities show.

    Args:
        probabilities: (W,).
        duration_s: of the recording; nothing ends after it.
    """
    spans = []
    start: int | None = None
    pause: int | None = None  # the first window of a pause that may yet be too short
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


@cache  # once in a process: reading the model takes longer than a clip
def _session() -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.inter_op_num_threads = options.intra_op_num_threads = 1  # many processes share the cores
    return onnxruntime.InferenceSession(
        str(_model_file()), sess_options=options, providers=["CPUExecutionProvider"]
    )


def _model_file() -> Path:
    spec = importlib.util.find_spec("silero_vad")
    if spec is None or spec.origin is None:
        raise UserError("the package silero-vad is not installed, run pip install -r requirements.txt")
    return Path(spec.origin).parent / "data/silero_vad_16k_sequence.onnx"
