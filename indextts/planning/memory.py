"""How much memory a training needs: parameters and their state from the model's size, activations measured.

    on a card   4 bytes a weight; 8 a trained weight for AdamW, 4 with its moments in bfloat16, and 4 for a
                moving average; 2 a weight for the copy that autocast keeps; and at the peak either the
                activations of a micro-batch (with accumulation beside the gradients) or the gradients in
                the optimizer's step
    on a CPU    the same, and the encoders, and the copy of weights and moments that a save is written from

Activations grow with positions, layers and width:

    bytes = positions x width x (layers x per_layer + constant)

The factors come from measured peaks: on a card from benchmarks/results/gpu_round_h200.md, on which the
formula is less than 2 % off (all of 24 layers, so that there is no constant), on a CPU from
benchmarks/results/step_memory_cpu.md, about a third off at most. Those that were not measured are scaled from
their neighbours, and say so.
"""

from dataclasses import dataclass, replace

from indextts.models.gpt.config import GPTConfig
from indextts.planning.model_size import FLOAT32_BYTES, HALF_BYTES, ModelSize

SOURCE = "benchmarks/results/gpu_round_h200.md"
CPU_SOURCE = "benchmarks/results/step_memory_cpu.md"
PROGRAM_BYTES = 700 << 20  # libraries of the process on a CPU
CONTEXT_BYTES = 1 << 30  # CUDA's own on a card, and what the allocator cannot join


@dataclass(frozen=True)
class Factor:
    """Bytes of activations for each position and column of the model's width: for each layer, and once."""

    per_layer: float
    constant: float
    is_measured: bool

    def per_position(self, config: GPTConfig) -> float:
        return config.model_dim * (config.layers * self.per_layer + self.constant)


FACTORS = {  # (half precision, recomputed blocks, padded)
    (True, False, False): Factor(40.8, 0, True),
    (True, True, False): Factor(6.6, 0, True),
    (True, False, True): Factor(49.2, 0, True),  # of a position of the padded batch
    (False, False, False): Factor(68.5, 0, True),
    (False, True, False): Factor(13.2, 0, False),  # twice the one in half precision
    (False, False, True): Factor(82.6, 0, False),  # scaled as the packed one
    (True, True, True): Factor(8.0, 0, False),
    (False, True, True): Factor(16.0, 0, False),
}
CPU_FACTORS = {  # (half precision, recomputed blocks)
    (False, False): Factor(81, 138, True),
    (False, True): Factor(4, 340, True),
    (True, False): Factor(62, 53, True),
    (True, True): Factor(12, 150, True),
}


@dataclass(frozen=True)
class MemoryNeed:
    """What a training needs at its peak, in bytes.

    Args:
        fixed: weights and optimizer, whatever the batch.
        per_position: of a micro-batch.
        gradients: of all weights on the card.
        positions: of the largest micro-batch.
        accumulates: gradients are kept while the next micro-batch is computed.
        is_measured: the factor behind `per_position` was measured, on another card and with as many weights.
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
        """Return the positions of the largest micro-batch that fits, 0 or less where none does."""
        left = num_bytes - self.fixed - self.gradients * self.accumulates
        return int(left / self.per_position) if left >= (0 if self.accumulates else self.gradients) else 0


def card_memory(
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
    """Return what a training needs on its card.

    Args:
        positions: of the largest micro-batch, with its padding if it is padded.
        is_half: forward in bfloat16 or float16.
        recomputes: --grad-checkpointing.
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
    card: MemoryNeed,
    *,
    is_half: bool,
    recomputes: bool,
    state_bytes: int,
) -> MemoryNeed:
    """Return what the training of `card` needs in the machine's memory where there is no card."""
    factor = CPU_FACTORS[is_half, recomputes]
    copy_of_a_save = FLOAT32_BYTES * size.gpt + state_bytes
    encoders = FLOAT32_BYTES * (size.encoders + size.tables)
    return replace(
        card,
        fixed=card.fixed + copy_of_a_save + encoders + PROGRAM_BYTES,
        per_position=factor.per_position(config),
        is_measured=factor.is_measured,
    )
