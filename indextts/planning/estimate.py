"""Estimate of a training run before it starts: steps, time, disk and memory. No torch; reads no weights.

The disk estimate counts the checkpoints that exist at the same time, after pruning.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from indextts.commands.train import Train
from indextts.models.gpt.config import config_with_text_tokens, load_config_of
from indextts.planning.hardware import MachineFacts
from indextts.planning.memory import CONTEXT_BYTES, MemoryNeed
from indextts.planning.pace import Pace, find_pace
from indextts.planning.pairs_size import measure_pairs
from indextts.planning.proposal import Proposal, StartFacts
from indextts.runs.directory import LINKS, checkpoints
from indextts.runs.restore import requested_schedule, steps_of
from indextts.runs.restore_facts import RestorePlan
from indextts.system.files import free_bytes
from indextts.text.bases import base_tokenizer, load_tokenizer

SPARE_BYTES = 1 << 30  # for the log, the metrics, the TensorBoard files and other writers


@dataclass(frozen=True)
class DiskNeed:
    """Disk space for the checkpoints of a training run.

    Args:
        num_at_most: largest number of checkpoints at the same time: those kept, the best ones, and the new
            one, which is written before an old one is deleted.
    """

    checkpoint_bytes: int
    num_at_most: int
    num_present: int
    free_bytes: int

    @property
    def needed_bytes(self) -> int:
        """Space still needed, at least for one checkpoint: a save precedes the deletion of an old one."""
        num_new = max(min(1, self.num_at_most), self.num_at_most - self.num_present)
        return num_new * self.checkpoint_bytes + (SPARE_BYTES if num_new else 0)

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.free_bytes


def disk_need(facts: StartFacts, *, steps: int) -> DiskNeed:
    settings = facts.settings
    present = [
        (path, meta)
        for path, meta in checkpoints(settings.output_dir)
        if path.name not in LINKS and path.is_file()
    ]
    part = present[0][1].part if present else 1
    num_present = sum(
        meta.part == part and not path.with_suffix(".pinned").exists() for path, meta in present
    )
    # each validation may be the best so far and cause a save
    num_validations = -(-steps // settings.val_interval) if settings.val_interval else settings.epochs
    num_saves = -(-steps // settings.save_interval) + num_validations
    num_best = 1 + (0 < settings.listen_interval <= steps)
    return DiskNeed(
        checkpoint_bytes=facts.size.checkpoint_bytes(settings.optimizer_state, settings.ema_decay),
        num_at_most=min(settings.keep_checkpoints + num_best + 1, num_present + num_saves),
        num_present=min(num_present, settings.keep_checkpoints + num_best),
        free_bytes=free_bytes(settings.output_dir),
    )


@dataclass(frozen=True)
class Estimate:
    """Steps, time, disk and memory of a training run.

    Args:
        facts: with the effective settings: on a new run, with the automatic ones; on a resume, those of the
            run unless a flag was typed.
        automatic: the settings that a new run chooses; None on a resume.
        first_step: the step to resume from, 0 for a new run.
        pace: None if no measurement fits.
        memory: memory of a rank, on its GPU or, without a GPU, in host memory.
    """

    facts: StartFacts
    automatic: Proposal | None
    steps_per_epoch: int
    first_step: int
    total_steps: int
    pace: Pace | None
    disk: DiskNeed
    memory: MemoryNeed

    @property
    def steps_left(self) -> int:
        return max(0, self.total_steps - self.first_step)

    @property
    def samples_per_step(self) -> float:
        return self.facts.pairs.size.num_samples / max(1, self.steps_per_epoch)

    @property
    def positions_per_step(self) -> float:
        return self.facts.pairs.size.num_positions / max(1, self.steps_per_epoch)

    @property
    def seconds(self) -> float | None:
        """Duration of the remaining steps, without validations and saves; None if the pace is unknown."""
        if self.pace is None:
            return None
        return self.steps_left * self.positions_per_step / self.pace.positions_per_second

    @property
    def available_memory(self) -> int:
        """Bytes of the GPU, or the rank's share of the host memory."""
        machine = self.facts.machine
        return machine.gpu.memory_bytes if machine.gpu else machine.memory_bytes

    @property
    def fits_memory(self) -> bool:
        context = CONTEXT_BYTES if self.facts.machine.gpu else 0
        return self.memory.peak + context <= self.available_memory


def estimate(
    command: Train,
    machine: MachineFacts,
    resumed: RestorePlan | None = None,
    other_runs: Iterable[Path] = (),
    num_processes: int = 1,
) -> Estimate:
    """Estimate the training run that `command` would start.

    Args:
        machine: the share of one rank, see `share_of`.
        resumed: the restore plan, None for a new run.
        other_runs: run directories of the workspace with a measured pace.
        num_processes: world size, on all machines.

    Raises:
        UserError: a file cannot be read, or a micro-batch is too small for the longest pair.
    """
    facts = start_facts(resumed.command if resumed else command, machine, num_processes)
    pairs, automatic, first = facts.pairs, None, 0
    if resumed is None:
        automatic = facts.propose()
        facts = replace(facts, settings=command.model_copy(update=automatic.fields))
        schedule = requested_schedule(
            facts.settings, pairs.size, num_processes=num_processes, step=0, epoch=0, samples_done=0
        )
    else:
        schedule = resumed.schedule
        first = resumed.checkpoint.step if resumed.continues else 0
    settings, total = facts.settings, schedule.total_steps
    steps_per_epoch = steps_of(settings, pairs.size, num_processes)
    micro_batches = max(1, steps_per_epoch * settings.grad_accumulation)
    return Estimate(
        facts=facts,
        automatic=automatic,
        steps_per_epoch=steps_per_epoch,
        first_step=first,
        total_steps=total,
        pace=find_pace(
            facts.conditions,
            settings.output_dir,
            other_runs,
            prefix_length=facts.config.prefix_length,
            micro_positions=round(pairs.size.num_positions / micro_batches),
            mean_positions=pairs.mean,
        ),
        disk=disk_need(facts, steps=max(0, total - first)),
        memory=facts.memory(),
    )


def start_facts(command: Train, machine: MachineFacts, num_processes: int = 1) -> StartFacts:
    """Return what the settings of a start depend on; a UserError for a file that cannot be read."""
    tokenizer = load_tokenizer(command.tokenizer)
    config = load_config_of(command.config, tokenizer)
    base_path = base_tokenizer(command.base_checkpoint)
    num_base = load_tokenizer(base_path).size if base_path.is_file() else config.number_text_tokens
    base_size = tokenizer.appended_ids(num_base).start
    extended = config_with_text_tokens(config, tokenizer.size)
    pairs = measure_pairs(command.train_manifest, command.tokenizer, command.config, command.output_dir)
    return StartFacts(command, machine, extended, base_size, pairs, num_processes)
