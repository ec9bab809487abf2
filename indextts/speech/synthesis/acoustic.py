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

    FOLDER/                                 files of IndexTTS-2 and of the models that it uses:
      config.yaml s2mel.pth feat1.pt feat2.pt
      wav2vec2bert_stats.pt w2v-bert-2.0/ semantic_codec/model.safetensors       (features/indextts2.py)
      campplus/campplus_cn_common.bin       of funasr/campplus
      bigvgan/config.json                   of nvidia/bigvgan_v2_22khz_80band_256x
      bigvgan/bigvgan_generator.pt

Files of other models may also be in hf_cache/ of an official installation in this folder, or in the Hugging
Face cache; nothing is downloaded. Files are read as plain tensors, memory-mapped, and never run code.

Segments sound in a batch as they do alone. All arithmetic is float32, as published, except that of the flow
matching in another type of the settings.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from indextts.commands.bases import BASES, base_in
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
from indextts.features.published_files import files_of, find_published
from indextts.features.recognizers.recognizer import batches
from indextts.models.gpt.config import load_config
from indextts.speech.synthesis.bases import AcousticPath
from indextts.speech.synthesis.bigvgan import BigVGAN, load_bigvgan
from indextts.speech.synthesis.config import load_acoustic_config
from indextts.speech.synthesis.renderer import Reference, Segment, load_speech
from indextts.speech.synthesis.s2mel import MelTarget, S2Mel, SolverSettings, load_s2mel

if TYPE_CHECKING:  # it imports transformers, which takes seconds
    from indextts.features.indextts2 import IndexTTS2Backend

DEFAULT_SETTINGS = SolverSettings()
FRAME_BYTES = 500_000  # of the arrays of the vocoder for a mel frame, the largest of all networks
CAMPPLUS = "campplus/campplus_cn_common.bin"


