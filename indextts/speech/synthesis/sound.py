"""From a recording to a voice and from codes to sound, with either speech backend.

Axes: S samples, M codes, T speech features, F their width, D width of the GPT.

                 voice                            sound
    builtin      log-mel features at 24 kHz       centroids and Griffin-Lim, 24 kHz (griffin_lim.py)
    indextts2    w2v-BERT, CAM++, mel             flow matching and BigVGAN, 22,050 Hz (acoustic.py)

Which one speaks is no choice: codes mean something only to the backend that made the run's features.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from indextts.data.feature_store import read_info
from indextts.data.networks import BACKEND_NAME, NUM_SPECIAL_CODES
from indextts.errors import UserError
from indextts.features import builtin
from indextts.features import mel_spectrogram as front_end
from indextts.features.backend import SAMPLE_RATE_HZ as BUILTIN_RATE_HZ
from indextts.models.gpt.config import load_config
from indextts.speech.synthesis.acoustic import AcousticModel, Voice
from indextts.speech.synthesis.griffin_lim import speak
from indextts.speech.synthesis.reference import load_speech
from indextts.speech.synthesis.s2mel import SolverSettings
from indextts.speech.synthesis.trained import TrainedModel
from indextts.system.json_lines import read_json_lines


@dataclass(frozen=True)
class Heard:
    """What is kept of a recording.

    Args:
        features: (T, F), for `UnifiedVoice.conditioning` and `emotion`.
        voice: what the published acoustic half needs besides.
    """

    features: Tensor
    voice: Voice | None = None


class Sound(Protocol):
    """A backend, with what makes sound of its codes."""

    name: str
    sample_rate_hz: int

    @property
    def num_codes(self) -> int:
        """Return how many codes there are: 0 to num_codes - 1."""

    def hear(self, recording: Path) -> Heard:
        """Return what is kept of a recording in which somebody speaks; a UserError where nobody does."""

    def emotion_features(self, recording: Path) -> Tensor:
        """Return the features (T, F) of a recording whose emotion is taken; errors as for `hear`."""

    def render(self, codes: Tensor, latents: Tensor, heard: Heard, seed: int) -> NDArray[np.float32]:
        """Return samples (S,) of codes (M,), each below `num_codes`, and of the GPT's latents (M, D)."""


class BuiltinSound:
    """Rough sound, with nothing to download; it has no voice but that of the codes."""

    name = "builtin"
    sample_rate_hz = BUILTIN_RATE_HZ

    def __init__(self, backend: builtin.BuiltinBackend, device: torch.device) -> None:
        self.backend, self.device = backend, device

    @property
    def num_codes(self) -> int:
        return self.backend.num_codes

    def hear(self, recording: Path) -> Heard:
        return Heard(self.emotion_features(recording))

    def emotion_features(self, recording: Path) -> Tensor:
        return self.backend.features(load_speech(recording, BUILTIN_RATE_HZ)).to(self.device)

    def render(self, codes: Tensor, latents: Tensor, heard: Heard, seed: int) -> NDArray[np.float32]:
        return speak(self.backend, codes.cpu(), seed)


class PublishedSound:
    """The acoustic half of the published model."""

    name = "indextts2"
    sample_rate_hz = front_end.SAMPLE_RATE_HZ

    def __init__(self, acoustic: AcousticModel, settings: SolverSettings) -> None:
        self.acoustic, self.settings = acoustic, settings

    @property
    def num_codes(self) -> int:
        return self.acoustic.backend.num_codes

    def hear(self, recording: Path) -> Heard:
        voice = self.acoustic.voice_of(load_speech(recording, front_end.SAMPLE_RATE_HZ))
        return Heard(voice.features, voice)

    def emotion_features(self, recording: Path) -> Tensor:
        return self.acoustic.features_of(load_speech(recording, front_end.KALDI_RATE_HZ))

    def render(self, codes: Tensor, latents: Tensor, heard: Heard, seed: int) -> NDArray[np.float32]:
        assert heard.voice is not None
        return self.acoustic.render(codes, latents, heard.voice, seed=seed, settings=self.settings)


def load_sound(
    trained: TrainedModel,
    features: Path | None,
    models: Path,
    device: torch.device,
    settings: SolverSettings,
) -> Sound:
    """Return the backend whose codes a model speaks.

    Args:
        trained: the model.
        features: the feature store that it was trained on, or its folder; None to ask the run's pairs, and
            for a model folder a builtin.npz in it.
        models: the folder with the published files.
        device: where it computes; the builtin backend needs none.
        settings: of the published acoustic half.

    Raises:
        UserError: files are missing, cannot be read, or are not those of the model's codes.
    """
    fitted = find_builtin(trained, features)
    sound: Sound
    if fitted is not None:
        backend = builtin.load(fitted)
        if trained.codes not in (None, backend.identity):
            raise UserError(
                f"{fitted}: was made anew since {trained.source} was trained, and its codes are others; give "
                "the features that it was trained on with --features, or train on those of today"
            )
        sound, source = BuiltinSound(backend, device), fitted
    else:
        acoustic = AcousticModel.load(models, device)
        sound, source = PublishedSound(acoustic, settings), models
        width = load_config(models / "config.yaml").model_dim
        if width != trained.gpt.config.model_dim:
            raise UserError(
                f"{models}: its s2mel.pth reads a GPT of width {width}, {trained.source} has "
                f"{trained.gpt.config.model_dim}; give the files that belong to its base with --models"
            )
    expected = trained.gpt.config.number_mel_codes - NUM_SPECIAL_CODES
    if sound.num_codes != expected:
        raise UserError(
            f"{source}: makes sound of {sound.num_codes} codes, {trained.source} speaks {expected}; give the "
            "features that it was trained on with --features"
        )
    return sound


def find_builtin(trained: TrainedModel, features: Path | None) -> Path | None:
    """Return the file of the builtin backend that made a model's features; None for the published one.

    Raises:
        UserError: nothing says what made them.
    """
    folder = features
    if features is None:
        folder = _store_of(trained) if trained.pairs else trained.source.parent
    assert folder is not None
    if not folder.exists():
        raise UserError(
            f"{folder}: the features that {trained.source} was trained on are not there; give their folder "
            "with --features"
        )
    if folder.is_dir():
        fitted = folder / BACKEND_NAME
        return fitted if fitted.is_file() else None
    return folder.parent / BACKEND_NAME if read_info(folder).backend == BuiltinSound.name else None


def _store_of(trained: TrainedModel) -> Path:
    """Return the feature store that the run's first pairs file names."""
    path = trained.pairs[0]
    if not path.is_file():
        raise UserError(
            f"{path}: the pairs that {trained.source} was trained on are not there any more; give the folder "
            "of its features with --features"
        )
    _, record = next(read_json_lines(path))
    return path.parent.resolve() / str(record.get("features", ""))
