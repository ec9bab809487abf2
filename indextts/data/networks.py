"""Networks of preprocessing: the speech backend and the encoders of the base GPT.

The published models differ in the codec's file, its rate, and the style vector: IndexTTS-2.5 has that of
CAM++ as its speaker condition, computed from the first 15 s of a recording at the published rates, while
IndexTTS-2.0 encodes the features that the codes come from. The built-in backend has another style vector.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from indextts.commands.bases import FEATURES_PER_SECOND, Base
from indextts.commands.data import Preprocess
from indextts.data.batch_sizing import Throughput, choose_encoder_precision, choose_precision
from indextts.data.encoding import ClipEncoder, StyleOf
from indextts.errors import RESUME_REFUSED, UserError
from indextts.features.audio import load_audio
from indextts.features.backend import FEATURE_DIM, SpeechBackend
from indextts.features.backend import SAMPLE_RATE_HZ as BUILTIN_RATE_HZ
from indextts.features.builtin import BuiltinBackend
from indextts.features.builtin import style_vector as builtin_style
from indextts.features.campplus import load_campplus, style_vector
from indextts.features.mel_spectrogram import KALDI_RATE_HZ, SAMPLE_RATE_HZ, resample
from indextts.features.published_files import find_published
from indextts.models.checkpoint import read_weights
from indextts.models.gpt.config import GPTConfig, config_for, load_config
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.weights import load_encoders

if TYPE_CHECKING:
    from indextts.features.indextts2 import IndexTTS2Backend

logger = logging.getLogger(__name__)

BACKEND_NAME = "builtin.npz"
MAX_STYLE_S = 15  # as published
NUM_SPECIAL_CODES = 2  # start and stop, the last of number_mel_codes


@dataclass(frozen=True)
class Networks:
    """Networks of a `Preprocess` command, on a device."""

    published: SpeechBackend | None  # with the published weights; None for the builtin backend
    model: UnifiedVoice
    device: torch.device
    dtype: torch.dtype  # of the encoders' matrix products
    style_of: StyleOf | None = None  # the style vector of a recording; None for a base that needs none

    def encoder(self, backend: SpeechBackend, throughput: Throughput) -> ClipEncoder:
        return ClipEncoder(backend, self.model, self.device, throughput, self.dtype, self.style_of)


def load_networks(command: Preprocess, config: GPTConfig, device: torch.device) -> Networks:
    """Load the networks of the command; a UserError if a file is missing, corrupt or unfit for the config."""
    dtype = choose_precision(command.amp, device)
    published = _load_published(command, config, device, dtype) if command.backend == "indextts2" else None
    if published is None:
        _require_feature_dim(command.config, config, FEATURE_DIM)
    weights = read_weights(command.gpt_checkpoint)
    model = load_encoders(config, weights, str(command.gpt_checkpoint), device)
    style_of = load_style_encoder(command, config, device)
    return Networks(published, model, device, dtype, style_of)


def load_base_config(command: Preprocess) -> GPTConfig:
    """Return the config for the base of the checkpoint; a UserError if it or the command does not fit."""
    config = load_fitting_config(command.config)
    if not command.gpt_checkpoint.is_file():
        return config  # `load_networks` names all missing files
    config = config_for(config, read_weights(command.gpt_checkpoint))
    if config.of_base.reads_style and command.engine != "local":
        raise UserError(f"--engine {command.engine}: features for {config.of_base.title} need --engine local")
    return config


def load_fitting_config(path: Path) -> GPTConfig:
    """Return the config, whose last two codes must be start and stop."""
    config = load_config(path)
    num_codes = config.number_mel_codes - NUM_SPECIAL_CODES
    if num_codes < 1 or min(config.start_mel_token, config.stop_mel_token) < num_codes:
        raise UserError(
            f"{path}: start_mel_token and stop_mel_token must be the last 2 of number_mel_codes; use the "
            "config.yaml that was published with the checkpoint"
        )
    return config


def _require_feature_dim(path: Path, config: GPTConfig, feature_dim: int) -> None:
    if config.feature_dim != feature_dim:
        raise UserError(
            f"{path}: feature_dim is {config.feature_dim}, but the speech encoder has {feature_dim}; use the "
            "config.yaml that was published with the checkpoint"
        )


def _load_published(
    command: Preprocess, config: GPTConfig, device: torch.device, dtype: torch.dtype
) -> "IndexTTS2Backend":
    """Return the speech encoder and codec of the published weights, which must match the config."""
    from indextts.features import indextts2  # imported here because its libraries take seconds to import

    default_folder = Preprocess.model_fields["speech_encoder"].default
    default_codec: Path = Preprocess.model_fields["semantic_codec"].default
    codec = command.semantic_codec
    if codec == default_codec:
        codec = default_codec.parents[1] / config.of_base.codec_file
    codec = find_published(codec)
    folder = indextts2.find_files(
        command.speech_encoder, codec, command.stats, look_in_cache=command.speech_encoder == default_folder
    )
    precision = choose_encoder_precision(command.encoder_precision, device)
    backend = indextts2.load(command.config, folder, codec, command.stats, device, dtype, precision)
    base = config.of_base
    if int(backend.codec.num_codes(torch.tensor(2 * base.features_per_code))) != 2:
        raise UserError(
            f"--semantic-codec {codec}: not the codec of {base.title}, the base of --gpt-checkpoint; use its "
            f"{base.codec_file}",
            RESUME_REFUSED,
        )
    _require_feature_dim(command.config, config, backend.feature_dim)
    num_codes = config.number_mel_codes - NUM_SPECIAL_CODES
    if backend.num_codes != num_codes:
        raise UserError(
            f"{command.config}: semantic_codec.codebook_size is {backend.num_codes}, but number_mel_codes "
            f"requires {num_codes} codes; use the config.yaml that was published with the checkpoint"
        )
    return backend


def require_rate_of(base: Base, backend: BuiltinBackend, path: Path) -> None:
    """Raise a UserError unless the built-in codes have the rate of the base."""
    if backend.features_per_code != base.features_per_code:
        raise UserError(
            f"{path}: has {FEATURES_PER_SECOND // backend.features_per_code} codes per second, but the GPT "
            f"of {base.title} needs {base.codes_per_second}; keep the features of each base in a separate "
            "folder",
            RESUME_REFUSED,
        )


def load_style_encoder(command: Preprocess, config: GPTConfig, device: torch.device) -> StyleOf | None:
    """Return the function that computes style vectors, if any; a UserError for an unusable CAM++ file."""
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
