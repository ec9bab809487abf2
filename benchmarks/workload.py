"""Workload of the benchmarks: models of stated sizes, samples of realistic lengths, operation counts.

Axes: B samples, N text tokens, M codes, K latents, D model width, L layers, n positions of a sample
(K + 2 + N + 2 + M + 1), V+1 rows of the text head, C codes.

A matrix product of (a, b) with (b, c) counts 2abc operations. Forward, per sample:

    body         n * 24 D^2 L       c_attn 6 D^2, c_proj 2 D^2, c_fc and c_proj of the MLP 8 D^2 each
    attention    2 n^2 D L          scores and sums, 2 n^2 D each, of which causality drops half
    heads        2 D ((N+1)(V+1) + (M+1) C)

Backward counts twice the forward for products with weights and 2.5 times for attention. Recomputed layers,
padding, embeddings, norms, softmax and the optimizer are not counted: MFU is useful operations over the
peak.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from indextts.models.gpt.config import ConditionModuleConfig, GPTConfig
from indextts.models.gpt.model import GPTBatch, UnifiedVoice
from indextts.models.gpt.packed import Ints, PackedBatch, pack
from indextts.models.gpt.weights import empty_model

NUM_BASE_PIECES = 12000  # of the base tokenizer; the other 12,000 are new
CODES_PER_SECOND = 50
TEXT_TOKENS_PER_SECOND = (3.0, 5.0)
MEDIAN_S, SIGMA, SHORTEST_S, LONGEST_S = 5.5, 0.55, 2.0, 15.0

# The sizes in the published config.yaml.
PUBLISHED = GPTConfig(
    model_dim=1280,
    layers=24,
    heads=20,
    max_mel_tokens=1815,
    max_text_tokens=600,
    number_text_tokens=NUM_BASE_PIECES,
    number_mel_codes=8194,
    start_mel_token=8192,
    stop_mel_token=8193,
    start_text_token=0,
    stop_text_token=1,
    condition_module=ConditionModuleConfig(512, 2048, 8, 6, "conv2d2", 2),
    emo_condition_module=ConditionModuleConfig(512, 1024, 4, 4, "conv2d2", 2),
)

# A training step does not use the encoders: they are as small as possible and cost no memory.
_NO_ENCODER = ConditionModuleConfig(2, 1, 1, 1, "conv2d2", 1)
_SHAPES = {"tiny": (64, 2, 2), "small": (512, 6, 8), "published": (1280, 24, 20)}  # width, layers, heads
SIZES = tuple(_SHAPES)

# Dense bfloat16 peak in operations per second, from the vendor's data sheets.
PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L4": 121e12}


@dataclass(frozen=True)
class Sample:
    """One pair in memory: `text_ids` (N,), `codes` (M,), `condition` (K, D), `emo_vec` (D,)."""

    text_ids: Ints
    codes: Ints
    condition: Tensor
    emo_vec: Tensor


def config_of(size: str, dropout: float) -> GPTConfig:
    """Return the published config with 24,000 pieces, or the same form with another width and depth.

    Its encoders are placeholders, see `_NO_ENCODER`.
    """
    dim, layers, heads = _SHAPES[size]
    config = replace(
        PUBLISHED,
        model_dim=dim,
        layers=layers,
        heads=heads,
        number_text_tokens=2 * NUM_BASE_PIECES,
        condition_module=_NO_ENCODER,
        emo_condition_module=_NO_ENCODER,
        feature_dim=3,
        emo_perceiver_dim=2,
        perceiver_head_dim=2,
        perceiver_depth=1,
        conv_kernel_size=1,
        pe_length=1,
        dropout=dropout,
    )
    if size == "tiny":
        return replace(
            config, number_text_tokens=40, number_mel_codes=66, start_mel_token=64, stop_mel_token=65
        )
    return config


def num_base_pieces(config: GPTConfig) -> int:
    """Return the number of pieces whose rows are frozen: half of them."""
    return config.number_text_tokens // 2


def build_model(config: GPTConfig, device: torch.device, seed: int = 0) -> UnifiedVoice:
    """Return a model with random weights, created on `device`; its encoders are placeholders."""
    model = empty_model(config).to_empty(device=device)
    generator = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() >= 2:
                parameter.normal_(0, 0.02, generator=generator)
            else:
                owner, _, kind = name.rpartition(".")
                is_norm = isinstance(model.get_submodule(owner), nn.LayerNorm)
                parameter.fill_(1.0 if is_norm and kind == "weight" else 0.0)
        for buffer in model.buffers():
            buffer.zero_()
    return model


def make_samples(config: GPTConfig, count: int, seed: int = 0, longest_s: float = LONGEST_S) -> list[Sample]:
    """Return samples whose durations are log-normal, limited to 2 to `longest_s` seconds."""
    random = np.random.default_rng(seed)
    samples: list[Sample] = []
    while len(samples) < count:
        duration_s = float(random.lognormal(math.log(MEDIAN_S), SIGMA))
        if not SHORTEST_S <= duration_s <= longest_s:
            continue
        num_text = max(1, round(duration_s * random.uniform(*TEXT_TOKENS_PER_SECOND)))
        samples.append(
            Sample(
                text_ids=random.integers(2, config.number_text_tokens, num_text),
                codes=random.integers(0, config.start_mel_token, round(duration_s * CODES_PER_SECOND)),
                condition=torch.from_numpy(
                    random.standard_normal((config.num_latents, config.model_dim), dtype=np.float32)
                ),
                emo_vec=torch.from_numpy(random.standard_normal(config.model_dim, dtype=np.float32)),
            )
        )
    return samples


def groups_of(samples: Sequence[Sample], size: int) -> list[list[Sample]]:
    """Return batches of `size` samples, in their random order."""
    return [list(samples[start : start + size]) for start in range(0, len(samples) - size + 1, size)]


def groups_within(samples: Sequence[Sample], config: GPTConfig, max_tokens: int) -> list[list[Sample]]:
    """Return batches of as many samples, in their random order, as fit into `max_tokens` positions."""
    groups: list[list[Sample]] = [[]]
    filled = 0
    for sample in samples:
        length = num_positions(sample, config)
        if filled + length > max_tokens and groups[-1]:
            groups.append([])
            filled = 0
        groups[-1].append(sample)
        filled += length
    return groups[:-1] or groups


def packed_batch(samples: Sequence[Sample], config: GPTConfig) -> PackedBatch:
    return pack(
        [sample.text_ids for sample in samples],
        [sample.codes for sample in samples],
        torch.stack([sample.condition for sample in samples]),
        torch.stack([sample.emo_vec for sample in samples]),
        config,
    )


def padded_batch(samples: Sequence[Sample]) -> GPTBatch:
    return GPTBatch(
        condition=torch.stack([sample.condition for sample in samples]),
        emo_vec=torch.stack([sample.emo_vec for sample in samples]),
        text_ids=_padded([sample.text_ids for sample in samples]),
        text_lengths=torch.tensor([len(sample.text_ids) for sample in samples]),
        codes=_padded([sample.codes for sample in samples]),
        code_lengths=torch.tensor([len(sample.codes) for sample in samples]),
    )


def _padded(rows: Sequence[Ints]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True)


def num_positions(sample: Sample, config: GPTConfig) -> int:
    """Return the positions that a sample needs: the valid tokens of all benchmarks."""
    return int(positions(np.array(len(sample.text_ids)), np.array(len(sample.codes)), config))


def positions(num_text: Ints, num_codes: Ints, config: GPTConfig) -> Ints:
    """Return `num_positions` of many samples by their lengths: (S,) of (S,) and (S,)."""
    return config.prefix_length + num_text + 2 + num_codes + 1


def num_padded(samples: Sequence[Sample], config: GPTConfig) -> int:
    """Return the positions of the padded form of a batch."""
    longest = max(len(s.text_ids) for s in samples) + max(len(s.codes) for s in samples)
    return len(samples) * (config.prefix_length + longest + 4)


def useful_operations(samples: Sequence[Sample], config: GPTConfig) -> float:
    """Return the operations of a forward and a backward pass, as the module docstring counts them."""
    num_text = np.array([len(sample.text_ids) for sample in samples])
    num_codes = np.array([len(sample.codes) for sample in samples])
    return float(operations(num_text, num_codes, config).sum())


def operations(num_text: Ints, num_codes: Ints, config: GPTConfig) -> NDArray[np.float64]:
    """Return `useful_operations` of many samples by their lengths: (S,) of (S,) and (S,)."""
    dim, layers = config.model_dim, config.layers
    n = positions(num_text, num_codes, config).astype(np.float64)
    scores = (num_text + 1) * config.num_text_rows + (num_codes + 1) * config.number_mel_codes
    return 3 * (24 * n * dim**2 * layers + 2 * dim * scores) + 3.5 * 2 * n**2 * dim * layers


def peak_operations(device: torch.device) -> float | None:
    """Return the dense bfloat16 peak of the GPU, None where it is unknown."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((peak for part, peak in PEAKS.items() if part in name), None)
