"""How many numbers a model has, from its config alone: what a checkpoint and a card must hold.

Axes: D model width, V+1 rows of the text tables, C semantic codes, Q width of a conformer, R of a perceiver.
"""

from dataclasses import dataclass

from indextts.models.gpt.config import ConditionModuleConfig, GPTConfig

FLOAT32_BYTES, HALF_BYTES = 4, 2
MOMENTS = 2  # AdamW keeps two numbers for each that it trains


@dataclass(frozen=True)
class ModelSize:
    """Numbers of a model and of its training state.

    Args:
        gpt: parameters that are on the card: blocks, tables, heads; the frozen base rows among them.
        encoders: parameters of the speaker and emotion encoders, which stay in the host's memory.
        tables: numbers of the encoders' position tables, in a checkpoint but no parameters.
        frozen: of `gpt`, those of the base tokenizer's rows; 0 where the tokenizer has no other pieces.
    """

    gpt: int
    encoders: int
    tables: int
    frozen: int

    @property
    def trained(self) -> int:
        return self.gpt - self.frozen

    def state_bytes(self, optimizer_state: str, ema_decay: float) -> int:
        """Return what is kept of each trained parameter besides itself: both moments, and its average.

        Args:
            optimizer_state, ema_decay: as in the Train command.
        """
        moment_bytes = FLOAT32_BYTES if optimizer_state == "float32" else HALF_BYTES
        return self.trained * (MOMENTS * moment_bytes + (FLOAT32_BYTES if ema_decay else 0))

    def checkpoint_bytes(self, optimizer_state: str, ema_decay: float) -> int:
        """Return all weights with the state of what is trained; without headers of the file."""
        weights = FLOAT32_BYTES * (self.gpt + self.encoders + self.tables)
        return weights + self.state_bytes(optimizer_state, ema_decay)


def model_size(config: GPTConfig, *, base_size: int) -> ModelSize:
    """Return the size of the model of `config`.

    Args:
        config: with the pieces of the run's tokenizer as `number_text_tokens`.
        base_size: pieces of the base tokenizer.
    """
    dim, rows, codes = config.model_dim, config.num_text_rows, config.number_mel_codes
    blocks = config.layers * (12 * dim * dim + 13 * dim)
    tables = rows * dim + codes * dim + (config.num_mel_positions + config.num_text_positions + 2) * dim
    heads = rows * (dim + 1) + codes * (dim + 1)
    norms = 4 * dim
    is_extended = config.number_text_tokens > base_size
    conditions = (config.condition_module, config.emo_condition_module)
    emotion_dim = config.emo_perceiver_dim
    encoders = (
        sum(_conformer(module, config) for module in conditions)
        + _perceiver(config.condition_module, dim, config.num_latents, config)
        + _perceiver(config.emo_condition_module, emotion_dim, 1, config)
        + (dim * dim + dim)
        + (emotion_dim * dim + dim)
    )
    return ModelSize(
        gpt=blocks + tables + heads + norms,
        encoders=encoders,
        tables=sum(config.pe_length * module.output_size for module in conditions),
        frozen=base_size * (2 * dim + 1) if is_extended else 0,
    )


def _conformer(module: ConditionModuleConfig, config: GPTConfig) -> int:
    q, hidden = module.output_size, module.linear_units
    front = 10 * q + q * ((config.feature_dim - 1) // 2) * q + q
    attention = 5 * q * q + 4 * q + 2 * q
    convolution = 3 * q * q + q * config.conv_kernel_size + 6 * q
    feed_forward = 2 * q * hidden + hidden + q
    return front + 2 * q + module.num_blocks * (attention + convolution + feed_forward + 8 * q)


def _perceiver(module: ConditionModuleConfig, width: int, num_latents: int, config: GPTConfig) -> int:
    inner = int(width * module.perceiver_mult * 2 / 3)
    projection = 0 if module.output_size == width else module.output_size * width + width
    attention = 4 * width * module.attention_heads * config.perceiver_head_dim
    feed_forward = 3 * width * inner + 2 * inner + width
    return num_latents * width + projection + config.perceiver_depth * (attention + feed_forward) + width