class AcousticModel:
    """All networks after the GPT, on one device: the renderer of published codes."""

    name = "indextts2"
    sample_rate_hz = SAMPLE_RATE_HZ
    tail_s = 0.2

    def __init__(
        self,
        backend: "IndexTTS2Backend",
        s2mel: S2Mel,
        campplus: CAMPPlus,
        vocoder: BigVGAN,
        settings: SolverSettings = DEFAULT_SETTINGS,
    ) -> None:
        self.backend, self.s2mel, self.campplus, self.vocoder = backend, s2mel, campplus, vocoder
        self.path, self.settings = AcousticPath(backend.codec, s2mel), settings
        s2mel.cfm.estimator.set_precision(settings.dtype)

    @classmethod
    def load(
        cls, folder: Path, device: torch.device, settings: SolverSettings = DEFAULT_SETTINGS
    ) -> "AcousticModel":
        """Return the model with the weights in the folder of published files.

        Raises:
            UserError: a file is missing, cannot be read, or does not fit the others.
        """
        from indextts.features import indextts2

        config_path, s2mel_path, campplus_path, bigvgan_config, bigvgan_path = find_files(folder)
        config = load_acoustic_config(config_path)
        s2mel = load_s2mel(s2mel_path, config.s2mel, load_config(config_path).model_dim, device)
        campplus = load_campplus(campplus_path, config.s2mel.style_encoder.dim, device)
        vocoder = load_bigvgan(bigvgan_config, bigvgan_path, device)
        backend = indextts2.load(config_path, *find_backend(folder), device)
        width = config.s2mel.length_regulator.in_channels
        if backend.feature_dim != width:
            raise UserError(
                f"{config_path}: s2mel.length_regulator.in_channels is {width}, but the speech encoder has "
                f"{backend.feature_dim} features; use files that were published together"
            )
        return cls(backend, s2mel, campplus, vocoder, settings)

    @property
    def num_codes(self) -> int:
        return self.backend.num_codes

    def num_samples(self, num_codes: int) -> int:
        return MEL_HOP * self.path.num_frames(num_codes, self.settings.duration_factor)

    def read_reference(self, recording: Path) -> Reference:
        return self.voice_of(load_speech(recording, SAMPLE_RATE_HZ))

    def emotion_features(self, recording: Path) -> Tensor:
        # as published, resampled to this rate directly, also the voice's own recording
        return self.features_of(load_speech(recording, KALDI_RATE_HZ))

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
    def render(self, spoken: Sequence[tuple[Segment, Reference]]) -> list[NDArray[np.float32]]:
        """Return samples at SAMPLE_RATE_HZ in [-1, 1] of each segment, as it sounds alone.

        Segments of similar lengths are computed together, as many as fit into the memory of a GPU. On a CPU
        each is computed alone: its matrix products are large enough, and padding would only add work.

        Returns:
            256 samples for each mel frame; empty without codes.

        Raises:
            ValueError: a code is not in the codebook, for example the GPT's start token.
        """
        found = [np.zeros(0, np.float32)] * len(spoken)
        targets = {
            number: self._target(segment, reference)
            for number, (segment, reference) in enumerate(spoken)
            if len(segment.codes)
        }
        numbers = list(targets)
        sizes = [target.noise.shape[2] for target in targets.values()]
        for batch in batches(sizes, self._frames_at_once(), only_equal=False):
            rendered = self.render_batch([targets[numbers[place]] for place in batch])
            for place, samples in zip(batch, rendered, strict=True):
                found[numbers[place]] = samples
        return found

    @torch.no_grad()
    def render_batch(self, targets: Sequence[MelTarget]) -> list[NDArray[np.float32]]:
        """Return the samples of each target, computed in one batch; as for `render`."""
        mels = self.s2mel.mels(targets, self.settings)
        lengths = torch.tensor([mel.shape[2] for mel in mels], device=self._device)
        is_padded = bool((lengths != lengths[0]).any())
        together = pad_sequence([mel[0].T for mel in mels], batch_first=True).transpose(1, 2)  # (B, 80, T)
        samples = self.vocoder(together, lengths if is_padded else None)[:, 0].cpu().numpy()
        return [row[: MEL_HOP * mel.shape[2]] for row, mel in zip(samples, mels, strict=True)]

    def _target(self, segment: Segment, voice: Reference) -> MelTarget:
        codes, mel, factor = segment.codes, voice.mel, self.settings.duration_factor
        # a reference of the built-in backend has none of them
        assert mel is not None
        assert voice.prompt is not None
        assert voice.style is not None
        if not 0 <= int(codes.min()) <= int(codes.max()) < self.backend.num_codes:
            raise ValueError(f"codes must be 0 to {self.backend.num_codes - 1}, found {int(codes.max())}")
        latents = segment.latents.to(self._device, torch.float32)
        content = self.path.content(codes.to(self._device), latents)
        first_frame = self.path.num_frames(segment.first_code, factor)
        num_frames = first_frame + self.path.num_frames(len(codes), factor)
        num_bands = mel.shape[1]
        generator = torch.Generator().manual_seed(segment.seed)
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


def find_files(folder: Path) -> list[Path]:
    """Return the paths of config, s2mel, CAM++, and config and weights of BigVGAN; all of them exist.

    Raises:
        UserError: files are missing; the message names each and the command that downloads them.
    """
    places = ("config.yaml", "s2mel.pth", CAMPPLUS, "bigvgan/config.json", "bigvgan/bigvgan_generator.pt")
    base = base_in(folder)
    sources = {file.place: file.repository for file in files_of(base)}
    # the files of a base are never mixed with those of a cache
    paths = {
        place: find_published(folder / place, sources[place] if "/" in place else "") for place in places
    }
    missing = [f"{path} of {sources[place]}" for place, path in paths.items() if not path.is_file()]
    if missing:
        raise UserError(
            f"files for speech are missing ({', '.join(missing)}); download them with "
            f"tools/download_checkpoints.py --what all --base {base.name} --output-dir {folder}"
        )
    return list(paths.values())


def find_backend(folder: Path) -> tuple[Path, Path, Path]:
    """Return the paths of speech encoder, codec and statistics; errors as for `indextts2.find_files`."""
    from indextts.features import indextts2

    codecs = [find_published(folder / base.codec_file) for base in (base_in(folder), *BASES.values())]
    codec = next((path for path in codecs if path.is_file()), codecs[0])
    stats = folder / "wav2vec2bert_stats.pt"
    return indextts2.find_files(folder / "w2v-bert-2.0", codec, stats, look_in_cache=True), codec, stats
