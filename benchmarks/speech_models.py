"""Models of preprocessing at given sizes with seeded random weights.

    w2v-BERT 2.0 (17 layers) -> semantic codec -> the GPT's encoders of conditioning and emotion

`published` has the shapes of the published files: w2v-BERT 2.0 is transformers' default configuration; codec
and GPT are the sections of the published config.yaml. `small` and `tiny` have the same structure.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import nn
from transformers import Wav2Vec2BertConfig, Wav2Vec2BertModel

from benchmarks.workload import PUBLISHED
from indextts.features.indextts2 import IndexTTS2Backend
from indextts.features.log_mel import log_mel_pairs
from indextts.features.semantic_codec import SemanticCodec, SemanticCodecConfig
from indextts.features.speech_encoder import NUM_LAYERS, SpeechEncoder
from indextts.models.gpt.config import ConditionModuleConfig, GPTConfig
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.weights import empty_model
from indextts.speech.synthesis.config import BigVGANConfig, S2MelConfig

ModuleT = TypeVar("ModuleT", bound=nn.Module)

PUBLISHED_CODEC = SemanticCodecConfig(
    codebook_size=8192,
    hidden_size=1024,
    codebook_dim=8,
    vocos_dim=384,
    vocos_intermediate_dim=2048,
    vocos_num_layers=12,
)


S2MEL = S2MelConfig.model_validate(
    {
        "style_encoder": {"dim": 192},
        "length_regulator": {
            "channels": 512,
            "in_channels": 1024,
            "content_codebook_size": 2048,
            "sampling_ratios": [1, 1, 1, 1],
        },
        "DiT": {
            "hidden_dim": 512,
            "num_heads": 8,
            "depth": 13,
            "in_channels": 80,
            "content_dim": 512,
            "content_codebook_size": 1024,
        },
        "wavenet": {"hidden_dim": 512, "num_layers": 8, "kernel_size": 5, "dilation_rate": 1},
    }
)
BIGVGAN = BigVGANConfig(
    num_mels=80,
    upsample_rates=(4, 4, 2, 2, 2, 2),
    upsample_kernel_sizes=(8, 8, 4, 4, 4, 4),
    upsample_initial_channel=1536,
    resblock_kernel_sizes=(3, 7, 11),
    resblock_dilation_sizes=((1, 3, 5),) * 3,
)


@dataclass(frozen=True)
class SpeechSize:
    """Sizes of all models; `heads` and `intermediate_dim` are those of w2v-BERT, as wide as the codec."""

    heads: int
    intermediate_dim: int
    codec: SemanticCodecConfig
    gpt: GPTConfig

    def encoder_config(self, num_layers: int = NUM_LAYERS) -> Wav2Vec2BertConfig:
        return Wav2Vec2BertConfig(
            hidden_size=self.codec.hidden_size,
            num_hidden_layers=num_layers,
            num_attention_heads=self.heads,
            intermediate_size=self.intermediate_dim,
            # both mask random parts in a training only
            mask_time_prob=0.0,
            mask_feature_prob=0.0,
        )


def _smaller(width: int, heads: int, module: ConditionModuleConfig, num_codes: int) -> SpeechSize:
    """Return a size whose speech features, GPT and conditioning are at most `width` wide."""
    codec = replace(
        PUBLISHED_CODEC,
        codebook_size=num_codes,
        hidden_size=width,
        vocos_dim=width // 2,
        vocos_intermediate_dim=2 * width,
        vocos_num_layers=4,
    )
    gpt = replace(
        PUBLISHED,
        model_dim=width,
        layers=2,
        heads=heads,
        number_text_tokens=400,  # the pieces of the demo's bpe.model
        number_mel_codes=num_codes + 2,
        start_mel_token=num_codes,
        stop_mel_token=num_codes + 1,
        condition_module=module,
        emo_condition_module=module,
        emo_perceiver_dim=width,
        feature_dim=width,
    )
    return SpeechSize(heads, 4 * width, codec, gpt)


SIZES = {
    "tiny": _smaller(32, 2, ConditionModuleConfig(16, 32, 2, 1, "conv2d2", 1), 64),
    "small": _smaller(256, 4, ConditionModuleConfig(128, 512, 4, 2, "conv2d2", 2), 1024),
    "published": SpeechSize(16, 4096, PUBLISHED_CODEC, PUBLISHED),
}


def speech_backend(
    size: SpeechSize, device: torch.device, dtype: torch.dtype, precision: str = "float32"
) -> IndexTTS2Backend:
    """Return encoder and codec, created on `device`."""
    dim = size.codec.hidden_size
    encoder = SpeechEncoder(
        filled(on_meta(lambda: Wav2Vec2BertModel(size.encoder_config())).to_empty(device=device), 0),
        torch.zeros(dim, device=device),
        torch.ones(dim, device=device),
    )
    _measure_stats(encoder)
    codec = filled(on_meta(lambda: SemanticCodec(size.codec)).to_empty(device=device), 1)
    return IndexTTS2Backend(encoder.requires_grad_(False).eval(), codec.eval(), device, dtype, precision)


@torch.no_grad()
def _measure_stats(encoder: SpeechEncoder) -> None:
    """Set the statistics of an encoder from 10 s of noise; others give all features the same few codes."""
    noise = np.random.default_rng(0).normal(0, 0.1, 160_000).astype(np.float32)
    (states,) = encoder.eval()([torch.from_numpy(log_mel_pairs(noise))])  # (T, H)
    encoder.mean.copy_(states.mean(dim=0))
    encoder.std.copy_(states.std(dim=0))


def conditioning_model(config: GPTConfig, device: torch.device) -> UnifiedVoice:
    """Return a GPT whose encoders have the config's sizes; it has two layers, which are not used."""
    shallow = replace(config, layers=2)
    return filled(empty_model(shallow).to_empty(device=device), 2).eval()


def on_meta(make: Callable[[], ModuleT]) -> ModuleT:
    with torch.device("meta"):
        return make()


@torch.no_grad()
def filled(module: ModuleT, seed: int) -> ModuleT:
    """Set every parameter of a module to random values that keep the scale of activations."""
    for name, parameter in module.named_parameters():
        fill(name, parameter.data, seed)
    for buffer in module.buffers():
        buffer.zero_()
    return module.requires_grad_(False)


def fill(name: str, values: torch.Tensor, seed: int) -> None:
    """Fill a parameter; the seed depends on its name."""
    generator = torch.Generator(values.device).manual_seed(seed + sum(name.encode()))
    if values.dim() > 1:
        values.normal_(0, 1 / math.sqrt(values[0].numel()), generator=generator)
    elif "norm" in name and name.endswith(("weight", "gamma")):
        values.fill_(1)
    else:
        values.normal_(0, 0.02, generator=generator)
