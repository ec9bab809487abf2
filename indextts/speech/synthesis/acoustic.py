"""The acoustic model of the published IndexTTS-2: from semantic codes to audio.

Axes: S samples, M codes, D width of the GPT, T speech features, F their width, P mel frames of the reference,
H width of a semantic embedding, K width of a condition, Z width of the style.

    reference recording -> 22,050 Hz, at most 15 s
      -> reference mel (1, 80, P)
      -> 16,000 Hz -> Kaldi frames -> CAM++ -> style (1, Z)
                   -> w2v-BERT features (T, F), also the input of the GPT's encoders
                        -> content (1, T, H) -> length regulator -> prompt (1, P, K)
    codes (M,), latents (M, D) -> content -> mel (1, 80, F) -> BigVGAN -> samples (S,) at 22,050 Hz

What the content is, and how many mel frames F it has, differs between the published models (`bases.py`).

Utterances sound in a batch as they do alone. All arithmetic is float32, as published, unless
`DiT.set_precision` changes that of the flow matching.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from indextts.data.batch_sizing import GPU_MEMORY_SHARE
from indextts.errors import UserError
from indextts.features.campplus import CAMPPlus, load_campplus
from indextts.features.log_mel import log_mel_pairs, num_vectors
from indextts.features.mel_spectrogram import (
    KALDI_RATE_HZ,
    MEL_HOP,
    SAMPLE_RATE_HZ,
    kaldi_frames,
    reference_mel,
    resample,
)
from indextts.features.recognizers.recognizer import batches
from indextts.models.gpt.config import load_config
from indextts.speech.synthesis.acoustic_weights import (
    find_files,
    load_backend,
    load_bigvgan,
    load_s2mel,
)
from indextts.speech.synthesis.bases import acoustic_path
from indextts.speech.synthesis.bigvgan import BigVGAN
from indextts.speech.synthesis.config import load_acoustic_config
from indextts.speech.synthesis.s2mel import MelTarget, S2Mel, SolverSettings

if TYPE_CHECKING:  # it imports transformers, which takes seconds
    from indextts.features.indextts2 import IndexTTS2Backend

DEFAULT_SETTINGS = SolverSettings()
FRAME_BYTES = 500_000  # of the arrays of the vocoder for a mel frame, the largest of all networks


@dataclass(frozen=True)
class Reference:
    """The features of a reference recording; mel and prompt only for the published acoustic model.

    Args:
        features: (T, F), for `UnifiedVoice.conditioning` and `emotion`.
        style: (1, Z), for `UnifiedVoice.conditioning`.
        mel: (1, 80, P).
        prompt: (1, P, K), the content of the recording, frame by frame.
    """

    features: Tensor
    style: Tensor | None = None
    mel: Tensor | None = None
    prompt: Tensor | None = None


@dataclass(frozen=True)
class Utterance:
    """Codes to render.

    Args:
        codes: (M,), each in the codebook, up to the first stop token; may be empty.
        latents: (M, D), the GPT state that predicts each code, from `code_states`.
        reference: of the voice.
        seed: of the noise, which is the same on every device.
        first_code: number of codes before `codes` in the speech that they are part of; a multiple of
            `CODES_PER_BLOCK`. A part has the noise that its frames have in the complete speech.
    """

    codes: Tensor
    latents: Tensor
    reference: Reference
    seed: int
    first_code: int = 0


class AcousticModel:
    """All networks after the GPT, on one device."""

    def __init__(
        self,
        backend: "IndexTTS2Backend",
        s2mel: S2Mel,
        campplus: CAMPPlus,
        vocoder: BigVGAN,
    ) -> None:
        self.backend, self.s2mel, self.campplus, self.vocoder = backend, s2mel, campplus, vocoder
        self.path = acoustic_path(backend.codec, s2mel)

    @classmethod
    def load(
        cls, folder: Path, device: torch.device, backend: "IndexTTS2Backend | None" = None
    ) -> "AcousticModel":
        """Return the model with the weights in `folder`.

        Args:
            folder: see `acoustic_weights`.
            device: the device of all networks.
            backend: the speech encoder and the codec on `device`, if they are already loaded.

        Raises:
            UserError: a file is missing, cannot be read, or does not fit the others.
        """
        files = find_files(folder)
        config = load_acoustic_config(files.config)
        latent_dim = load_config(files.config).model_dim
        s2mel = load_s2mel(files.s2mel, config.s2mel, latent_dim, device)
        campplus = load_campplus(files.campplus, config.s2mel.style_encoder.dim, device)
        vocoder = load_bigvgan(files.bigvgan_config, files.bigvgan, device)
        backend = backend or load_backend(folder, device)
        width = config.s2mel.length_regulator.in_channels
        if backend.feature_dim != width:
            raise UserError(
                f"{files.config}: s2mel.length_regulator.in_channels is {width}, but the speech encoder has "
                f"{backend.feature_dim} features; use files that were published together"
            )
        return cls(backend, s2mel, campplus, vocoder)

    @torch.no_grad()
    def voice_of(self, samples: NDArray[np.float32]) -> Reference:
        """Return the voice of `samples` (S,) at SAMPLE_RATE_HZ, at least one second."""
        wave = torch.from_numpy(samples)[None].to(self._device)  # (1, S)
        wave_16k = resample(wave, SAMPLE_RATE_HZ, KALDI_RATE_HZ)[0]
        frames = kaldi_frames(wave_16k)
        features = self.features_of(wave_16k.cpu().numpy())
        mel = reference_mel(wave)  # (1, 80, P)
        return Reference(
            features=features,
            style=self.campplus((frames - frames.mean(dim=0))[None]),
            mel=mel,
            prompt=self.s2mel.stretched(self.path.prompt_content(features), mel.shape[2]),
        )

    @torch.no_grad()
    def features_of(self, samples: NDArray[np.float32]) -> Tensor:
        """Return the speech features (T, F) of `samples` (S,) at 16 kHz, with those of an odd last frame."""
        pairs = torch.from_numpy(log_mel_pairs(samples, keeps_odd_frame=True))
        features: Tensor = self.backend.encoder([pairs], [num_vectors(len(samples))])[0]
        return features

    @torch.no_grad()
    def render(
        self, utterances: Sequence[Utterance], settings: SolverSettings = DEFAULT_SETTINGS
    ) -> list[NDArray[np.float32]]:
        """Return samples at SAMPLE_RATE_HZ in [-1, 1] of each utterance, as it sounds alone.

        Utterances of similar lengths are computed together, as many as fit into the memory of a GPU. On a CPU
        each is computed alone: its matrix products are large enough, and padding would only add work.

        Args:
            utterances: in any order.
            settings: of the flow matching, and the duration factor.

        Returns:
            256 samples for each mel frame; empty without codes.

        Raises:
            ValueError: a code is not in the codebook, for example the GPT's start token.
        """
        found = [np.zeros(0, np.float32)] * len(utterances)
        spoken = [number for number, utterance in enumerate(utterances) if len(utterance.codes)]
        sizes = [
            _mel_of(utterances[number]).shape[2]
            + self.path.num_frames(len(utterances[number].codes), settings.duration_factor)
            for number in spoken
        ]
        for batch in batches(sizes, self._frames_at_once(), only_equal=False):
            numbers = [spoken[place] for place in batch]
            rendered = self.render_batch([utterances[number] for number in numbers], settings)
            for number, samples in zip(numbers, rendered, strict=True):
                found[number] = samples
        return found

    @torch.no_grad()
    def render_batch(
        self, utterances: Sequence[Utterance], settings: SolverSettings = DEFAULT_SETTINGS
    ) -> list[NDArray[np.float32]]:
        """Return the samples of utterances with codes, computed in one batch; as for `render`."""
        mels = self.s2mel.mels(
            [self._target(utterance, settings.duration_factor) for utterance in utterances], settings
        )
        lengths = torch.tensor([mel.shape[2] for mel in mels], device=self._device)
        is_padded = bool((lengths != lengths[0]).any())
        together = pad_sequence([mel[0].T for mel in mels], batch_first=True).transpose(1, 2)  # (B, 80, T)
        samples = self.vocoder(together, lengths if is_padded else None)[:, 0].cpu().numpy()
        return [row[: MEL_HOP * mel.shape[2]] for row, mel in zip(samples, mels, strict=True)]

    def _target(self, utterance: Utterance, duration_factor: float) -> MelTarget:
        codes, voice, mel = utterance.codes, utterance.reference, _mel_of(utterance)
        assert voice.prompt is not None
        assert voice.style is not None
        if not 0 <= int(codes.min()) <= int(codes.max()) < self.backend.num_codes:
            raise ValueError(f"codes must be 0 to {self.backend.num_codes - 1}, found {int(codes.max())}")
        latents = utterance.latents.to(self._device, torch.float32)
        content = self.path.content(codes.to(self._device), latents)
        first_frame = self.path.num_frames(utterance.first_code, duration_factor)
        num_frames = first_frame + self.path.num_frames(len(codes), duration_factor)
        num_bands = mel.shape[1]
        generator = torch.Generator().manual_seed(utterance.seed)
        # frame by frame, so that longer speech begins with the noise of shorter speech
        noise = torch.randn(num_frames, num_bands, generator=generator)[first_frame:].T
        noise = F.pad(noise, (mel.shape[2], 0))[None].to(self._device)  # none over the prompt
        return MelTarget(voice.prompt, content, mel, voice.style, noise)

    def _frames_at_once(self) -> float:
        """Return the largest padded size of a batch of several utterances, in mel frames."""
        if self._device.type != "cuda":
            return 0.0
        return GPU_MEMORY_SHARE * torch.cuda.mem_get_info(self._device)[0] / FRAME_BYTES

    @property
    def _device(self) -> torch.device:
        return next(self.s2mel.parameters()).device


def _mel_of(utterance: Utterance) -> Tensor:
    assert utterance.reference.mel is not None  # a reference of the built-in backend has none
    return utterance.reference.mel
