"""Memory estimate of a training run: model size from the config, activations from measured factors.

    GPU    4 bytes per weight; 8 per trained weight for AdamW (4 with moments in bfloat16), and 4 for a moving
           average; 2 per weight for the copy that autocast keeps; at the peak, either the activations of a
           micro-batch (with accumulation: plus the gradients) or the gradients in the optimizer's step
    LoRA   the matrices of the blocks in the type of the forward pass, without a copy; gradients and optimizer
           state only of the adapters and the new rows (the gradients of the text tables are whole)
    CPU    the same, plus the encoders and the copy of weights and moments that a save is written from

Activations grow with positions, layers and width:

    bytes = positions x width x (layers x per_layer + constant)

The factors are fitted to measured peaks. On a GPU (benchmarks/results/gpu_round_h200.md) the error is below
2 %; all measured models have 24 layers, so there is no constant. On a CPU (benchmarks/results/
step_memory_cpu.md) the error is at most about a third. Factors that were not measured are scaled from their
neighbours.

Axes: D model width, V+1 rows of the text tables, C semantic codes, Q width of a conformer, R of a perceiver.
"""

from dataclasses import dataclass, replace

from indextts.models.gpt.config import ConditionModuleConfig, GPTConfig

FLOAT32_BYTES, HALF_BYTES = 4, 2
MOMENTS = 2  # AdamW stores two values for each trained parameter


@dataclass(frozen=True)
class ModelSize:
    """Parameter counts of a model, and the size of its training state.

    Args:
        gpt: parameters on the GPU: blocks, tables and heads, including the frozen base rows.
        encoders: parameters of the speaker and emotion encoders, which stay in host memory.
        tables: values of the encoders' position tables, which are in a checkpoint but are not parameters.
        frozen: parameters of `gpt` that are not trained: the base tokenizer's rows, 0 if the tokenizer is not
            extended; with LoRA, nearly all.
        with_gradient: parameters of `gpt` with a gradient; the text tables count whole.
        adapters: parameters of the LoRA adapters, which `gpt` does not include; 0 without LoRA.
        in_half: parameters of `gpt` that LoRA keeps in the type of the forward pass.
    """

    gpt: int
    encoders: int
    tables: int
    frozen: int
    with_gradient: int
    adapters: int = 0
    in_half: int = 0

    @property
    def trained(self) -> int:
        return self.gpt + self.adapters - self.frozen

    @property
    def saved(self) -> int:
        """Parameters on the GPU that a checkpoint holds."""
        return self.trained if self.adapters else self.gpt

    def state_bytes(self, optimizer_state: str, ema_decay: float) -> int:
        """Return the bytes of both moments and the moving average; arguments as in the Train command."""
        moment_bytes = FLOAT32_BYTES if optimizer_state == "float32" else HALF_BYTES
        return self.trained * (MOMENTS * moment_bytes + (FLOAT32_BYTES if ema_decay else 0))

    def checkpoint_bytes(self, optimizer_state: str, ema_decay: float) -> int:
        """Return the bytes of the weights in a checkpoint and the optimizer state, without file headers."""
        beside = 0 if self.adapters else self.encoders + self.tables
        weights = FLOAT32_BYTES * (self.saved + beside)
        return weights + self.state_bytes(optimizer_state, ema_decay)


def model_size(
    config: GPTConfig,
    *,
    base_size: int,
    lora_rank: int = 0,
    lora_targets: str = "all",
    train_text_rows: str = "new",
    lora_code_head: bool = False,
) -> ModelSize:
    """Return the size of the model of `config`, whose `number_text_tokens` is that of the run's tokenizer."""
    dim, rows, codes = config.model_dim, config.num_text_rows, config.number_mel_codes
    blocks = config.layers * (12 * dim * dim + 13 * dim)
    tables = rows * dim + codes * dim + (config.num_mel_positions + config.num_text_positions) * dim
    heads = rows * (dim + 1) + codes * (dim + 1)
    norms = 4 * dim
    only_new = train_text_rows == "new"
    is_extended = config.number_text_tokens > base_size
    emotion, emotion_dim = config.emo_condition_module, config.emo_perceiver_dim
    encoders = conformer_size(emotion, config) + perceiver_size(emotion, emotion_dim, 1, config)
    encoders += (dim * dim + dim) + (emotion_dim * dim + dim)
    encoder_tables = config.pe_length * emotion.output_size
    # only a base has one of these: the way of the speaker condition, and its tables
    if config.of_base.reads_style:
        speaker = (config.style_dim + 1 + config.num_language_rows) * dim
    else:
        module, speaker = config.condition_module, 2 * dim
        encoders += conformer_size(module, config) + perceiver_size(module, dim, config.num_latents, config)
        encoder_tables += config.pe_length * module.output_size
    gpt = blocks + tables + heads + norms + speaker
    size = ModelSize(
        gpt=gpt,
        encoders=encoders,
        tables=encoder_tables,
        frozen=base_size * (2 * dim + 1) if is_extended and only_new else 0,
        with_gradient=gpt,
    )
    if not lora_rank:
        return size
    beside = rows * (2 * dim + 1) if is_extended or not only_new else 0
    beside += config.num_language_rows * dim if config.of_base.reads_style else 0
    beside += codes * (dim + 1) if lora_code_head else 0
    return with_lora(size, config, lora_rank, lora_targets, beside)


