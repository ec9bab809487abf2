"""Generated codes as audio, in the voice of a recording: the interface of both speech backends.

Axes: S samples, M codes, T speech features, F their width, D width of the GPT.

                 reference recording              audio
    builtin      log-mel features at 24 kHz       decoder and vocoder, 24 kHz (source_filter.py)
    indextts2    w2v-BERT, CAM++, mel             flow matching and BigVGAN, 22,050 Hz (acoustic.py)

The user cannot choose the backend: codes have a meaning only in the backend that made the run's features.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from indextts.errors import UserError
from indextts.features import builtin
from indextts.features.audio import (
    MAX_REFERENCE_S,
    SHORT_REFERENCE_S,
    audio_duration_s,
    load_audio,
    require_reference_length,
)
from indextts.features.backend import SAMPLE_RATE_HZ as BUILTIN_RATE_HZ
from indextts.features.vad import SAMPLE_RATE_HZ as VAD_RATE_HZ
from indextts.features.vad import find_speech
from indextts.speech.synthesis import source_filter

logger = logging.getLogger(__name__)

MIN_LOUDNESS_DB = -50.0  # of the loudest 100 ms, relative to full scale


@dataclass(frozen=True)
class Reference:
    """The features of a reference recording; mel and prompt only for the published acoustic model."""

    features: Tensor  # (T, F), for `UnifiedVoice.conditioning` and `emotion`
    style: Tensor | None = None  # (1, Z), for `UnifiedVoice.conditioning`
    mel: Tensor | None = None  # (1, 80, P)
    prompt: Tensor | None = None  # (1, P, K), the content of the recording, frame by frame


@dataclass(frozen=True)
class Segment:
    """The generated codes of a part of a text.

    Args:
        text: normalised.
        codes: (M,), all in the codebook; empty where the model stopped at once.
        latents: (M, D), the GPT states that predict the codes; (M, 0) for a base that does not use them.
        has_stopped: whether the model generated a stop token before the limit.
        seed: of the sampling and of the rendering, whose noise is the same on every device.
        first_code: number of codes before `codes` in the speech that they are a window of; a multiple of
            `CODES_PER_BLOCK`. A window has the noise that its frames have in the complete speech.
    """

    text: str
    codes: Tensor
    latents: Tensor
    has_stopped: bool
    seed: int
    first_code: int = 0


class Renderer(Protocol):
    """A speech backend that renders its own codes as audio.

    Attributes:
        tail_s: seconds at the end of speech whose sound changes much with the codes that follow.
    """

    name: str
    sample_rate_hz: int
    tail_s: float

    @property
    def num_codes(self) -> int:
        """Return the size of the codebook: codes are 0 to num_codes - 1."""

    def read_reference(self, recording: Path) -> Reference:
        """Return the features of a recording.

        Raises:
            UserError: the recording cannot be used, or contains no speech.
        """

    def emotion_features(self, recording: Path) -> Tensor:
        """Return the features (T, F) of an emotion recording; errors as for `read_reference`."""

    def render(self, spoken: Sequence[tuple[Segment, Reference]]) -> list[NDArray[np.float32]]:
        """Return the samples (S,) of each segment in its voice, empty for one without codes."""

    def num_samples(self, num_codes: int) -> int:
        """Return the number of samples of a segment with so many codes."""


class BuiltinRenderer:
    """The built-in backend: audio of modest quality, without downloads."""

    name = "builtin"
    sample_rate_hz = BUILTIN_RATE_HZ
    tail_s = 0.4

    def __init__(self, backend: builtin.BuiltinBackend, device: torch.device, style_dim: int) -> None:
        self.backend, self.device, self.style_dim = backend, device, style_dim

    @property
    def num_codes(self) -> int:
        return self.backend.num_codes

    def read_reference(self, recording: Path) -> Reference:
        samples = load_speech(recording, BUILTIN_RATE_HZ)
        style = builtin.style_vector(samples, self.style_dim)[None]
        return Reference(self.backend.features(samples).to(self.device), style=style.to(self.device))

    def emotion_features(self, recording: Path) -> Tensor:
        return self.backend.features(load_speech(recording, BUILTIN_RATE_HZ)).to(self.device)

    def render(self, spoken: Sequence[tuple[Segment, Reference]]) -> list[NDArray[np.float32]]:
        frames_per_code = builtin.FRAMES_PER_FEATURE * self.backend.features_per_code
        return [
            source_filter.render(
                self.backend.parameters(each.codes.cpu(), builtin.voice_of(reference.features)),
                each.seed,
                each.first_code * frames_per_code,
            )
            for each, reference in spoken
        ]

    def num_samples(self, num_codes: int) -> int:
        return builtin.SAMPLES_PER_FEATURE * self.backend.features_per_code * num_codes


def load_speech(path: Path, rate_hz: int) -> NDArray[np.float32]:
    """Return the first 15 s of a recording that contains speech: (S,) at `rate_hz`.

    Raises:
        UserError: the recording cannot be read, is too short or too long, or these 15 s are silent or contain
            no speech.
    """
    duration_s = audio_duration_s(path)
    require_reference_length(path, duration_s)
    if duration_s < SHORT_REFERENCE_S:
        logger.warning(
            "%s lasts only %.1f s; a longer reference describes the voice better", path, duration_s
        )
    if duration_s > MAX_REFERENCE_S:
        logger.warning("%s lasts %.1f s; only the first %d s are used", path, duration_s, MAX_REFERENCE_S)
    samples = load_audio(path, rate_hz)[: MAX_REFERENCE_S * rate_hz]
    if _loudness_db(samples, rate_hz) < MIN_LOUDNESS_DB:
        raise UserError(
            f"{path}: silent in the first {MAX_REFERENCE_S} s (the loudest 100 ms are below "
            f"{MIN_LOUDNESS_DB:g} dB of full scale); use a recording with speech"
        )
    if not find_speech(soxr.resample(samples, rate_hz, VAD_RATE_HZ)):
        raise UserError(
            f"{path}: no speech found in the first {MAX_REFERENCE_S} s; use a recording of one speaker "
            "without music"
        )
    return samples


def _loudness_db(samples: NDArray[np.float32], rate_hz: int) -> float:
    """Return the level of the loudest 100 ms."""
    window = rate_hz // 10
    whole = samples[: len(samples) // window * window].reshape(-1, window)
    loudest = float(np.sqrt((whole.astype(np.float64) ** 2).mean(axis=1)).max(initial=0.0))
    return 20 * math.log10(max(loudest, 1e-10))
