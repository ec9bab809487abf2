"""Differences of the published models in preprocessing: the codec's file, and the style vector.

IndexTTS-2.5 has the style vector of CAM++ as its speaker condition. It is computed from the first 15 s of a
recording at the published rates, while IndexTTS-2.0 encodes the features that the codes come from.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from indextts.commands.bases import Base
from indextts.commands.data import Preprocess
from indextts.errors import RESUME_REFUSED, UserError
from indextts.features.audio import load_audio
from indextts.features.campplus import load_campplus, style_vector
from indextts.features.mel_spectrogram import KALDI_RATE_HZ, SAMPLE_RATE_HZ, resample
from indextts.features.semantic_codec import SemanticCodec
from indextts.models.gpt.config import GPTConfig

MAX_STYLE_S = 15  # as published

# The style vector (Z,) of a recording, None for less than a second.
StyleOf = Callable[[Path], Tensor | None]


def codec_path(command: Preprocess, base: Base) -> Path:
    """Return the file of the codec: the typed one, or that of the base beside the default."""
    default = Preprocess.model_fields["semantic_codec"].default
    if command.semantic_codec != default:
        return command.semantic_codec
    folder: Path = default.parents[1]
    return folder / base.codec_file


def require_codec_of(base: Base, codec: SemanticCodec, path: Path) -> None:
    """Raise a UserError unless the codec has the rate of the base."""
    num_features = 2 * base.features_per_code
    if int(codec.num_codes(torch.tensor(num_features))) != 2:
        raise UserError(
            f"--semantic-codec {path}: not the codec of {base.title}, whose GPT --gpt-checkpoint has; use "
            f"{base.codec_file} as published with it",
            RESUME_REFUSED,
        )


def require_possible(command: Preprocess, config: GPTConfig) -> None:
    """Raise a UserError if the command cannot encode for the base of its checkpoint."""
    base = config.of_base
    if base.condition != "style":
        return
    for flag, value, needed in (
        ("backend", command.backend, "indextts2"),
        ("engine", command.engine, "local"),
    ):
        if value != needed:
            raise UserError(f"--{flag} {value}: features for {base.title} need --{flag} {needed}")


def load_style_encoder(command: Preprocess, config: GPTConfig, device: torch.device) -> StyleOf | None:
    """Return the function that computes style vectors; None for a base that needs none.

    Raises:
        UserError: the file of CAM++ cannot be read or has other tensors.
    """
    if config.of_base.condition != "style":
        return None
    network = load_campplus(command.campplus, config.style_dim, device)

    def style_of(path: Path) -> Tensor | None:
        samples = torch.from_numpy(load_audio(path, SAMPLE_RATE_HZ)[: MAX_STYLE_S * SAMPLE_RATE_HZ])
        at_16_khz = resample(samples[None], SAMPLE_RATE_HZ, KALDI_RATE_HZ)[0]
        return style_vector(network, at_16_khz.numpy())

    return style_of
