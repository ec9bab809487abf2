"""Decide what a run restores from a checkpoint, before it loads any weights.

Facts about the checkpoint and about the run go in, a `RestorePlan` comes out. `indextts.training.start`
carries out the plan; `--plan` and the page show it first. No torch. A plan is one of two:

    continue    restore model, optimizer, schedule, scaler, step, epoch and position.
    start over  restore the model, with its text rows moved by piece. Optimizer, schedule, scaler, step,
                epoch, position and best validation are fresh.

In both, settings that were typed win; the others are those of the run, as the checkpoint records them.

There is nothing in between: an optimizer without its schedule, or a schedule with a fresh optimizer, makes
the loss jump. The text tables have one row more than the tokenizer has pieces, so pieces are compared with
pieces (rows - 1), never with rows.
"""

from collections.abc import Mapping
from typing import Any

from indextts.commands.base import flag_of
from indextts.commands.terminal import continued
from indextts.commands.train import Train
from indextts.errors import RESUME_REFUSED, UserError
from indextts.runs.directory import CheckpointMeta
from indextts.runs.restore_facts import (
    REQUIRED_KEYS,
    CheckpointFacts,
    RestorePlan,
    RunFacts,
    world_size,
)
from indextts.runs.restore_notes import (
    base_notes,
    continue_notes,
    find_differences,
    rate_change,
    restart_reason,
    rewarm_notes,
    schedule_line,
    size_differences,
    text_notes,
    tokenizer_notes,
    vocabulary_lines,
    warmup_notes,
)
from indextts.runs.schedule import EpochSize, Schedule, steps_of_run
from indextts.system.amounts import counted
from indextts.text.vocabulary import move_rows

# Batches of a token budget may differ by one sample; a budget for fewer of the longest could leave one empty.
MIN_LONGEST_PER_BATCH = 3
SCHEDULE_SETTINGS = (
    "learning_rate",
    "warmup_steps",
    "rewarm",
    "epochs",
    "max_steps",
    "batch_size",
    "batch_tokens",
    "grad_accumulation",
)
PER_RANK_SETTINGS = ("batch_size", "batch_tokens")


def plan_restore(checkpoint: CheckpointFacts, run: RunFacts) -> RestorePlan:
    """Return the plan that `checkpoint` allows for `run`.

    Raises:
        UserError: with status 3: the checkpoint lacks a required key, belongs to a model of other sizes, to
            another base checkpoint or to another base tokenizer, or its learned text rows would be lost.
    """
    require_keys(checkpoint.keys)
    if checkpoint.meta is not None:
        _require_same_model(checkpoint.meta, run)
    _require_same_codebook(checkpoint, run)
    adapter_change = _adapter_change(checkpoint, run)
    notes = [*base_notes(checkpoint, run), *tokenizer_notes(checkpoint, run), *text_notes(run)]
    if not _has_same_pieces(checkpoint, run):
        _require_known_pieces(checkpoint, run)
        row_of = _row_of(checkpoint, run)
        lines = vocabulary_lines(checkpoint, run, row_of)
        return _start_over(checkpoint, run, row_of, notes, lines, adapter_change)
    if adapter_change:
        return _start_over(checkpoint, run, None, notes, [], adapter_change)
    misfit = _optimizer_misfit(checkpoint, run)
    if misfit is not None:
        return _start_over(checkpoint, run, None, [*notes, f"The optimizer state does not fit: {misfit}"], [])
    return _continue(checkpoint, run, notes)


# ---- 1. a checkpoint of this model, this base checkpoint and this base tokenizer?


def require_keys(keys: frozenset[str]) -> None:
    """Raise a UserError unless `keys` has all keys that a resume needs."""
    missing = [key for key in REQUIRED_KEYS if key not in keys]
    if missing:
        raise UserError(
            f"Checkpoint missing required keys: {missing}; resume from a model_step*.pth or latest.pth of a "
            "run, and pass base weights to --base-checkpoint",
            RESUME_REFUSED,
        )


