"""Automatic settings: what a new run chooses for its machine and pairs, each with its reason.

    StartFacts: typed fields, machine, model, pairs --propose--> the fields of `Train.automatic` not typed

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
from typing import Any, Self

from indextts.commands.base import typed_flag
from indextts.commands.terminal import with_typed
from indextts.commands.train import Train
from indextts.models.gpt.config import GPTConfig
from indextts.planning.hardware import MachineFacts
from indextts.planning.memory import CONTEXT_BYTES, MemoryNeed, ModelSize, memory_need, model_size
from indextts.planning.pace import Conditions, fixed_share
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

BATCH_SETTINGS = frozenset({"batch_size", "batch_tokens", "grad_accumulation"})
MEMORY_SETTINGS = BATCH_SETTINGS | {"grad_checkpointing"}
OFFERED_RANK = 32  # never chosen: LoRA gives another result


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
        return [typed_flag(name, self.fields[name]) for name in (self.fields if names is None else names)]


@dataclass(frozen=True)
class StartFacts:
    """Facts from which a start chooses its automatic settings."""

    settings: Train  # `model_fields_set` are the fields that were typed, and are kept
    machine: MachineFacts  # the share of one rank, see `share_of`; of any machine, not only this one
    config: GPTConfig  # its `number_text_tokens` is the vocabulary size of the run's tokenizer
    base_size: int  # pieces of the base tokenizer
    pairs: PairsSize
    num_processes: int = 1  # world size, on all machines; the ranks share the pairs of a step

    @property
    def size(self) -> ModelSize:
        return model_size(
            self.config,
            base_size=self.base_size,
            lora_rank=self.settings.lora_rank,
            lora_targets=self.settings.lora_targets,
            train_text_rows=self.settings.train_text_rows,
            lora_code_head=self.settings.lora_code_head,
        )

    @property
    def precision(self) -> str:
        """Data type of the forward pass, chosen as the trainer does."""
        gpu = self.machine.gpu
        if not self.settings.amp:
            return "float32"
        if gpu is None:
            return "bfloat16" if self.machine.has_native_bfloat16 else "float32"
        return "bfloat16" if gpu.has_native_bfloat16 else "float16"

    @property
    def conditions(self) -> Conditions:
        """Conditions of the pace; it is the sum over all ranks."""
        settings, gpu = self.settings, self.machine.gpu
        return Conditions(
            device=gpu.name if gpu else "cpu",
            precision=self.precision,
            padding=settings.padding,
            grad_checkpointing=settings.grad_checkpointing,
            compile=settings.compile,
            lora_rank=settings.lora_rank,
            shape=(self.config.layers, self.config.model_dim),
            num_processes=self.num_processes,
        )

    def propose(self) -> Proposal:
        typed, machine = self.settings.model_fields_set, self.machine
        fields: dict[str, Any] = {}
        reasons: dict[str, Message] = {}
        if "amp" not in typed:
            fields["amp"], reasons["amp"] = _precision(machine)
        facts = self._with(**fields)
        batch = facts._choose_batch()
        fields |= batch.fields
        reasons = {**batch.reasons, **reasons}
        if "num_workers" not in typed:
            workers = min(GPU_WORKERS, max(0, machine.num_cores - 1)) if machine.gpu else 0
            fields["num_workers"] = workers
            has_workers = Message("planning.workers", {"workers": str(workers)})
            reasons["num_workers"] = has_workers if workers else Message("planning.no_workers")
        return Proposal(fields, reasons, batch.fits)

    def too_small(self, device_before: str | None) -> Message | None:
        """Return a message with settings that fit if the GPU is too small for those of a run; else None.

        A typed setting that decides about memory is the user's choice: the trainer splits a batch that does
        not fit.

        Args:
            device_before: the device of the checkpoint; on the same one, the run is known to fit.
        """
        settings, gpu = self.settings, self.machine.gpu
        if gpu is None or gpu.name == device_before or settings.model_fields_set & MEMORY_SETTINGS:
            return None
        needed = self.memory().peak + CONTEXT_BYTES
        if needed <= gpu.memory_bytes:
            return None
        batch = settings.batch_tokens / self.pairs.mean if settings.batch_tokens else settings.batch_size
        step_pairs = max(1, round(self.num_processes * settings.grad_accumulation * batch))
        free = settings.model_copy(update={"step_pairs": step_pairs})
        smaller = replace(self, settings=with_typed(free, Train.automatic - MEMORY_SETTINGS)).propose()
        values = {"needed": shown_gib(needed), "there": shown_gib(gpu.memory_bytes), "gpu": gpu.name}
        if not smaller.fits:
            return Message("planning.no_settings_fit", values)
        return Message("planning.gpu_too_small", {**values, "flags": " ".join(smaller.flags())})

    def memory(self) -> MemoryNeed:
        """Return the memory that a rank needs: on its GPU, or in host memory without a GPU."""
        settings, pairs = self.settings, self.pairs
        positions = pairs.most_positions(settings.batch_size, settings.batch_tokens)
        if settings.padding == "reference":  # each sample is padded to the longest of its batch
            num_samples = settings.batch_tokens / pairs.mean if settings.batch_tokens else settings.batch_size
            positions = round(num_samples * pairs.size.longest)
        return self._memory_at(positions, accumulates=settings.grad_accumulation > 1)

    def _memory_at(self, positions: int, *, accumulates: bool) -> MemoryNeed:
        settings = self.settings
        return memory_need(
            self.config,
            self.size,
            on_gpu=self.machine.gpu is not None,
            positions=positions,
            is_half=self.precision != "float32",
            recomputes=settings.grad_checkpointing,
            is_padded=settings.padding == "reference",
            accumulates=accumulates,
            state_bytes=self.size.state_bytes(settings.optimizer_state, settings.ema_decay),
        )

    def _with(self, **fields: Any) -> Self:
        return replace(self, settings=self.settings.model_copy(update=fields))

    def _fixed_share(self) -> float:
        """Return the measured share of a step's fixed cost; 0 where the step's size is not to be chosen."""
        settings, pairs = self.settings, self.pairs
        is_typed = settings.model_fields_set & {"step_pairs", *BATCH_SETTINGS}
        is_small = pairs.size.num_samples < MIN_LARGE_STEPS * LARGE_STEP_PAIRS
        if is_typed or self.num_processes > 1 or is_small:
            return 0.0
        return fixed_share(self.conditions, settings.step_pairs * pairs.mean)

    def _choose_batch(self) -> Proposal:
        settings, pairs, num_processes = self.settings, self.pairs, self.num_processes
        typed, gpu = settings.model_fields_set, self.machine.gpu
        fields: dict[str, Any] = {}
        available = gpu.memory_bytes if gpu else self.machine.memory_bytes
        budget = FILLED * (available - (CONTEXT_BYTES if gpu else 0))
        share = self._fixed_share()
        is_large = share > MAX_FIXED_SHARE
        target = (LARGE_STEP_PAIRS if is_large else settings.step_pairs) * pairs.mean  # positions of a step
        longest = expected_longest(pairs, self.config)
        positions = 0  # of a large micro-batch of the typed size
        if settings.batch_tokens and "batch_tokens" in typed:
            positions = settings.batch_tokens
        elif typed & {"batch_size", "batch_tokens"}:
            positions = pairs.most_positions(settings.batch_size, 0)
        least = positions or MIN_LONGEST_PER_BATCH * longest
        # with padding, each sample takes the positions of the longest of its batch
        padded = pairs.size.longest / pairs.mean if settings.padding == "reference" else 1.0
        for recomputes in (settings.grad_checkpointing,) if "grad_checkpointing" in typed else (False, True):
            # next to accumulated gradients: a batch that fits there also fits without them
            need = self._with(grad_checkpointing=recomputes)._memory_at(0, accumulates=True)
            room = int(need.positions_within(budget) / padded)
            if room >= least:
                break
        accumulation = settings.grad_accumulation
        if positions:
            is_step = not settings.batch_tokens and "step_pairs" not in typed
            if "grad_accumulation" not in typed and not is_step:
                batch = num_processes * settings.batch_size * pairs.mean
                if settings.batch_tokens:
                    batch = num_processes * settings.batch_tokens - longest
                fields["grad_accumulation"] = accumulation = max(1, round(target / batch))
        else:
            most = room if gpu else min(room, round(MAX_SAMPLES_ON_CPU * pairs.mean))
            most = max(least, most)
            # the batches of a budget are smaller by up to one sample, see `EpochSize.num_batches`
            if "grad_accumulation" not in typed:
                accumulation = fields["grad_accumulation"] = math.ceil(
                    target / (num_processes * most - longest)
                )
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
            "place": gpu.name if gpu else Message("planning.machine"),
            "accumulation": str(accumulation),
            "processes": str(num_processes),
            "share": f"{100 * share:.0f}",
        }
        reasons: dict[str, Message] = {}
        if chosen := [name for name in ("batch_tokens", "grad_accumulation") if name in fields]:
            id = "planning.step_fits" if accumulation == 1 else "planning.step_split"
            if is_large:
                id = "planning.step_large"
            elif num_processes > 1:
                id = "planning.step_shared"
            reasons[chosen[0]] = Message(id, values)
            if needed > budget and "batch_tokens" in fields:
                values |= {"needed": shown_gib(need.at(0)), "rank": str(OFFERED_RANK)}
                with_lora = self._with(lora_rank=OFFERED_RANK)
                fits_with_lora = not settings.lora_rank and with_lora._choose_batch().fits
                id = "planning.too_small_but_for_lora" if fits_with_lora else "planning.too_small"
                reasons[chosen[0]] = Message(id, values)
        if "grad_checkpointing" in fields:
            reasons["grad_checkpointing"] = (
                Message("planning.recomputed", values) if recomputes else Message("planning.not_needed")
            )
        return Proposal(fields, reasons, fits=needed <= budget)


def expected_longest(pairs: PairsSize, config: GPTConfig) -> int:
    """Return the positions of the longest pair, with a margin if only a sample was read."""
    if not pairs.is_sampled:
        return pairs.size.longest
    largest = config.prefix_length + 3 + config.max_text_tokens + config.max_mel_tokens
    return min(largest, round(pairs.size.longest * SAMPLE_MARGIN))


def _precision(machine: MachineFacts) -> tuple[bool, Message]:
    """Return whether to use mixed precision, and the reason."""
    gpu = machine.gpu
    if gpu is None:
        native = machine.has_native_bfloat16
        return native, Message("planning.cpu_native" if native else "planning.cpu_float32")
    template = "planning.native" if gpu.has_native_bfloat16 else "planning.not_native"
    capability = ".".join(map(str, gpu.compute_capability))
    return True, Message(template, {"gpu": gpu.name, "capability": capability})
