"""Memory estimate of a training run: model size from the config, activations from measured factors.

    GPU    4 bytes per weight; 8 per trained weight for AdamW (4 with moments in bfloat16), and 4 for a moving
           average; 2 per weight for the copy that autocast keeps; at the peak, either the activations of a
           micro-batch (with accumulation: plus the gradients) or the gradients in the optimizer's step
    CPU    the same, plus the encoders and the copy of weights and moments that a save is written from

Activations grow with positions, layers and width:

    bytes = positions x width x (layers x per_layer + constant)

The factors are fitted to measured peaks. On a GPU (benchmarks/results/gpu_round_h200.md) the error is below
2 %; all measured models have 24 layers, so there is no constant. On a CPU (benchmarks/results/
step_memory_cpu.md) the error is at most about a third. Factors that were not measured are scaled from their
neighbours and have `is_measured` False.

Axes: D model width, V+1 rows of the text tables, C semantic codes, Q width of a conformer, R of a perceiver.
"""

from dataclasses import dataclass, replace

from indextts.models.gpt.config import GPTConfig
from indextts.planning.bases import conformer_size, perceiver_size, speaker_size

FLOAT32_BYTES, HALF_BYTES = 4, 2
MOMENTS = 2  # AdamW stores two values for each trained parameter


@dataclass(frozen=True)
class ModelSize:
    """Parameter counts of a model, and the size of its training state.

    Args:
        gpt: parameters on the GPU: blocks, tables and heads, including the frozen base rows.
        encoders: parameters of the speaker and emotion encoders, which stay in host memory.
        tables: values of the encoders' position tables, which are in a checkpoint but are not parameters.
        frozen: parameters of `gpt` in the base tokenizer's rows; 0 if the tokenizer is not extended.
    """

    gpt: int
    encoders: int
    tables: int
    frozen: int

    @property
    def trained(self) -> int:
        return self.gpt - self.frozen

    def state_bytes(self, optimizer_state: str, ema_decay: float) -> int:
        """Return the bytes of the optimizer state: both moments and the moving average.

        Args:
            optimizer_state, ema_decay: as in the Train command.
        """
        moment_bytes = FLOAT32_BYTES if optimizer_state == "float32" else HALF_BYTES
        return self.trained * (MOMENTS * moment_bytes + (FLOAT32_BYTES if ema_decay else 0))

    def checkpoint_bytes(self, optimizer_state: str, ema_decay: float) -> int:
        """Return the bytes of all weights and the optimizer state, without file headers."""
        weights = FLOAT32_BYTES * (self.gpt + self.encoders + self.tables)
        return weights + self.state_bytes(optimizer_state, ema_decay)


def model_size(config: GPTConfig, *, base_size: int) -> ModelSize:
    """Return the size of the model that `config` describes.

    Args:
        config: its `number_text_tokens` is the vocabulary size of the run's tokenizer.
        base_size: vocabulary size of the base tokenizer.
    """
    dim, rows, codes = config.model_dim, config.num_text_rows, config.number_mel_codes
    blocks = config.layers * (12 * dim * dim + 13 * dim)
    tables = rows * dim + codes * dim + (config.num_mel_positions + config.num_text_positions) * dim
    heads = rows * (dim + 1) + codes * (dim + 1)
    norms = 4 * dim
    is_extended = config.number_text_tokens > base_size
    speaker, emotion_dim = speaker_size(config), config.emo_perceiver_dim
    encoders = (
        speaker.encoders
        + conformer_size(config.emo_condition_module, config)
        + perceiver_size(config.emo_condition_module, emotion_dim, 1, config)
        + (dim * dim + dim)
        + (emotion_dim * dim + dim)
    )
    return ModelSize(
        gpt=blocks + tables + heads + norms + speaker.gpt,
        encoders=encoders,
        tables=speaker.tables + config.pe_length * config.emo_condition_module.output_size,
        frozen=base_size * (2 * dim + 1) if is_extended else 0,
    )


SOURCE = "benchmarks/results/gpu_round_h200.md"
CPU_SOURCE = "benchmarks/results/step_memory_cpu.md"
PROGRAM_BYTES = 700 << 20  # the process with its libraries, on a CPU
CONTEXT_BYTES = 1 << 30  # the CUDA context and allocator fragmentation