def _require_same_model(meta: CheckpointMeta, run: RunFacts) -> None:
    sizes = size_differences(meta.gpt_config, run.gpt_config)
    if sizes:
        raise UserError(
            f"Resume failed: --config {run.command.config} describes another model: {'; '.join(sizes)}; "
            "use the config.yaml that the run was started with",
            RESUME_REFUSED,
        )
    base, path = run.base, run.command.base_checkpoint
    if base is not None and (base.num_bytes, base.digest) != (meta.base.num_bytes, meta.base.digest):
        raise UserError(
            f"Resume failed: --base-checkpoint {path} is not the base of this run ({meta.base.path}, "
            f"{meta.base.num_bytes:,} bytes; now {base.num_bytes:,} bytes), whose frozen weights the run "
            "needs; use that file, or start a new run in another --output-dir",
            RESUME_REFUSED,
        )
    for token, piece in enumerate(meta.pieces[: meta.base_size]):
        now = run.vocabulary.pieces[token] if token < run.vocabulary.size else "absent"
        if now != piece:
            raise UserError(
                f"Resume failed: --tokenizer {run.command.tokenizer} does not extend the base of this run: "
                f"id {token} is {now!r} and was {piece!r}; build it with tools/extend_bpe.py from the "
                "tokenizer of the base",
                RESUME_REFUSED,
            )


def _require_same_codebook(checkpoint: CheckpointFacts, run: RunFacts) -> None:
    now = run.codebook
    if checkpoint.codebook is None or now is None or checkpoint.codebook == now.identity:
        return
    raise UserError(
        f"Resume failed: {checkpoint.name} has learned the codes of another codebook "
        f"({checkpoint.codebook[:16]}) than those in {now.store} ({now.identity[:16]}); preprocess the "
        "recordings again with the backend and codec of this run, or start a new run in another --output-dir",
        RESUME_REFUSED,
    )


def _adapter_change(checkpoint: CheckpointFacts, run: RunFacts) -> str:
    """Return what becomes of the adapters in the checkpoint, as a sentence; empty if nothing changes.

    Raises:
        UserError: with status 3 if the run cannot hold what the checkpoint has learned.
    """
    command = _settings_of_run(checkpoint, run)
    stored = {} if checkpoint.meta is None else checkpoint.meta.settings
    rank, alpha, targets = (
        stored.get(name, Train.model_fields[name].default)
        for name in ("lora_rank", "lora_alpha", "lora_targets")
    )
    now = command.lora_rank, command.lora_alpha, command.lora_targets
    if not rank and command.lora_rank:
        raise UserError(
            f"Resume failed: {checkpoint.name} holds all weights, and a LoRA run only adapters beside those "
            "of its base checkpoint; resume without --lora-rank, or start a LoRA run in another --output-dir",
            RESUME_REFUSED,
        )
    if not rank or now == (rank, alpha, targets):
        return ""
    if not command.lora_rank:
        return (
            f"--lora-rank 0: the adapters of rank {rank} are merged into the weights, and from here on all "
            "weights are trained"
        )
    if command.lora_targets not in ("all", targets):
        raise UserError(
            f"Resume failed: {checkpoint.name} has adapters for --lora-targets {targets}, and "
            f"--lora-targets {command.lora_targets} would lose them; resume with the same targets or all, or "
            "with --lora-rank 0, which merges them",
            RESUME_REFUSED,
        )
    changes = [
        f"{flag_of(name)} {before:g} -> {after:g}"
        for name, before, after in (("lora_rank", rank, now[0]), ("lora_alpha", alpha, now[1]))
        if before != after
    ]
    if targets != now[2]:
        changes.append(f"--lora-targets {targets} -> {now[2]}")
    lost = now[0] < rank
    kept = (
        f"the nearest adapters of rank {now[0]} replace them"
        if lost
        else "they compute the same at the start"
    )
    return f"The adapters change ({', '.join(changes)}): {kept}"


# ---- 2. the same pieces, and an optimizer that fits?


def _has_same_pieces(checkpoint: CheckpointFacts, run: RunFacts) -> bool:
    if checkpoint.vocabulary is None:
        return checkpoint.text_rows - 1 == run.vocabulary.size
    return checkpoint.vocabulary.pieces == run.vocabulary.pieces


def _require_known_pieces(checkpoint: CheckpointFacts, run: RunFacts) -> None:
    """Raise a UserError if the text rows that the checkpoint learned cannot be moved by piece."""
    num_learned = checkpoint.text_rows - 1 - run.base_size
    if checkpoint.vocabulary is not None or num_learned <= 0 or run.command.accept_lost_rows:
        return
    raise UserError(
        f"Resume failed: {checkpoint.name} has learned text rows for {counted(num_learned, 'piece')}, and "
        f"--tokenizer {run.command.tokenizer} has other pieces ({checkpoint.text_rows - 1:,} -> "
        f"{run.vocabulary.size:,}), but the tokenizer of the checkpoint is unknown "
        f"({checkpoint.old_tokenizer.source}); pass it with --resume-tokenizer PATH to move the rows by "
        "piece, or use --accept-lost-rows to resume without these rows",
        RESUME_REFUSED,
    )


