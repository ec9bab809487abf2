"""Small files for the `indextts2` backend, with published names and layout and seeded random weights.

FOLDER/
  config.yaml                              gpt and semantic_codec
  gpt.pth
  wav2vec2bert_stats.pt                    mean, var
  w2v-bert-2.0/                            config.json preprocessor_config.json model.safetensors
  semantic_codec/model.safetensors
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import save_file
from torch import nn
from transformers import SeamlessM4TFeatureExtractor, Wav2Vec2BertConfig, Wav2Vec2BertModel

from demo.make_base_checkpoint import random_model
from indextts.features.log_mel import log_mel_pairs
from indextts.features.semantic_codec import SemanticCodec, SemanticCodecConfig
from indextts.features.speech_encoder import load_speech_encoder
from indextts.models.gpt.config import load_config

FEATURE_DIM = 32
NUM_CODES = 64
NUM_LAYERS = 19  # two more than are used
CONDITION_MODULE = {
    "output_size": 16,
    "linear_units": 24,
    "attention_heads": 2,
    "num_blocks": 2,
    "input_layer": "conv2d2",
    "perceiver_mult": 1,
}
GPT = {
    "model_dim": 16,
    "layers": 1,
    "heads": 2,
    "max_mel_tokens": 1815,
    "max_text_tokens": 120,
    "number_text_tokens": 400,  # the pieces of the demo's bpe.model
    "number_mel_codes": NUM_CODES + 2,
    "start_mel_token": NUM_CODES,
    "stop_mel_token": NUM_CODES + 1,
    "start_text_token": 0,
    "stop_text_token": 1,
    "condition_module": CONDITION_MODULE,
    "emo_condition_module": CONDITION_MODULE,
    "emo_perceiver_dim": 16,
    "num_latents": 4,
    "pe_length": 1000,
    "feature_dim": FEATURE_DIM,
}
CODEC = {
    "codebook_size": NUM_CODES,
    "hidden_size": FEATURE_DIM,
    "codebook_dim": 8,
    "vocos_dim": 24,
    "vocos_intermediate_dim": 40,
    "vocos_num_layers": 3,
}


def write_published_files(folder: Path, seed: int = 0) -> Path:
    """Write all files and return `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"gpt": GPT, "semantic_codec": CODEC}))
    model = random_model(load_config(folder / "config.yaml"), seed)
    randomise(model, seed)  # with the small biases of a new model, padding would hardly have an effect
    torch.save(model.state_dict(), folder / "gpt.pth")
    write_speech_encoder(folder / "w2v-bert-2.0", seed)
    write_measured_stats(folder / "wav2vec2bert_stats.pt", folder / "w2v-bert-2.0")
    codec = randomise(SemanticCodec(SemanticCodecConfig(**CODEC)), seed)
    (folder / "semantic_codec").mkdir(exist_ok=True)
    save_file(codec.state_dict(), folder / "semantic_codec/model.safetensors")
    return folder


def write_stats(path: Path, seed: int = 0, **changes: Any) -> None:
    generator = torch.Generator().manual_seed(seed)
    stats = {
        "mean": torch.randn(FEATURE_DIM, generator=generator),
        "var": torch.rand(FEATURE_DIM, generator=generator) + 0.5,
    }
    torch.save(stats | changes, path)


@torch.no_grad()
def write_measured_stats(path: Path, speech_encoder: Path) -> None:
    """Write the statistics of 5 s of noise, so that features have many different codes."""
    write_stats(path, mean=torch.zeros(FEATURE_DIM), var=torch.ones(FEATURE_DIM))
    encoder = load_speech_encoder(speech_encoder, path)
    noise = np.random.default_rng(0).normal(0, 0.1, 80_000).astype(np.float32)
    (states,) = encoder([torch.from_numpy(log_mel_pairs(noise))])  # (T, H)
    write_stats(path, mean=states.mean(dim=0), var=states.var(dim=0))


def write_speech_encoder(folder: Path, seed: int = 0) -> None:
    config = Wav2Vec2BertConfig(
        hidden_size=FEATURE_DIM, num_hidden_layers=NUM_LAYERS, num_attention_heads=2, intermediate_size=48
    )
    with torch.random.fork_rng():
        model = randomise(Wav2Vec2BertModel(config), seed)
    model.save_pretrained(folder)
    SeamlessM4TFeatureExtractor(padding_value=1).save_pretrained(folder)


@torch.no_grad()
def randomise(model: nn.Module, seed: int) -> nn.Module:
    """Set every parameter to random values, including those that a new model initialises to 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        values = torch.randn(parameter.shape, generator=generator)
        if "norm" in name and name.endswith(("weight", "gamma")):
            parameter.copy_(1 + 0.2 * values)
        elif parameter.dim() > 1:
            parameter.copy_(values / math.sqrt(parameter[0].numel()))
        else:
            parameter.copy_(0.3 * values)
    return model


def noisy_speech(num_samples: int, rate_hz: int = 16_000, seed: int = 0) -> np.ndarray:
    """Return noise with a varying level."""
    times = np.arange(num_samples) / rate_hz
    noise = np.random.default_rng(seed).normal(0, 0.1, num_samples)
    return (noise * (1.2 + np.sin(9 * times))).astype(np.float32)
