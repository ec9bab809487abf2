"""Sizes of the parts of the GPT that differ between the published models, and of the encoders."""

from dataclasses import dataclass

from indextts.models.gpt.config import ConditionModuleConfig, GPTConfig


@dataclass(frozen=True)
class SpeakerSize:
    """Numbers of values: trained, of encoders that no step needs, and of their position tables."""

    gpt: int
    encoders: int
    tables: int


def speaker_size(config: GPTConfig) -> SpeakerSize:
    """Return the size of what only the base has: the way of the speaker condition, and its tables."""
    return _style(config) if config.of_base.reads_style else _latents(config)


def _latents(config: GPTConfig) -> SpeakerSize:
    module, dim = config.condition_module, config.model_dim
    encoders = conformer_size(module, config) + perceiver_size(module, dim, config.num_latents, config)
    return SpeakerSize(gpt=2 * dim, encoders=encoders, tables=config.pe_length * module.output_size)


def _style(config: GPTConfig) -> SpeakerSize:
    return SpeakerSize((config.style_dim + 1 + config.num_language_rows) * config.model_dim, 0, 0)


def language_size(config: GPTConfig) -> int:
    """Return the number of values in the language rows, 0 for a base without them."""
    return config.num_language_rows * config.model_dim if config.of_base.reads_style else 0


def conformer_size(module: ConditionModuleConfig, config: GPTConfig) -> int:
    q, hidden = module.output_size, module.linear_units
    front = 10 * q + q * ((config.feature_dim - 1) // 2) * q + q
    attention = 5 * q * q + 4 * q + 2 * q
    convolution = 3 * q * q + q * config.conv_kernel_size + 6 * q
    feed_forward = 2 * q * hidden + hidden + q
    return front + 2 * q + module.num_blocks * (attention + convolution + feed_forward + 8 * q)


def perceiver_size(module: ConditionModuleConfig, width: int, num_latents: int, config: GPTConfig) -> int:
    inner = int(width * module.perceiver_mult * 2 / 3)
    projection = 0 if module.output_size == width else module.output_size * width + width
    attention = 4 * width * module.attention_heads * config.perceiver_head_dim
    feed_forward = 3 * width * inner + 2 * inner + width
    return num_latents * width + projection + config.perceiver_depth * (attention + feed_forward) + width