def _row_of(checkpoint: CheckpointFacts, run: RunFacts) -> tuple[int, ...]:
    if checkpoint.vocabulary is not None:
        return move_rows(checkpoint.vocabulary, run.vocabulary)
    # The pieces are unknown: only the rows of the base are known to match.
    kept = min(run.base_size, checkpoint.text_rows - 1)
    return (*range(kept), *(-1 for _ in range(run.vocabulary.size - kept)), checkpoint.text_rows - 1)


def _optimizer_misfit(checkpoint: CheckpointFacts, run: RunFacts) -> str | None:
    """Return the first difference between the parameters of the two optimizers, None if they are equal."""
    old, new = checkpoint.trained_shapes, run.trained_shapes
    if new is None:
        return None
    if old is None:
        return checkpoint.misfit
    for name in [*new, *(name for name in old if name not in new)]:
        if old.get(name) != new.get(name):
            return f"{name} is {old.get(name, 'absent')} in the checkpoint and {new.get(name, 'absent')} here"
    return None


# ---- 3. the two plans


def _start_over(
    checkpoint: CheckpointFacts,
    run: RunFacts,
    row_of: tuple[int, ...] | None,
    notes: list[str],
    lines: list[str],
    adapter_change: str = "",
) -> RestorePlan:
    meta = checkpoint.meta
    # --rewarm raises the rate of a run that continues; here the schedule starts anyway
    command = _settings_of_run(checkpoint, run).model_copy(update={"rewarm": 0.0})
    schedule = requested_schedule(
        command,
        run.size,
        num_processes=world_size(run.environment),
        step=0,
        epoch=0,
        samples_done=0,
    )
    notes = [*notes, *rewarm_notes(run.command), *warmup_notes(schedule, step=0)]
    if adapter_change and row_of is not None:  # else it is the summary of the plan
        notes.append(adapter_change)
    has_same_order = _has_same_order(checkpoint, run, command)
    differences = () if meta is None else find_differences(meta, run, command, has_same_order)
    return RestorePlan(
        continues=False,
        keeps_position=False,
        takes_scaler=False,
        adapter_change=adapter_change,
        row_of=row_of,
        command=command,
        schedule=schedule,
        rate_change="",
        differences=differences,
        notes=tuple(notes),
        lines=(
            *lines,
            *(f"[Warn] {warning}" for warning in (*notes, *differences)),
            *([f"[Warn] {adapter_change}"] if adapter_change and row_of is None else ()),
            "[Info] SKIPPING optimizer, scheduler, AND scaler restore",
            "[Info] AUTOMATIC FIX: Skipping incompatible optimizer state",
            "[Info] Using FRESH optimizer with initial LR and warmup",
            f"[Info] Training will RESTART from step 0 (was at step {checkpoint.step})",
        ),
    )


def _continue(checkpoint: CheckpointFacts, run: RunFacts, notes: list[str]) -> RestorePlan:
    meta = checkpoint.meta
    command = _settings_of_run(checkpoint, run)
    keeps_position = _has_same_order(checkpoint, run, command)
    schedule = _continued_schedule(checkpoint, run, command, keeps_position=keeps_position)
    change = "" if meta is None else rate_change(Schedule(**meta.schedule), schedule, checkpoint.step)
    differences = () if meta is None else find_differences(meta, run, command, keeps_position)
    notes = [*notes, *continue_notes(checkpoint, run, command), *warmup_notes(schedule, checkpoint.step)]
    warnings = [*notes, *map(str, differences)]
    if not keeps_position:
        warnings.append(f"The epoch restarts, {restart_reason(checkpoint)}")
    if change:
        warnings.append(change)
    lines = [f"[Warn] {warning}" for warning in warnings]
    if meta is None:
        lines.append(schedule_line(checkpoint, schedule))
    return RestorePlan(
        continues=True,
        keeps_position=keeps_position,
        takes_scaler=checkpoint.has_scaler and run.environment.get("arithmetic") == "float16",
        adapter_change="",
        row_of=None,
        command=command,
        schedule=schedule,
        rate_change=change,
        differences=differences,
        notes=tuple(notes),
        lines=tuple(lines),
    )


