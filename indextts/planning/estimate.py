"""What a training will take, before it starts: steps, time, disk and memory. No torch, no weights read.

How much disk the checkpoints of a training take, pruning counted.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from indextts.commands.train import Train
from indextts.models.gpt.config import GPTConfig, config_with_text_tokens, load_config
from indextts.planning.hardware import MachineFacts
from indextts.planning.memory import (
    CONTEXT_BYTES,
    MemoryNeed,
    ModelSize,
    gpu_memory,
    host_memory,
    model_size,
)
from indextts.planning.pace import Pace, arithmetic_of, find_pace
from indextts.planning.pairs_size import PairsSize, measure_pairs
from indextts.planning.restore_plan import MetaPlan
from indextts.runs.directory import LINKS, CheckpointMeta, checkpoints
from indextts.runs.restore import requested_schedule
from indextts.text.tokenizer import Tokenizer
from indextts.text.verify import base_tokenizer

SPARE_BYTES = 1 << 30  # the log, the metrics, TensorBoard's files, and room for whatever else is written


@dataclass(frozen=True)
class DiskNeed:
    """What the checkpoints of a training take.

    Args:
        checkpoint_bytes: of one.
        is_measured: taken from a checkpoint of the run; else counted from the model's parameters.
        num_at_most: checkpoints at once: those kept, the best, and the one that is written before an old one
            is removed.
        num_present: of the run, on the disk already.
        free_bytes: on the disk of the run directory.
    """

    checkpoint_bytes: int
    is_measured: bool
    num_at_most: int
    num_present: int
    free_bytes: int

    @property
    def needed_bytes(self) -> int:
        """What still has to fit; a new save is written before an old one is removed."""
        num_new = max(min(1, self.num_at_most), self.num_at_most - self.num_present)
        return num_new * self.checkpoint_bytes + (SPARE_BYTES if num_new else 0)

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.free_bytes


def disk_need(command: Train, config: GPTConfig, size: ModelSize, *, steps: int) -> DiskNeed:
    """Return the disk that `steps` more steps of `command` need.

    Args:
        config: with the pieces of the run's tokenizer.
    """
    present = [
        (path, meta)
        for path, meta in checkpoints(command.output_dir)
        if path.name not in LINKS and path.is_file()
    ]
    same = [meta for _, meta in present if _is_same_kind(meta, config, command)]
    part = present[0][1].part if present else 1
    num_present = sum(
        meta.part == part and not path.with_suffix(".pinned").exists() for path, meta in present
    )
    num_saves = -(-steps // command.save_interval) + _num_validations(command, steps)
    counted = size.checkpoint_bytes(command.optimizer_state, command.ema_decay)
    return DiskNeed(
        checkpoint_bytes=same[0].num_bytes if same else counted,
        is_measured=bool(same),
        num_at_most=min(command.keep_checkpoints + 2, num_present + num_saves),
        num_present=min(num_present, command.keep_checkpoints + 1),
        free_bytes=free_bytes(command.output_dir),
    )


def free_bytes(folder: Path) -> int:
    """Return the bytes that are free where `folder` is or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _num_validations(command: Train, steps: int) -> int:
    """Return how many validations there are at most, each of which may be the best and be saved."""
    return -(-steps // command.val_interval) if command.val_interval else command.epochs


def _is_same_kind(meta: CheckpointMeta, config: GPTConfig, command: Train) -> bool:
    """Return whether a checkpoint is as large as those to come: of the same model and the same state."""
    shape = (meta.gpt_config.get("layers"), meta.gpt_config.get("model_dim"), meta.tokenizer_size)
    had_average = bool(meta.settings.get("ema_decay", 0.0))
    state = (meta.settings.get("optimizer_state", "float32"), had_average)
    return shape == (config.layers, config.model_dim, config.number_text_tokens) and state == (
        command.optimizer_state,
        bool(command.ema_decay),
    )


@dataclass(frozen=True)
class Estimate:
    """What a training will take.

    Args:
        command: with the settings that hold: on a resume, the run's own where none were typed.
        num_processes: that train together, on all machines; each does the micro-batches of `command`.
        pairs: to train on.
        samples_per_step, positions_per_step: of a step, in the mean.
        first_step: the step it begins behind, 0 for a new run.
        total_steps: the last step.
        pace: None where nobody measured it.
        memory: of a process on its card, or in the machine's memory where there is none.
        available_memory: what the card has, or the process's part of the machine.
        is_on_gpu: the training runs on a card.
        arithmetic: of the forward pass.
    """

    command: Train
    num_processes: int
    config: GPTConfig
    pairs: PairsSize
    steps_per_epoch: int
    first_step: int
    total_steps: int
    pace: Pace | None
    disk: DiskNeed
    memory: MemoryNeed
    available_memory: int
    is_on_gpu: bool
    arithmetic: str

    @property
    def steps_left(self) -> int:
        return max(0, self.total_steps - self.first_step)

    @property
    def samples_per_step(self) -> float:
        return self.pairs.size.num_samples / max(1, self.steps_per_epoch)

    @property
    def positions_per_step(self) -> float:
        return self.pairs.size.num_positions / max(1, self.steps_per_epoch)

    @property
    def seconds(self) -> float | None:
        """The time of the steps that are left, without validations and saves."""
        if self.pace is None:
            return None
        return self.steps_left * self.positions_per_step / self.pace.positions_per_second

    @property
    def fits_memory(self) -> bool:
        return self.memory.peak + (CONTEXT_BYTES if self.is_on_gpu else 0) <= self.available_memory


def estimate(
    command: Train,
    machine: MachineFacts,
    resumed: MetaPlan | None = None,
    other_runs: Iterable[Path] = (),
    num_processes: int = 1,
) -> Estimate:
    """Return what a start of `command` will take.

    Args:
        machine: what one process has of it.
        num_processes: that train together, on all machines.
        resumed: what the restore decided, None for a new run.
        other_runs: run directories of the workspace, whose pace may be known.

    Raises:
        UserError: a file cannot be read, or the budget of a micro-batch is too small for the longest pair.
    """
    command = resumed.plan.command if resumed else command
    config, size = sizes_of(command)
    pairs = measure_pairs(command.train_manifest, command.tokenizer, command.config)
    num_micro_steps = pairs.size.num_batches(
        num_processes * command.batch_size, num_processes * command.batch_tokens
    )
    whole = -(-num_micro_steps // command.grad_accumulation)
    if resumed is None:
        wanted = requested_schedule(
            command, pairs.size, num_processes=num_processes, step=0, epoch=0, samples_done=0
        )
        first, total = 0, wanted.total_steps
    else:
        first = resumed.facts.step if resumed.plan.continues else 0
        total = resumed.plan.schedule.total_steps
    memory = memory_of(command, machine, config, size, pairs)
    arithmetic = arithmetic_of(command, machine)
    return Estimate(
        command=command,
        num_processes=num_processes,
        config=config,
        pairs=pairs,
        steps_per_epoch=whole,
        first_step=first,
        total_steps=total,
        pace=find_pace(
            command,
            config,
            machine,
            num_processes=num_processes,
            micro_positions=round(pairs.size.num_positions / max(1, whole * command.grad_accumulation)),
            mean_positions=pairs.mean,
            other_runs=other_runs,
        ),
        disk=disk_need(command, config, size, steps=max(0, total - first)),
        memory=memory,
        available_memory=machine.gpu.memory_bytes if machine.gpu else machine.memory_bytes,
        is_on_gpu=machine.gpu is not None,
        arithmetic=arithmetic,
    )


def sizes_of(command: Train) -> tuple[GPTConfig, ModelSize]:
    """Return the config of the run's model, with the tokenizer's pieces, and its size.

    Raises:
        UserError: the config or the tokenizer cannot be read.
    """
    config = load_config(command.config)
    tokenizer = Tokenizer.load(command.tokenizer)
    beside = base_tokenizer(command.base_checkpoint)
    base_size = Tokenizer.load(beside).size if beside.is_file() else config.number_text_tokens
    grown = config_with_text_tokens(config, tokenizer.size)
    return grown, model_size(grown, base_size=base_size)


def memory_of(
    command: Train, machine: MachineFacts, config: GPTConfig, size: ModelSize, pairs: PairsSize
) -> MemoryNeed:
    """Return the memory that a training needs: of its card, or of the machine where there is none."""
    is_padded = command.padding == "reference"
    positions = pairs.most_positions(command.batch_size, command.batch_tokens)
    if is_padded:  # each sample as wide as the longest of its batch
        num_samples = command.batch_tokens / pairs.mean if command.batch_tokens else command.batch_size
        positions = round(num_samples * pairs.size.longest)
    is_half, recomputes = arithmetic_of(command, machine) != "float32", command.grad_checkpointing
    state = size.state_bytes(command.optimizer_state, command.ema_decay)
    need = gpu_memory(
        config,
        size,
        positions=positions,
        is_half=is_half,
        recomputes=recomputes,
        is_padded=is_padded,
        accumulates=command.grad_accumulation > 1,
        state_bytes=state,
    )
    if machine.gpu:
        return need
    return host_memory(config, size, need, is_half=is_half, recomputes=recomputes, state_bytes=state)
