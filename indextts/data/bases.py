"""Differences of the published models in preprocessing: the codec's file, its rate, and the style vector.

IndexTTS-2.5 has the style vector of CAM++ as its speaker condition. It is computed from the first 15 s of a
recording at the published rates, while IndexTTS-2.0 encodes the features that the codes come from. The
built-in backend has a style vector of its own.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from indextts.commands.bases import FEATURES_PER_SECOND, Base
from indextts.commands.data import Preprocess
from indextts.errors import RESUME_REFUSED, UserError
from indextts.features.audio import load_audio
from indextts.features.backend import SAMPLE_RATE_HZ as BUILTIN_RATE_HZ
from indextts.features.builtin import BuiltinBackend
from indextts.features.builtin import style_vector as builtin_style
from indextts.features.campplus import load_campplus, style_vector
from indextts.features.mel_spectrogram import KALDI_RATE_HZ, SAMPLE_RATE_HZ, resample
from indextts.features.published_files import find_published
from indextts.features.semantic_codec import SemanticCodec
from indextts.models.gpt.config import GPTConfig

MAX_STYLE_S = 15  # as published

# The style vector (Z,) of a recording, None for less than a second.
StyleOf = Callable[[Path], Tensor | None]


def codec_path(command: Preprocess, base: Base) -> Path:
    """Return the file of the codec: the typed one, or that of the base beside the default."""
    path: Path = Preprocess.model_fields["semantic_codec"].default
    is_typed = command.semantic_codec != path
    return find_published(command.semantic_codec if is_typed else path.parents[1] / base.codec_file)


def require_codec_of(base: Base, codec: SemanticCodec, path: Path) -> None:
    """Raise a UserError unless the codec has the rate of the base."""
    num_features = 2 * base.features_per_code
    if int(codec.num_codes(torch.tensor(num_features))) != 2:
        raise UserError(
            f"--semantic-codec {path}: not the codec of {base.title}, whose GPT --gpt-checkpoint has; use "
            f"{base.codec_file} as published with it",
            RESUME_REFUSED,
        )


def require_rate_of(base: Base, backend: BuiltinBackend, path: Path) -> None:
    """Raise a UserError unless the built-in codes have the rate of the base."""
    if backend.features_per_code != base.features_per_code:
        raise UserError(
            f"{path}: has {FEATURES_PER_SECOND // backend.features_per_code} codes per second, but the GPT "
            f"of {base.title} needs {base.codes_per_second}; keep the features of each base in a folder of "
            "their own",
            RESUME_REFUSED,
        )


def load_style_encoder(command: Preprocess, config: GPTConfig, device: torch.device) -> StyleOf | None:
    """Return the function that computes style vectors; None for a base that needs none.

    Raises:
        UserError: the file of CAM++ cannot be read or has other tensors.
    """
    if not config.of_base.reads_style:
        return None
    if command.backend == "builtin":
        return lambda path: builtin_style(_first_seconds(path, BUILTIN_RATE_HZ), config.style_dim)
    network = load_campplus(find_published(command.campplus), config.style_dim, device)

    def style_of(path: Path) -> Tensor | None:
        samples = torch.from_numpy(_first_seconds(path, SAMPLE_RATE_HZ))
        at_16_khz = resample(samples[None], SAMPLE_RATE_HZ, KALDI_RATE_HZ)[0]
        return style_vector(network, at_16_khz.numpy())

    return style_of


def _first_seconds(path: Path, rate_hz: int) -> NDArray[np.float32]:
    return load_audio(path, rate_hz)[: MAX_STYLE_S * rate_hz]
