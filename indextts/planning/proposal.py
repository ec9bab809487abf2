"""Proposed settings for a machine: batch, accumulation, precision, workers, each with its reason.

Precision follows from the GPU. A micro-batch has as many positions as the memory holds, up to a full step;
gradient checkpointing is on only where too few would fit. Accumulation fills the step up to 32 pairs, the
size of the published example and of the published settings for 200 hours.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from indextts.models.gpt.config import GPTConfig
from indextts.planning.hardware import MachineFacts
from indextts.planning.memory import CONTEXT_BYTES, MemoryNeed, ModelSize, gpu_memory, host_memory
from indextts.planning.pairs_size import PairsSize
from indextts.runs.restore import MIN_LONGEST_PER_BATCH
from indextts.system.amounts import shown_gib
from indextts.system.messages import Message

PAIRS_PER_STEP = 32
ROUND_POSITIONS = 512
FILLED = 0.9  # of the available memory: batches vary, and the allocator fragments
GPU_WORKERS = 2
MAX_SAMPLES_ON_CPU = 8
SAMPLE_MARGIN = 1.2  # the longest of 300,000 pairs is longer than the longest of 2,000

MACHINE = "planning.machine"
NATIVE = "planning.native"
NOT_NATIVE = "planning.not_native"
UNKNOWN_CAPABILITY = "planning.unknown_capability"
CPU_NATIVE = "planning.cpu_native"
CPU_FLOAT32 = "planning.cpu_float32"
STEP_FITS = "planning.step_fits"
STEP_SPLIT = "planning.step_split"
STEP_SHARED = "planning.step_shared"
RECOMPUTED = "planning.recomputed"
NOT_NEEDED = "planning.not_needed"
TOO_SMALL = "planning.too_small"
WORKERS = "planning.workers"
NO_WORKERS = "planning.no_workers"


@dataclass(frozen=True)
class Proposal:
    """Values of fields of the Train command, and their reasons.

    Args:
        reasons: by field; fields chosen together have one reason, under the first of them.
        fits: the training run fits into memory.
    """

    fields: dict[str, Any]
    reasons: dict[str, Message]
    fits: bool


def propose(
    machine: MachineFacts,
    config: GPTConfig,
    size: ModelSize,
    pairs: PairsSize,
    state_bytes: int,
    num_processes: int = 1,
) -> Proposal:
    """Return the proposed settings for a machine, which may be any, not only this one.

    Args:
        machine: the share of one rank, see `share_of`.
        config: its `number_text_tokens` is the vocabulary size of the run's tokenizer.
        state_bytes: `ModelSize.state_bytes` of the optimizer that the form selects.
        num_processes: world size, on all machines; the ranks share a step of the usual size.
    """
    gpu = machine.gpu
    amp, amp_reason = _precision(machine)
    place = gpu.name if gpu else Message(MACHINE)
    available = gpu.memory_bytes if gpu else machine.memory_bytes
    budget = FILLED * (available - (CONTEXT_BYTES if gpu else 0))
    target = PAIRS_PER_STEP * pairs.mean / num_processes  # positions per rank and step
    wanted = target if gpu else min(target, MAX_SAMPLES_ON_CPU * pairs.mean)
    min_positions = MIN_LONGEST_PER_BATCH * expected_longest(pairs, config)
    for recomputes in (False, True):
        need = _memory_need(
            machine, config, size, is_half=amp, recomputes=recomputes, state_bytes=state_bytes
        )
        if need.positions_within(budget) >= min_positions:
            break
    max_positions = max(min_positions, min(need.positions_within(budget), _rounded_up(wanted)))
    accumulation = max(1, math.ceil(target / max_positions))
    positions = max(min_positions, min(max_positions, _rounded_up(target / accumulation)))
    need = replace(need, accumulates=accumulation > 1)
    workers = min(GPU_WORKERS, max(0, machine.num_cores - 1)) if gpu else 0
    fields = {
        "batch_tokens": positions,
        "grad_accumulation": accumulation,
        "amp": amp,
        "grad_checkpointing": recomputes,
        "num_workers": workers,
    }
    fits = need.at(positions) <= budget
    shown = {
        "pairs": f"{num_processes * accumulation * positions / pairs.mean:.0f}",
        "positions": f"{positions:,}",
        "needed": shown_gib(need.at(positions)),
        "there": shown_gib(available),
        "place": place,
        "accumulation": str(accumulation),
        "processes": str(num_processes),
    }
    single_process = STEP_FITS if accumulation == 1 else STEP_SPLIT
    batch_reason = Message(STEP_SHARED if num_processes > 1 else single_process, shown)
    reasons = {
        "batch_tokens": batch_reason
        if fits
        else Message(TOO_SMALL, {**shown, "needed": shown_gib(need.at(0))}),
        "amp": amp_reason,
        "grad_checkpointing": Message(RECOMPUTED, shown) if recomputes else Message(NOT_NEEDED),
        "num_workers": Message(WORKERS, {"workers": str(workers)}) if workers else Message(NO_WORKERS),
    }
    return Proposal(fields, reasons, fits)


def expected_longest(pairs: PairsSize, config: GPTConfig) -> int:
    """Return the positions of the longest pair, with a margin if only a sample was read."""
    if not pairs.is_sampled:
        return pairs.size.longest
    largest = config.num_latents + 5 + config.max_text_tokens + config.max_mel_tokens
    return min(largest, round(pairs.size.longest * SAMPLE_MARGIN))


def _memory_need(
    machine: MachineFacts,
    config: GPTConfig,
    size: ModelSize,
    *,
    is_half: bool,
    recomputes: bool,
    state_bytes: int,
) -> MemoryNeed:
    """Return the memory need of packed batches on the GPU or, without one, in host memory."""
    need = gpu_memory(
        config,
        size,
        positions=0,
        is_half=is_half,
        recomputes=recomputes,
        is_padded=False,
        accumulates=True,  # a batch that fits next to accumulated gradients also fits without them
        state_bytes=state_bytes,
    )
    if machine.gpu:
        return need
    return host_memory(config, size, need, is_half=is_half, recomputes=recomputes, state_bytes=state_bytes)


def _rounded_up(positions: float) -> int:
    return math.ceil(positions / ROUND_POSITIONS) * ROUND_POSITIONS


def _precision(machine: MachineFacts) -> tuple[bool, Message]:
    """Return whether to use mixed precision, and the reason."""
    gpu = machine.gpu
    if gpu is None:
        native = machine.has_native_bfloat16
        return native, Message(CPU_NATIVE if native else CPU_FLOAT32)
    if gpu.compute_capability is None:
        return False, Message(UNKNOWN_CAPABILITY, {"gpu": gpu.name})
    template = NATIVE if gpu.has_native_bfloat16 else NOT_NATIVE
    capability = ".".join(map(str, gpu.compute_capability))
    return True, Message(template, {"gpu": gpu.name, "capability": capability})