# Sum of inputs and outputs of a block's matrices, in widths of the model.
ADAPTER_WIDTHS = {"attention": (1 + 3) + (1 + 1), "mlp": (1 + 4) + (4 + 1)}


def with_lora(size: ModelSize, config: GPTConfig, rank: int, targets: str, beside: int) -> ModelSize:
    """Return the size with adapters, from that without; `beside` are other parameters with a gradient."""
    dim = config.model_dim
    widths = ADAPTER_WIDTHS.get(targets, sum(ADAPTER_WIDTHS.values()))
    adapters = rank * config.layers * widths * dim
    return replace(
        size,
        frozen=size.gpt - (beside - size.frozen),
        with_gradient=adapters + beside,
        adapters=adapters,
        in_half=config.layers * 12 * dim * dim,
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

    def per_position(self, config: GPTConfig) -> float:
        return config.model_dim * (config.layers * self.per_layer + self.constant)


FACTORS = {  # (half precision, gradient checkpointing, padded)
    (True, False, False): Factor(40.8, 0),
    (True, True, False): Factor(6.6, 0),
    (True, False, True): Factor(49.2, 0),  # per position of the padded batch
    (False, False, False): Factor(68.5, 0),
    (False, True, False): Factor(13.2, 0),  # twice the factor in half precision
    (False, False, True): Factor(82.6, 0),  # scaled like the packed factor
    (True, True, True): Factor(8.0, 0),  # not measured, like the next
    (False, True, True): Factor(16.0, 0),
}
CPU_FACTORS = {  # (half precision, gradient checkpointing)
    (False, False): Factor(81, 138),
    (False, True): Factor(4, 340),
    (True, False): Factor(62, 53),
    (True, True): Factor(12, 150),
}


@dataclass(frozen=True)
class MemoryNeed:
    """Peak memory of a training run, in bytes."""

    fixed: int  # weights and optimizer state, independent of the batch
    per_position: float  # activations per position of a micro-batch
    gradients: int  # gradients of all weights on the GPU
    positions: int  # positions of the largest micro-batch
    accumulates: bool  # gradients exist while the next micro-batch is computed

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


def memory_need(
    config: GPTConfig,
    size: ModelSize,
    *,
    on_gpu: bool = True,
    positions: int,
    is_half: bool,
    recomputes: bool,
    is_padded: bool,
    accumulates: bool,
    state_bytes: int,
) -> MemoryNeed:
    """Return the memory that a training run needs on its GPU, or in host memory without a GPU.

    Args:
        positions: positions of the largest micro-batch, including padding if it is padded.
        is_half: the forward pass runs in bfloat16 or float16.
        recomputes: --grad-checkpointing is on.
        state_bytes: `ModelSize.state_bytes`.
    """
    factor = FACTORS[is_half, recomputes, is_padded] if on_gpu else CPU_FACTORS[is_half, recomputes]
    copied = size.gpt + size.adapters - size.in_half
    weights = copied * (FLOAT32_BYTES + (HALF_BYTES if is_half else 0))
    weights += size.in_half * (HALF_BYTES if is_half else FLOAT32_BYTES)
    fixed = weights + state_bytes
    if not on_gpu:  # the copy for a save, the encoders, the process
        fixed += FLOAT32_BYTES * (size.saved + size.encoders + size.tables) + state_bytes + PROGRAM_BYTES
    return MemoryNeed(
        fixed=fixed,
        per_position=factor.per_position(config),
        gradients=FLOAT32_BYTES * size.with_gradient,
        positions=positions,
        accumulates=accumulates,
    )


# --- sizes of the encoders


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
