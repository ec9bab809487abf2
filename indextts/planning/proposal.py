"""Automatic settings: what a new run chooses for its machine and pairs, each with its reason.

    typed fields + machine + model + pairs --propose--> the fields of `Train.automatic` that were not typed

Precision follows from the hardware. A micro-batch has as many positions as the memory holds, up to a full
step; gradient checkpointing is on only where too few would fit. Accumulation fills the step up to
--step-pairs, by default 32, the size of the published example and of the published settings for 200 hours. A
GPU that spends over a tenth of such a step on its fixed cost gets 64, if an epoch keeps 1,000 steps. Where
training all weights does not fit, the reason offers LoRA; it is never chosen, since it changes the result.

A typed setting is kept, and the others follow it:

    --batch-tokens        accumulation fills the step
    --grad-accumulation   the budget is the step divided by it, as far as the memory holds
    --batch-size          no token budget; without --step-pairs, a step is one batch of each rank
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from indextts.commands.base import flag_of
from indextts.commands.terminal import with_typed
from indextts.commands.train import Train
from indextts.models.gpt.config import GPTConfig
from indextts.planning.hardware import MachineFacts
from indextts.planning.memory import (
    CONTEXT_BYTES,
    MemoryNeed,
    ModelSize,
    gpu_memory,
    host_memory,
    with_lora,
)
from indextts.planning.pace import conditions_of, fixed_share, precision_of
from indextts.planning.pairs_size import PairsSize
from indextts.runs.restore import MIN_LONGEST_PER_BATCH
from indextts.system.amounts import shown_gib
from indextts.system.messages import Message

FILLED = 0.9  # of the available memory: batches vary, and the allocator fragments
GPU_WORKERS = 2
MAX_SAMPLES_ON_CPU = 8
LARGE_STEP_PAIRS = 64  # of the predecessor, with 75 GiB or more
MAX_FIXED_SHARE = 0.1
MIN_LARGE_STEPS = 1000  # of an epoch; fewer pairs need the updates more than the speed
SAMPLE_MARGIN = 1.2  # the longest of 300,000 pairs is longer than the longest of 2,000

MACHINE = "planning.machine"
NATIVE = "planning.native"
NOT_NATIVE = "planning.not_native"
CPU_NATIVE = "planning.cpu_native"
CPU_FLOAT32 = "planning.cpu_float32"
STEP_FITS = "planning.step_fits"
STEP_LARGE = "planning.step_large"
STEP_SPLIT = "planning.step_split"
STEP_SHARED = "planning.step_shared"
RECOMPUTED = "planning.recomputed"
NOT_NEEDED = "planning.not_needed"
TOO_SMALL = "planning.too_small"
TOO_SMALL_BUT_FOR_LORA = "planning.too_small_but_for_lora"
GPU_TOO_SMALL = "planning.gpu_too_small"
NO_GPU_SETTINGS = "planning.no_settings_fit"
MEMORY_SETTINGS = frozenset({"batch_size", "batch_tokens", "grad_accumulation", "grad_checkpointing"})
OFFERED_RANK = 32  # never chosen: LoRA gives another result
WORKERS = "planning.workers"
NO_WORKERS = "planning.no_workers"


@dataclass(frozen=True)
class Proposal:
    """Chosen values of fields of the Train command, and their reasons.

    Args:
        reasons: by field; the batch tokens and the gradient accumulation have one reason, under the first of
            them that was chosen.
        fits: the training run fits into memory.
    """

    fields: dict[str, Any]
    reasons: dict[str, Message]
    fits: bool

    def by_reason(self) -> Iterator[tuple[tuple[str, ...], Message]]:
        """Yield the fields of each reason, and the reason."""
        for first, reason in self.reasons.items():
            has_two = first == "batch_tokens" and "grad_accumulation" in self.fields
            yield (first, "grad_accumulation") if has_two else (first,), reason

    def flags(self, names: Iterable[str] | None = None) -> list[str]:
        """Return fields as they would be typed, by default all."""
        shown = {name: self.fields[name] for name in (self.fields if names is None else names)}
        return [
            flag_of(name if value else f"no_{name}")
            if isinstance(value, bool)
            else f"{flag_of(name)}={value}"
            for name, value in shown.items()
        ]


def propose(
    command: Train,
    machine: MachineFacts,
    config: GPTConfig,
    size: ModelSize,
    pairs: PairsSize,
    num_processes: int = 1,
) -> Proposal:
    """Return the automatic settings for a machine, which may be any, not only this one.

    Args:
        command: its `model_fields_set` are the fields that were typed, and are kept.
        machine: the share of one rank, see `share_of`.
        config: its `number_text_tokens` is the vocabulary size of the run's tokenizer.
        num_processes: world size, on all machines; the ranks share the pairs of a step.
    """
    typed = frozenset(command.model_fields_set)
    fields: dict[str, Any] = {}
    reasons: dict[str, Message] = {}
    if "amp" not in typed:
        fields["amp"], reasons["amp"] = _precision(machine)
    command = command.model_copy(update=fields)
    batch = _choose_batch(command, machine, config, size, pairs, num_processes)
    if not batch.fits and not command.lora_rank:
        batch = _with_offer(batch, command, machine, config, size, pairs, num_processes)
    fields |= batch.fields
    reasons = {**batch.reasons, **reasons}
    command = command.model_copy(update=fields)
    if "num_workers" not in typed:
        workers = min(GPU_WORKERS, max(0, machine.num_cores - 1)) if machine.gpu else 0
        fields["num_workers"] = workers
        has_workers = Message(WORKERS, {"workers": str(workers)})
        reasons["num_workers"] = has_workers if workers else Message(NO_WORKERS)
    return Proposal(fields, reasons, batch.fits)


def gpu_too_small(
    command: Train,
    machine: MachineFacts,
    config: GPTConfig,
    size: ModelSize,
    pairs: PairsSize,
    num_processes: int,
    *,
    device_before: str | None,
) -> Message | None:
    """Return a message with settings that fit if the GPU is too small for those of a run; else None.

    A typed setting that decides about memory is the user's choice: the trainer splits a batch that does not
    fit.

    Args:
        command: as the restore plan has it: `model_fields_set` are the typed fields.
        machine: the share of one rank.
        config: with the vocabulary size of the run's tokenizer.
        device_before: the device of the checkpoint; on the same one, the run is known to fit.
    """
    gpu = machine.gpu
    if gpu is None or gpu.name == device_before or command.model_fields_set & MEMORY_SETTINGS:
        return None
    needed = memory_of(command, machine, config, size, pairs).peak + CONTEXT_BYTES
    if needed <= gpu.memory_bytes:
        return None
    batch = command.batch_tokens / pairs.mean if command.batch_tokens else command.batch_size
    step_pairs = max(1, round(num_processes * command.grad_accumulation * batch))
    free = with_typed(
        command.model_copy(update={"step_pairs": step_pairs}), Train.automatic - MEMORY_SETTINGS
    )
    smaller = propose(free, machine, config, size, pairs, num_processes)
    values = {"needed": shown_gib(needed), "there": shown_gib(gpu.memory_bytes), "gpu": gpu.name}
    if not smaller.fits:
        return Message(NO_GPU_SETTINGS, values)
    return Message(GPU_TOO_SMALL, {**values, "flags": " ".join(smaller.flags())})


def _choose_batch(
    command: Train,
    machine: MachineFacts,
    config: GPTConfig,
    size: ModelSize,
    pairs: PairsSize,
    num_processes: int,
) -> Proposal:
    """Return the chosen token budget, accumulation and recomputation.

    Args:
        command: with the precision of the run.
    """
    typed, gpu = command.model_fields_set, machine.gpu
    fields: dict[str, Any] = {}
    available = gpu.memory_bytes if gpu else machine.memory_bytes
    budget = FILLED * (available - (CONTEXT_BYTES if gpu else 0))
    share = _fixed_share(command, machine, config, pairs, num_processes)
    is_large = share > MAX_FIXED_SHARE
    target = (LARGE_STEP_PAIRS if is_large else command.step_pairs) * pairs.mean  # positions of a step
    longest = expected_longest(pairs, config)
    positions = 0  # of a large micro-batch of the typed size
    if command.batch_tokens and "batch_tokens" in typed:
        positions = command.batch_tokens
    elif typed & {"batch_size", "batch_tokens"}:
        positions = pairs.most_positions(command.batch_size, 0)
    least = positions or MIN_LONGEST_PER_BATCH * longest
    # with padding, each sample takes the positions of the longest of its batch
    padded = pairs.size.longest / pairs.mean if command.padding == "reference" else 1.0
    for recomputes in (command.grad_checkpointing,) if "grad_checkpointing" in typed else (False, True):
        trial = command.model_copy(update={"grad_checkpointing": recomputes})
        need = memory_need(trial, machine, config, size)
        room = int(need.positions_within(budget) / padded)
        if room >= least:
            break
    accumulation = command.grad_accumulation
    if positions:
        is_step = not command.batch_tokens and "step_pairs" not in typed
        if "grad_accumulation" not in typed and not is_step:
            batch = num_processes * command.batch_size * pairs.mean
            if command.batch_tokens:
                batch = num_processes * command.batch_tokens - longest
            fields["grad_accumulation"] = accumulation = max(1, round(target / batch))
    else:
        most = room if gpu else min(room, round(MAX_SAMPLES_ON_CPU * pairs.mean))
        most = max(least, most)
        # the batches of a budget are smaller by up to one sample, see `EpochSize.num_batches`
        if "grad_accumulation" not in typed:
            accumulation = fields["grad_accumulation"] = math.ceil(target / (num_processes * most - longest))
        wanted = math.ceil((target / accumulation + longest) / num_processes)
        fields["batch_tokens"] = positions = max(least, min(most, wanted))
    if "grad_checkpointing" not in typed:
        fields["grad_checkpointing"] = recomputes
    need = replace(need, accumulates=accumulation > 1)
    needed = need.at(round(padded * positions))
    values: dict[str, object] = {
        "pairs": f"{accumulation * (num_processes * positions - longest) / pairs.mean:.0f}",
        "positions": f"{positions:,}",
        "needed": shown_gib(needed),
        "there": shown_gib(available),
        "place": gpu.name if gpu else Message(MACHINE),
        "accumulation": str(accumulation),
        "processes": str(num_processes),
        "share": f"{100 * share:.0f}",
    }
    reasons: dict[str, Message] = {}
    if chosen := [name for name in ("batch_tokens", "grad_accumulation") if name in fields]:
        single_process = STEP_LARGE if is_large else STEP_FITS if accumulation == 1 else STEP_SPLIT
        reasons[chosen[0]] = Message(STEP_SHARED if num_processes > 1 else single_process, values)
        if needed > budget and "batch_tokens" in fields:
            reasons[chosen[0]] = Message(TOO_SMALL, {**values, "needed": shown_gib(need.at(0))})
    if "grad_checkpointing" in fields:
        reasons["grad_checkpointing"] = Message(RECOMPUTED, values) if recomputes else Message(NOT_NEEDED)
    return Proposal(fields, reasons, fits=needed <= budget)


def _with_offer(
    batch: Proposal,
    command: Train,
    machine: MachineFacts,
    config: GPTConfig,
    size: ModelSize,
    pairs: PairsSize,
    num_processes: int,
) -> Proposal:
    """Return the proposal for a GPU that is too small, with the offer of LoRA if that fits."""
    lora = command.model_copy(update={"lora_rank": OFFERED_RANK})
    smaller = with_lora(size, config, OFFERED_RANK, command.lora_targets)
    if not _choose_batch(lora, machine, config, smaller, pairs, num_processes).fits:
        return batch
    reasons = {
        name: Message(TOO_SMALL_BUT_FOR_LORA, {**message.values, "rank": str(OFFERED_RANK)})
        if message.id == TOO_SMALL
        else message
        for name, message in batch.reasons.items()
    }
    return replace(batch, reasons=reasons)


def _fixed_share(
    command: Train, machine: MachineFacts, config: GPTConfig, pairs: PairsSize, num_processes: int
) -> float:
    """Return the measured share of a step's fixed cost; 0 where the size of the step is not to be chosen."""
    is_typed = command.model_fields_set & {"step_pairs", "batch_size", "batch_tokens", "grad_accumulation"}
    if is_typed or num_processes > 1 or pairs.size.num_samples < MIN_LARGE_STEPS * LARGE_STEP_PAIRS:
        return 0.0
    return fixed_share(conditions_of(command, config, machine), command.step_pairs * pairs.mean)


