"""Interface of the speech recognizers, a loaded model, and the cutting of clips that are too long for it.

Axes: S samples, T positions and V tokens of a CTC model.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from indextts.features.audio import load_audio
from indextts.system.process_pool import ahead

MIN_DURATION_S = 0.1  # a shorter clip has no position after the first layers of these models
GPU_BATCH_S = 240.0
CLIPS_AT_ONCE = 64  # where a batch takes several; without batches, each transcript is stored at once
SEARCHED_S = 5.0  # before the end of a part, for a pause to cut in
PAUSE_S = 0.1
NUM_READERS = 4


class Recognizer(Protocol):
    """A model that transcribes speech without seeing the expected text."""

    name: str  # for reports
    family: str  # such as Whisper; models of one family make the same mistakes
    clips_at_once: int  # that share a batch
    sample_rate_hz: int  # of the clips
    identity: str  # hex digest of everything that determines the transcripts

    def transcribe(self, clips: Sequence[NDArray[np.float32]]) -> list[str]:
        """Return the transcript of each clip (S,), which depends on that clip only; "" for a short clip."""

    def hear(self, clips: Sequence[NDArray[np.float32]]) -> list[tuple[str, Tensor | None]]:
        """Return the transcripts, each with the log-probabilities (T, V) of a CTC model."""


@dataclass(frozen=True)
class LoadedModel:
    """A model of transformers on the CPU in float32, with its feature extractor and tokenizer."""

    name: str
    identity: str
    model: Any
    extractor: Any
    tokenizer: Any

    @property
    def family(self) -> str:
        """The architecture, such as Whisper or Wav2Vec2."""
        return type(self.model).__name__.partition("For")[0]


@dataclass(frozen=True)
class Placement:
    """Device, precision and batch of a recognizer."""

    device: torch.device
    dtype: torch.dtype = torch.float32  # of weights and activations
    batch_s: float = 0.0  # largest padded duration of a batch in seconds; 0 transcribes clip by clip

    @property
    def clips_at_once(self) -> int:
        """The number of clips to transcribe in a call."""
        return CLIPS_AT_ONCE if self.batch_s else 1


def heard_in(recognizer: Recognizer, paths: Sequence[Path]) -> Iterator[tuple[str, Tensor | None]]:
    """Yield the transcript of each recording, in order, with the log-probabilities (T, V) of a CTC model.

    The recordings of the next call are read meanwhile.
    """
    at_once = recognizer.clips_at_once
    groups = [paths[first : first + at_once] for first in range(0, len(paths), at_once)]
    with ThreadPoolExecutor(NUM_READERS) as readers:

        def start(group: Sequence[Path]) -> list[Future[NDArray[np.float32]]]:
            return [readers.submit(load_audio, path, recognizer.sample_rate_hz) for path in group]

        for loading in ahead(groups, start, 1):
            yield from recognizer.hear([each.result() for each in loading])


def batches(sizes: Sequence[int], max_size: float, *, only_equal: bool) -> list[list[int]]:
    """Return the indices of clips in batches of similar sizes, each of at least one clip.

    Args:
        sizes: of the clips, in samples.
        max_size: largest padded size of a batch of several clips.
    """
    found: list[list[int]] = []
    for place in sorted(range(len(sizes)), key=lambda place: (sizes[place], place)):
        fits = bool(found) and sizes[place] * (len(found[-1]) + 1) <= max_size
        if fits and (not only_equal or sizes[place] == sizes[found[-1][0]]):
            found[-1].append(place)
        else:
            found.append([place])
    return found


def parts(samples: NDArray[np.float32], sample_rate_hz: int, max_s: float) -> list[NDArray[np.float32]]:
    """Return a clip (S,) in parts of at most `max_s`, cut at the quietest place in the last 5 s of each."""
    most, searched = int(max_s * sample_rate_hz), int(SEARCHED_S * sample_rate_hz)
    width = int(PAUSE_S * sample_rate_hz)
    found = []
    while len(samples) > most:
        energy = np.convolve(samples[most - searched : most] ** 2, np.ones(width), "valid")
        cut = most - searched + int(energy.argmin()) + width // 2
        found.append(samples[:cut])
        samples = samples[cut:]
    return [*found, samples]