def _settings_of_run(checkpoint: CheckpointFacts, run: RunFacts) -> Train:
    """Return the typed settings, and those of the run where nothing was typed."""
    return run.command if checkpoint.meta is None else continued(run.command, checkpoint.meta.settings)


def _has_same_order(checkpoint: CheckpointFacts, run: RunFacts, command: Train) -> bool:
    """Return whether the samples come in the order in which the checkpoint counts its position."""
    return checkpoint.meta is not None and run.data_order(command.seed) == checkpoint.meta.data_order


# ---- 4. the schedule


def requested_schedule(
    command: Train, size: EpochSize, *, num_processes: int = 1, step: int, epoch: int, samples_done: int
) -> Schedule:
    """Return the plain schedule of the settings, counted from the current position of the run.

    Args:
        num_processes: the world size; the batch settings apply to each rank.

    Raises:
        UserError: the token budget of a micro-batch is too small for the longest sample.
    """
    if 0 < command.batch_tokens < MIN_LONGEST_PER_BATCH * size.longest:
        raise UserError(
            f"--batch-tokens {command.batch_tokens}: the longest pair takes {size.longest} positions and the "
            f"budget must be at least {MIN_LONGEST_PER_BATCH} times that, "
            f"{MIN_LONGEST_PER_BATCH * size.longest}; raise it, remove the longest recordings, or use "
            "--batch-size instead"
        )
    total_steps = steps_of_run(
        size=size,
        batch_size=num_processes * command.batch_size,
        batch_tokens=num_processes * command.batch_tokens,
        grad_accumulation=command.grad_accumulation,
        epochs=command.epochs,
        max_steps=command.max_steps,
        step=step,
        epoch=epoch,
        samples_done=samples_done,
    )
    return Schedule(command.learning_rate, command.warmup_steps, total_steps)


def _continued_schedule(
    checkpoint: CheckpointFacts, run: RunFacts, command: Train, *, keeps_position: bool
) -> Schedule:
    """Return the stored schedule, or one that leads from it to the requested one if something changed."""
    meta, step = checkpoint.meta, checkpoint.step
    samples_done = meta.samples_done if meta is not None and keeps_position else 0
    num_processes = world_size(run.environment)
    requested = requested_schedule(
        command,
        run.size,
        num_processes=num_processes,
        step=step,
        epoch=checkpoint.epoch,
        samples_done=samples_done,
    )
    if meta is None:
        known = checkpoint.learning_rate
        rate = requested.learning_rate(step) if known is None else known
        return _led_to(requested, step, rate, command.rewarm)
    stored = Schedule(**meta.schedule)
    now = _with_global_batch(command.model_dump(mode="json"), num_processes)
    before = {"rewarm": 0.0, **_with_global_batch(meta.settings, world_size(meta.environment))}
    # Unchanged settings keep the stored schedule, even if skipped steps or samples would give another count
    # now: an interruption must not change a run.
    is_changed = (
        any(name not in before or before[name] != now[name] for name in SCHEDULE_SETTINGS)
        or run.size.num_samples != meta.num_samples
        # meta files of older versions have 0 positions
        or (command.batch_tokens and meta.num_positions not in (0, run.size.num_positions))
        or samples_done != meta.samples_done
    )
    if not is_changed:
        return stored
    if command.rewarm != before["rewarm"]:
        return _led_to(requested, step, stored.learning_rate(step), command.rewarm)
    # an earlier --rewarm set another peak than the learning rate
    peak = stored.peak if before["learning_rate"] == command.learning_rate else requested.peak
    return stored.re_anchored(
        step, peak=peak, warmup_steps=requested.warmup_steps, total_steps=requested.total_steps
    )


def _led_to(requested: Schedule, step: int, rate: float, rewarm: float) -> Schedule:
    """Return the requested schedule from `rate` at `step` on: warmed up to `rewarm`, or over a bridge."""
    return requested.rewarmed(step, rate, rewarm) if rewarm else requested.bridged(step, rate)


def _with_global_batch(settings: Mapping[str, Any], num_processes: int) -> dict[str, Any]:
    """Return `settings` with the batches of all ranks summed; these decide the steps of a run."""
    batches = {name: num_processes * settings[name] for name in PER_RANK_SETTINGS if name in settings}
    return {**settings, **batches}