def expected_longest(pairs: PairsSize, config: GPTConfig) -> int:
    """Return the positions of the longest pair, with a margin if only a sample was read."""
    if not pairs.is_sampled:
        return pairs.size.longest
    largest = config.prefix_length + 3 + config.max_text_tokens + config.max_mel_tokens
    return min(largest, round(pairs.size.longest * SAMPLE_MARGIN))


def memory_of(
    command: Train, machine: MachineFacts, config: GPTConfig, size: ModelSize, pairs: PairsSize
) -> MemoryNeed:
    """Return the memory that a rank needs: on its GPU, or in host memory without a GPU."""
    positions = pairs.most_positions(command.batch_size, command.batch_tokens)
    if command.padding == "reference":  # each sample is padded to the longest of its batch
        num_samples = command.batch_tokens / pairs.mean if command.batch_tokens else command.batch_size
        positions = round(num_samples * pairs.size.longest)
    return memory_need(command, machine, config, size, positions)


def memory_need(
    command: Train, machine: MachineFacts, config: GPTConfig, size: ModelSize, positions: int = 0
) -> MemoryNeed:
    """Return the memory that a rank needs: on its GPU, or in host memory without a GPU.

    Args:
        positions: of the largest micro-batch. With 0, gradients accumulate: a batch that fits next to
            accumulated gradients also fits without them.
    """
    is_half, recomputes = precision_of(command.amp, machine) != "float32", command.grad_checkpointing
    state = size.state_bytes(command.optimizer_state, command.ema_decay)
    need = gpu_memory(
        config,
        size,
        positions=positions,
        is_half=is_half,
        recomputes=recomputes,
        is_padded=command.padding == "reference",
        accumulates=not positions or command.grad_accumulation > 1,
        state_bytes=state,
    )
    if machine.gpu:
        return need
    return host_memory(config, size, need, is_half=is_half, recomputes=recomputes, state_bytes=state)


def _precision(machine: MachineFacts) -> tuple[bool, Message]:
    """Return whether to use mixed precision, and the reason."""
    gpu = machine.gpu
    if gpu is None:
        native = machine.has_native_bfloat16
        return native, Message(CPU_NATIVE if native else CPU_FLOAT32)
    template = NATIVE if gpu.has_native_bfloat16 else NOT_NATIVE
    capability = ".".join(map(str, gpu.compute_capability))
    return True, Message(template, {"gpu": gpu.name, "capability": capability})
