"""Settings for the machine found: batch, accumulation, precision, workers, each with its reason.

The order in which it decides: precision from the card, then as many positions at once as memory holds (blocks
computed twice where that is too few), never more than a step of the usual size; then accumulation up to that
size. A step of 32 pairs is what the published example and the published settings for 200 hours count on.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from indextts.models.gpt.config import GPTConfig
from indextts.planning.hardware import GpuFacts, MachineFacts
from indextts.planning.memory import CONTEXT_BYTES, MemoryNeed, ModelSize, gpu_memory, host_memory
from indextts.planning.pairs_size import PairsSize
from indextts.runs.restore import MIN_LONGEST_PER_BATCH
from indextts.system.amounts import shown_gib
from indextts.system.messages import Message

PAIRS_PER_STEP = 32
ROUND_POSITIONS = 512
FILLED = 0.9  # of the memory that is left: batches vary, and the allocator keeps holes
GPU_WORKERS = 2
MOST_SAMPLES_ON_CPU = 8
MARGIN_OF_A_SAMPLE = 1.2  # the longest of 300,000 pairs is longer than the longest of 2,000

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
    """Fields of the Train command with the values for this machine, and why.

    Args:
        reasons: by field; several fields that were chosen together share the first one's.
        fits: the training fits into memory.
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
    """Return the settings for a machine; everything comes in, so that any card can be asked about.

    Args:
        machine: what one process has of it.
        num_processes: that train together, on all machines; they share a step of the usual size.
        config: with the pieces of the run's tokenizer.
        state_bytes: `ModelSize.state_bytes` of the optimizer that the form asks for.
    """
    card = machine.gpu
    amp, why_amp = _precision(machine)
    place = card.name if card else Message(MACHINE)
    there = card.memory_bytes if card else machine.memory_bytes
    budget = FILLED * (there - (CONTEXT_BYTES if card else 0))
    target = PAIRS_PER_STEP * pairs.mean / num_processes
    at_once = target if card else min(target, MOST_SAMPLES_ON_CPU * pairs.mean)
    fewest = MIN_LONGEST_PER_BATCH * longest_to_expect(pairs, config)
    recomputes, need = _need(machine, config, size, amp, budget, fewest, state_bytes)
    most = max(fewest, min(need.positions_within(budget), _rounded_up(at_once)))
    accumulation = max(1, math.ceil(target / most))
    positions = max(fewest, min(most, _rounded_up(target / accumulation)))
    need = replace(need, accumulates=accumulation > 1)
    workers = min(GPU_WORKERS, max(0, machine.num_cores - 1)) if card else 0
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
        "there": shown_gib(there),
        "place": place,
        "accumulation": str(accumulation),
        "processes": str(num_processes),
    }
    alone = STEP_FITS if accumulation == 1 else STEP_SPLIT
    why_batch = Message(STEP_SHARED if num_processes > 1 else alone, shown)
    reasons = {
        "batch_tokens": why_batch if fits else Message(TOO_SMALL, {**shown, "needed": shown_gib(need.at(0))}),
        "amp": why_amp,
        "grad_checkpointing": Message(RECOMPUTED, shown) if recomputes else Message(NOT_NEEDED),
        "num_workers": Message(WORKERS, {"workers": str(workers)}) if workers else Message(NO_WORKERS),
    }
    return Proposal(fields, reasons, fits)


def longest_to_expect(pairs: PairsSize, config: GPTConfig) -> int:
    """Return the positions of the longest pair; where only some were read, with a margin for the others."""
    if not pairs.is_sampled:
        return pairs.size.longest
    largest = config.num_latents + 5 + config.max_text_tokens + config.max_mel_tokens
    return min(largest, round(pairs.size.longest * MARGIN_OF_A_SAMPLE))


def _need(
    machine: MachineFacts,
    config: GPTConfig,
    size: ModelSize,
    amp: bool,
    budget: float,
    fewest: int,
    state_bytes: int,
) -> tuple[bool, MemoryNeed]:
    """Return whether the blocks are computed twice, which is only where memory asks for it, and the need."""
    for recomputes in (False, True):
        need = gpu_memory(
            config,
            size,
            positions=0,
            is_half=amp,
            recomputes=recomputes,
            is_padded=False,
            accumulates=True,  # what fits beside kept gradients fits without them
            state_bytes=state_bytes,
        )
        if machine.gpu is None:
            need = host_memory(
                config, size, need, is_half=amp, recomputes=recomputes, state_bytes=state_bytes
            )
        if need.positions_within(budget) >= fewest:
            return recomputes, need
    return True, need


def _rounded_up(positions: float) -> int:
    return math.ceil(positions / ROUND_POSITIONS) * ROUND_POSITIONS


def _precision(machine: MachineFacts) -> tuple[bool, Message]:
    card = machine.gpu
    if card is None:
        native = machine.has_native_bfloat16
        return native, Message(CPU_NATIVE if native else CPU_FLOAT32)
    if card.compute_capability is None:
        return False, Message(UNKNOWN_CAPABILITY, {"card": card.name})
    template = NATIVE if card.has_native_bfloat16 else NOT_NATIVE
    return True, Message(template, {"card": card.name, "capability": _shown(card)})


def _shown(card: GpuFacts) -> str:
    return ".".join(map(str, card.compute_capability or ()))
