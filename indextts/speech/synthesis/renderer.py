"""Reading a reference recording and rendering codes as audio, with either speech backend.

Axes: S samples, M codes, T speech features, F their width, D width of the GPT.

                 reference recording              audio
    builtin      log-mel features at 24 kHz       centroids and Griffin-Lim, 24 kHz (griffin_lim.py)
    indextts2    w2v-BERT, CAM++, mel             flow matching and BigVGAN, 22,050 Hz (acoustic.py)

The user cannot choose the backend: codes have a meaning only in the backend that made the run's features.
"""

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from indextts.commands.bases import Base
from indextts.data.bases import require_rate_of
from indextts.data.feature_store import read_info
from indextts.data.networks import BACKEND_NAME, NUM_SPECIAL_CODES
from indextts.errors import RESUME_REFUSED, UserError
from indextts.features import builtin
from indextts.features import mel_spectrogram as front_end
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
from indextts.models.gpt.config import load_config
from indextts.speech.synthesis.acoustic import AcousticModel, Reference, Utterance
from indextts.speech.synthesis.griffin_lim import render_codes
from indextts.speech.synthesis.s2mel import SolverSettings
from indextts.speech.synthesis.trained_model import TrainedModel
from indextts.system.json_lines import read_json_lines

logger = logging.getLogger(__name__)

MIN_LOUDNESS_DB = -50.0  # of the loudest 100 ms, relative to full scale


class Renderer(Protocol):
    """A speech backend that renders its own codes as audio."""

    name: str
    sample_rate_hz: int

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

    def render(self, utterances: Sequence[Utterance]) -> list[NDArray[np.float32]]:
        """Return the samples (S,) of each utterance, empty for one without codes."""

    def num_samples(self, num_codes: int) -> int:
        """Return the number of samples of an utterance with so many codes."""


class BuiltinRenderer:
    """The built-in backend: low-quality audio without downloads; the codes alone define the voice."""

    name = "builtin"
    sample_rate_hz = BUILTIN_RATE_HZ

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

    def render(self, utterances: Sequence[Utterance]) -> list[NDArray[np.float32]]:
        return [
            render_codes(self.backend, each.codes.cpu(), each.seed, each.first_code) for each in utterances
        ]

    def num_samples(self, num_codes: int) -> int:
        return builtin.SAMPLES_PER_FEATURE * self.backend.features_per_code * num_codes


class PublishedRenderer:
    """The acoustic model of the published IndexTTS-2."""

    name = "indextts2"
    sample_rate_hz = front_end.SAMPLE_RATE_HZ

    def __init__(self, acoustic: AcousticModel, settings: SolverSettings) -> None:
        self.acoustic, self.settings = acoustic, settings
        acoustic.s2mel.cfm.estimator.set_precision(settings.dtype)

    @property
    def num_codes(self) -> int:
        return self.acoustic.backend.num_codes

    def read_reference(self, recording: Path) -> Reference:
        return self.acoustic.voice_of(load_speech(recording, front_end.SAMPLE_RATE_HZ))

    def emotion_features(self, recording: Path) -> Tensor:
        # as published, resampled to this rate directly, also the voice's own recording
        return self.acoustic.features_of(load_speech(recording, front_end.KALDI_RATE_HZ))

    def render(self, utterances: Sequence[Utterance]) -> list[NDArray[np.float32]]:
        return self.acoustic.render(utterances, self.settings)

    def num_samples(self, num_codes: int) -> int:
        return front_end.MEL_HOP * self.acoustic.path.num_frames(num_codes, self.settings.duration_factor)


def load_renderer(
    trained: TrainedModel,
    features: Path | None,
    models: Path,
    device: torch.device,
    settings: SolverSettings,
    loaded: Renderer | None = None,
) -> Renderer:
    """Return the renderer for the codes of a model.

    Args:
        trained: the model.
        features: the feature store that the model was trained on, or its folder; None to take the store that
            the run's pairs name, or builtin.npz in a model folder.
        models: the folder with the published files.
        device: the device of the published acoustic model; the built-in backend runs on the CPU.
        settings: of the published acoustic model.
        loaded: an earlier result for the same `models`, `device` and `settings`, which is returned if the
            model has its codes.

    Raises:
        UserError: files are missing, cannot be read, or do not belong to the model's codes.
    """
    fitted = find_builtin_backend(trained, features)
    renderer: Renderer
    if fitted is not None:
        backend = builtin.load(fitted)
        if trained.codes not in (None, backend.identity):
            raise UserError(
                f"{fitted}: was regenerated after {trained.source} was trained, so its codes differ; use "
                "the features that the model was trained on with --features, or train again"
            )
        require_rate_of(trained.gpt.config.of_base, backend, fitted)
        renderer = BuiltinRenderer(backend, device, trained.gpt.config.style_dim)
        source = fitted
    else:
        if not isinstance(loaded, PublishedRenderer):
            loaded = PublishedRenderer(AcousticModel.load(models, device), settings)
        _require_base(loaded.acoustic.path.base, trained, models, settings)
        renderer, source = loaded, models
        width = load_config(models / "config.yaml").model_dim
        if width != trained.gpt.config.model_dim:
            raise UserError(
                f"{models}: s2mel.pth needs a GPT of width {width}, but {trained.source} has width "
                f"{trained.gpt.config.model_dim}; use the files of its base model with --models"
            )
    expected = trained.gpt.config.number_mel_codes - NUM_SPECIAL_CODES
    if renderer.num_codes != expected:
        raise UserError(
            f"{source}: has {renderer.num_codes} codes, but {trained.source} has {expected}; use the "
            "features that the model was trained on with --features"
        )
    return renderer


def _require_base(base: Base, trained: TrainedModel, models: Path, settings: SolverSettings) -> None:
    """Raise a UserError unless the acoustic model belongs to the GPT's base and has the asked settings."""
    own = trained.gpt.config.of_base
    if base != own:
        raise UserError(
            f"{models}: the codec is that of {base.title}, but {trained.source} is a GPT of {own.title}; use "
            f"the published files of {own.title} with --models",
            RESUME_REFUSED,
        )
    if settings.duration_factor != 1 and not base.has_duration_factor:
        raise UserError(
            f"--duration-factor {settings.duration_factor:g}: {base.title} has no duration factor; leave it "
            "at 1"
        )


def find_builtin_backend(trained: TrainedModel, features: Path | None) -> Path | None:
    """Return the file of the built-in backend that made a model's features; None for the published backend.

    Raises:
        UserError: the features are missing, so that their backend is unknown.
    """
    folder = features
    if features is None:
        folder = _store_of(trained) if trained.pairs else trained.source.parent
    assert folder is not None
    if not folder.exists():
        raise UserError(
            f"{folder}: not found; {trained.source} was trained on these features: pass their folder with "
            "--features"
        )
    if folder.is_dir():
        fitted = folder / BACKEND_NAME
        return fitted if fitted.is_file() else None
    return folder.parent / BACKEND_NAME if read_info(folder).backend == BuiltinRenderer.name else None


def _store_of(trained: TrainedModel) -> Path:
    """Return the feature store named in the run's first pairs file."""
    path = trained.pairs[0]
    if not path.is_file():
        raise UserError(
            f"{path}: not found; {trained.source} was trained on these pairs: pass the folder of its "
            "features with --features"
        )
    _, record = next(read_json_lines(path))
    return path.parent.resolve() / str(record.get("features", ""))


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
