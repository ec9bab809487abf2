"""Loading the published files of the acoustic model, each into its network.

    FOLDER/                                 files of IndexTTS-2 and of the models that it uses:
      config.yaml s2mel.pth feat1.pt feat2.pt
      wav2vec2bert_stats.pt w2v-bert-2.0/ semantic_codec/model.safetensors       (features/indextts2.py)
      campplus/campplus_cn_common.bin       of funasr/campplus
      bigvgan/config.json                   of nvidia/bigvgan_v2_22khz_80band_256x
      bigvgan/bigvgan_generator.pt

Files of other models may also be in hf_cache/ of an official installation in this folder. Files missing in
`campplus` and `bigvgan` are taken from the Hugging Face cache; nothing is downloaded. Files are read as plain
tensors, memory-mapped, and never run code.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import huggingface_hub
import torch
from torch import Tensor

from indextts.commands.bases import BASES, base_in
from indextts.errors import UserError
from indextts.features.mel_spectrogram import MEL_HOP, NUM_MELS
from indextts.features.published_files import find_published
from indextts.features.weights import fill_weights
from indextts.models.checkpoint import read_file
from indextts.speech.synthesis.bigvgan import BigVGAN
from indextts.speech.synthesis.config import S2MelConfig, load_bigvgan_config
from indextts.speech.synthesis.s2mel import S2Mel

if TYPE_CHECKING:  # it imports transformers, which takes seconds
    from indextts.features.indextts2 import IndexTTS2Backend

HUB_OF_FOLDER = {"campplus": "funasr/campplus", "bigvgan": "nvidia/bigvgan_v2_22khz_80band_256x"}
S2MEL_ADVICE = "use s2mel.pth and config.yaml of the same published model"
BIGVGAN_ADVICE = f"use config.json and bigvgan_generator.pt of {HUB_OF_FOLDER['bigvgan']}"
S2MEL_PARTS = ("cfm", "length_regulator", "gpt_layer")


@dataclass(frozen=True)
class AcousticFiles:
    """The paths of the files of the acoustic model."""

    config: Path
    s2mel: Path
    campplus: Path
    bigvgan_config: Path
    bigvgan: Path


def find_files(folder: Path) -> AcousticFiles:
    """Return the paths of the files; all of them exist.

    Raises:
        UserError: files are missing; the message lists each with its download source.
    """
    files = AcousticFiles(
        config=folder / "config.yaml",
        s2mel=folder / "s2mel.pth",
        campplus=campplus_file(folder),
        bigvgan_config=_here_or_cached(folder / "bigvgan/config.json"),
        bigvgan=_here_or_cached(folder / "bigvgan/bigvgan_generator.pt"),
    )
    repository = base_in(folder).repository
    missing = [
        f"{path} is missing: download it from {HUB_OF_FOLDER.get(path.parent.name, repository)}"
        for path in vars(files).values()
        if not path.is_file()
    ]
    if missing:
        raise UserError("; ".join(missing))
    return files


def campplus_file(folder: Path) -> Path:
    """Return the path of the CAM++ weights, whether or not the file exists."""
    return _here_or_cached(folder / "campplus/campplus_cn_common.bin")


def _here_or_cached(path: Path) -> Path:
    """Return `path`, or the path of the file in a cache if only that exists."""
    found = find_published(path)
    if found.is_file():
        return found
    cached = huggingface_hub.try_to_load_from_cache(HUB_OF_FOLDER[path.parent.name], path.name)
    return Path(cached) if isinstance(cached, str) else path


def load_s2mel(path: Path, config: S2MelConfig, latent_dim: int, device: torch.device) -> S2Mel:
    """Return the model with the weights under `net` in a s2mel.pth.

    Raises:
        UserError: the file cannot be read, or a tensor is missing, unexpected or of the wrong shape.
    """
    net = read_file(path).get("net")
    if not isinstance(net, dict) or not all(isinstance(net.get(part), dict) for part in S2MEL_PARTS):
        raise UserError(f"{path}: has no {', '.join(S2MEL_PARTS)} under 'net'; {S2MEL_ADVICE}")
    weights = {
        f"{part}.{name.removeprefix('module.')}": tensor
        for part in S2MEL_PARTS
        for name, tensor in net[part].items()
    }
    with torch.device("meta"):
        model = S2Mel(config, latent_dim)
    fill_weights(model, _tensors(weights), str(path), S2MEL_ADVICE, device)
    return model


def load_bigvgan(config: Path, path: Path, device: torch.device) -> BigVGAN:
    """Return BigVGAN with the weights under `generator` in a file; errors as for `load_s2mel`."""
    with torch.device("meta"):
        model = BigVGAN(load_bigvgan_config(config))
    num_mels, num_samples = model.config.num_mels, model.config.samples_per_frame
    if (num_mels, num_samples) != (NUM_MELS, MEL_HOP):
        raise UserError(
            f"{config}: makes {num_samples} samples from a frame of {num_mels} mel bands, but IndexTTS-2 "
            f"needs {MEL_HOP} from {NUM_MELS}; {BIGVGAN_ADVICE}"
        )
    weights = read_file(path).get("generator")
    if not isinstance(weights, dict):
        raise UserError(f"{path}: has no weights under 'generator'; {BIGVGAN_ADVICE}")
    fill_weights(model, _tensors(weights), str(path), BIGVGAN_ADVICE, device)
    return model


def load_backend(folder: Path, device: torch.device) -> "IndexTTS2Backend":
    """Return the speech encoder and the codec; errors as for `indextts2.find_files` and `indextts2.load`."""
    from indextts.features import indextts2

    encoder, codec, stats = find_backend(folder)
    return indextts2.load(folder / "config.yaml", encoder, codec, stats, device)


def find_backend(folder: Path) -> tuple[Path, Path, Path]:
    """Return the paths of speech encoder, codec and statistics; errors as for `indextts2.find_files`."""
    from indextts.features import indextts2

    own = base_in(folder)
    codecs = [find_published(folder / base.codec_file) for base in (own, *BASES.values())]
    codec = next((path for path in codecs if path.is_file()), codecs[0])
    stats = folder / "wav2vec2bert_stats.pt"
    return indextts2.find_files(folder / "w2v-bert-2.0", codec, stats, look_in_cache=True), codec, stats


def _tensors(values: Mapping[str, Any]) -> dict[str, Tensor]:
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}