@dataclass(frozen=True)
class Factor:
    """Activation bytes per position and unit of model width: per layer, and a constant."""

    per_layer: float
    constant: float
    is_measured: bool

    def per_position(self, config: GPTConfig) -> float:
        return config.model_dim * (config.layers * self.per_layer + self.constant)


FACTORS = {  # (half precision, gradient checkpointing, padded)
    (True, False, False): Factor(40.8, 0, True),
    (True, True, False): Factor(6.6, 0, True),
    (True, False, True): Factor(49.2, 0, True),  # per position of the padded batch
    (False, False, False): Factor(68.5, 0, True),
    (False, True, False): Factor(13.2, 0, False),  # twice the factor in half precision
    (False, False, True): Factor(82.6, 0, False),  # scaled like the packed factor
    (True, True, True): Factor(8.0, 0, False),
    (False, True, True): Factor(16.0, 0, False),
}
CPU_FACTORS = {  # (half precision, gradient checkpointing)
    (False, False): Factor(81, 138, True),
    (False, True): Factor(4, 340, True),
    (True, False): Factor(62, 53, True),
    (True, True): Factor(12, 150, True),
}


@dataclass(frozen=True)
class MemoryNeed:
    """Peak memory of a training run, in bytes.

    Args:
        fixed: weights and optimizer state, independent of the batch.
        per_position: activations per position of a micro-batch.
        gradients: gradients of all weights on the GPU.
        positions: positions of the largest micro-batch.
        accumulates: gradients exist while the next micro-batch is computed.
        is_measured: the factor behind `per_position` is measured, possibly on another device.
    """

    fixed: int
    per_position: float
    gradients: int
    positions: int
    accumulates: bool
    is_measured: bool

    @property
    def peak(self) -> int:
        return self.at(self.positions)

    def at(self, positions: int) -> int:
        """Return the peak with micro-batches of `positions`."""
        activations = round(self.per_position * positions)
        if self.accumulates:
            return self.fixed + activations + self.gradients
        return self.fixed + max(activations, self.gradients)

    def positions_within(self, num_bytes: float) -> int:
        """Return the positions of the largest micro-batch that fits, 0 or less if none does."""
        left = num_bytes - self.fixed - self.gradients * self.accumulates
        return int(left / self.per_position) if left >= (0 if self.accumulates else self.gradients) else 0


def gpu_memory(
    config: GPTConfig,
    size: ModelSize,
    *,
    positions: int,
    is_half: bool,
    recomputes: bool,
    is_padded: bool,
    accumulates: bool,
    state_bytes: int,
) -> MemoryNeed:
    """Return the memory that a training run needs on its GPU.

    Args:
        positions: positions of the largest micro-batch, including padding if it is padded.
        is_half: the forward pass runs in bfloat16 or float16.
        recomputes: --grad-checkpointing is on.
        state_bytes: `ModelSize.state_bytes`.
    """
    factor = FACTORS[is_half, recomputes, is_padded]
    weights = size.gpt * (FLOAT32_BYTES + (HALF_BYTES if is_half else 0))
    return MemoryNeed(
        fixed=weights + state_bytes,
        per_position=factor.per_position(config),
        gradients=FLOAT32_BYTES * size.gpt,
        positions=positions,
        accumulates=accumulates,
        is_measured=factor.is_measured,
    )


def host_memory(
    config: GPTConfig,
    size: ModelSize,
    on_gpu: MemoryNeed,
    *,
    is_half: bool,
    recomputes: bool,
    state_bytes: int,
) -> MemoryNeed:
    """Return the host memory that a training run needs without a GPU.

    Args:
        on_gpu: the need of the same training on a GPU.
    """
    factor = CPU_FACTORS[is_half, recomputes]
    save_copy = FLOAT32_BYTES * size.gpt + state_bytes
    encoders = FLOAT32_BYTES * (size.encoders + size.tables)
    return replace(
        on_gpu,
        fixed=on_gpu.fixed + save_copy + encoders + PROGRAM_BYTES,
        per_position=factor.per_position(config),
        is_measured=factor.is_measured,
    )
