"""Decide what a run restores from a checkpoint, before it loads any weights.

Facts about the checkpoint and about the run go in, a `RestorePlan` comes out. `indextts.training.resume`
carries out the plan; `--plan` and the page show it first, in the words of `restore_rows`. No torch. A plan is
one of two:

    continue    restore model, optimizer, schedule, scaler, step, epoch and position.
    start over  restore the model, with its text rows moved by piece. Optimizer, schedule, scaler, step,
                epoch, position and best validation are fresh.

In both, settings that were typed win; the others are those of the run, as the checkpoint records them.

There is nothing in between: an optimizer without its schedule, or a schedule with a fresh optimizer, makes
the loss jump. The text tables have one row more than the tokenizer has pieces, so pieces are compared with
pieces (rows - 1), never with rows.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from indextts.commands.terminal import continued
from indextts.commands.train import Train
from indextts.errors import RESUME_REFUSED, UserError
from indextts.runs.directory import CheckpointMeta
from indextts.runs.restore_facts import (
    NO_SIZES,
    REQUIRED_KEYS,
    AverageOutcome,
    CheckpointFacts,
    RestorePlan,
    RunFacts,
    world_size,
)
from indextts.runs.schedule import EpochSize, Schedule
from indextts.system.amounts import counted
from indextts.system.messages import Message
from indextts.text.vocabulary import move_rows

# Batches of a token budget may differ by one sample; a budget for fewer of the longest could leave one empty.
MIN_LONGEST_PER_BATCH = 3
# Changing one of these bends the learning-rate curve. A bridge then leads from the current rate to the new
# curve: Adam's moments were averaged at the old rate, and a jump shows as a jump of the loss.
CURVE_SETTINGS = ("learning_rate", "warmup_steps", "min_lr_ratio", "rewarm", "epochs", "max_steps")
STEP_SETTINGS = ("batch_size", "batch_tokens", "grad_accumulation")
SCHEDULE_SETTINGS = (*CURVE_SETTINGS, *STEP_SETTINGS)
# for a checkpoint that is older than one of these settings
DEFAULTS = {name: field.default for name, field in Train.model_fields.items()}
OWN_ROW = "own"  # the value of --language-row-init that keeps the published row
PER_RANK_SETTINGS = ("batch_size", "batch_tokens")


def plan_restore(checkpoint: CheckpointFacts, run: RunFacts) -> RestorePlan:
    """Return the plan that `checkpoint` allows for `run`.

    Raises:
        UserError: with status 3: the checkpoint lacks a required key, belongs to a model of other sizes, to
            another base checkpoint or to another base tokenizer, or its learned text rows would be lost.
    """
    # Refusals first, the hardest mistake before the others: without its keys a file is no checkpoint, and in
    # another model or another codebook nothing that it has learned has a meaning.
    require_keys(checkpoint.keys)
    typed, meta = run.command, checkpoint.meta
    if meta is not None:  # another program recorded neither config nor base
        _require_same_model(meta, run, typed.config, typed.base_checkpoint, typed.tokenizer)
    _require_same_codebook(checkpoint, run)
    # A default is not a choice: `--resume auto` alone must not turn a run with --learning-rate 5e-5 into one
    # with the default of 2e-5.
    command = typed if meta is None else continued(typed, meta.settings)
    adapters = _adapter_change(checkpoint, command.lora_rank, command.lora_alpha, command.lora_targets)
    row_of = None
    if not _has_same_pieces(checkpoint, run):
        if not typed.accept_lost_rows:
            _require_known_pieces(checkpoint, run, typed.tokenizer)
        row_of = _row_of(checkpoint, run)
    others = _other_weights(checkpoint, command)
    # Adam's moments are those of the old rows and adapters: with other ones nothing of the optimizer is kept,
    # and without it neither the schedule nor the step, or the rate would be that of a trained model. Else the
    # model keeps its rows and its optimizer, so all that counts steps goes on with it.
    is_other = row_of is not None or adapters is not None
    misfit = "" if is_other else others or _optimizer_misfit(checkpoint, run)
    continues = not is_other and not misfit
    # The position counts the samples done in one order; in another order it would skip and repeat samples.
    keeps_position = continues and meta is not None and run.data_order(command.seed) == meta.data_order
    if continues:
        schedule = _continued_schedule(checkpoint, run, command, keeps_position=keeps_position)
        require_new_rows(command.freeze_body_steps, checkpoint.step, has_new_rows=run.has_new_rows)
    else:  # --rewarm raises the rate of a run that continues; here the schedule starts anyway
        command = command.model_copy(update={"rewarm": 0.0})
        require_new_rows(command.freeze_body_steps, has_new_rows=run.has_new_rows)
        processes = world_size(run.environment)
        schedule = requested_schedule(
            command, run.size, num_processes=processes, step=0, epoch=0, samples_done=0
        )
    # only float16 scales its gradients; the state of another precision would skip steps for nothing
    is_scaled = run.environment.get("arithmetic") == "float16"
    return RestorePlan(
        checkpoint=checkpoint,
        run=run,
        continues=continues,
        keeps_position=keeps_position,
        takes_scaler=continues and checkpoint.has_scaler and is_scaled,
        row_of=row_of,
        command=command,
        schedule=schedule,
        finished=_nothing_left(checkpoint, command.epochs, command.max_steps) if continues else None,
        adapters=adapters,
        misfit=misfit,
        keeps_best=_keeps_best(meta, run) if continues else False,
        average=_average_outcome(
            checkpoint, command.ema_decay, command.lora_rank, command.lora_alpha, continues=continues
        ),
        added_languages=_added_languages(checkpoint, run, command.language_row_init),
    )


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


def require_new_rows(
    num_frozen_steps: int, step: int = 0, *, has_new_rows: bool, exit_status: int = RESUME_REFUSED
) -> None:
    """Raise a UserError if the body is frozen after `step` and nothing else would be trained."""
    if num_frozen_steps > step and not has_new_rows:
        raise UserError(
            f"--freeze-body-steps {num_frozen_steps}: the run has no new rows, so these steps would train "
            "nothing; extend the tokenizer (tools/extend_bpe.py), or set it to 0",
            exit_status,
        )


def _require_same_model(
    meta: CheckpointMeta, run: RunFacts, config: Path | None, base_checkpoint: Path, tokenizer: Path
) -> None:
    sizes = _size_differences(meta.gpt_config, run.gpt_config)
    if sizes:
        raise UserError(
            f"Resume failed: --config {config} describes another model: {'; '.join(sizes)}; "
            "use the config.yaml that the run was started with",
            RESUME_REFUSED,
        )
    # A LoRA checkpoint holds adapters only, and every checkpoint has the frozen rows of its base: with
    # another base, both would belong to other weights. Compared by content, because the same file may have
    # moved. Where it is missing, that is only logged: a resume does not read it.
    base = run.base
    if base is not None and (base.num_bytes, base.digest) != (meta.base.num_bytes, meta.base.digest):
        raise UserError(
            f"Resume failed: --base-checkpoint {base_checkpoint} is not the base of this run "
            f"({meta.base.path}, {meta.base.num_bytes:,} bytes; now {base.num_bytes:,} bytes), "
            "whose frozen weights the run needs; use that file, or start a new run in another --output-dir",
            RESUME_REFUSED,
        )
    # The rows of the base are frozen by their index, not by their piece, so these ids must not move.
    for token, piece in enumerate(meta.pieces[: meta.base_size]):
        now = run.vocabulary.pieces[token] if token < run.vocabulary.size else "absent"
        if now != piece:
            raise UserError(
                f"Resume failed: --tokenizer {tokenizer} does not extend the base of this run: "
                f"id {token} is {now!r} and was {piece!r}; build it with tools/extend_bpe.py from the "
                "tokenizer of the base",
                RESUME_REFUSED,
            )


def _size_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the model sizes that differ, a phrase each."""
    # of both, in the order of the config: a key that only one of them has is a difference too
    names = [name for name in {**old, **new} if name not in NO_SIZES]
    return [
        f"{name} is {old.get(name, 'absent')} in the checkpoint and {new.get(name, 'absent')} in the config"
        for name in names
        if old.get(name) != new.get(name)
    ]


def _require_same_codebook(checkpoint: CheckpointFacts, run: RunFacts) -> None:
    # Codes are indices into a codebook. Those of another one are valid numbers with other sounds: the loss
    # would rise, and nothing else would show the mistake. An unknown codebook cannot be compared.
    now = run.codebook
    if checkpoint.codebook is None or now is None or checkpoint.codebook == now.identity:
        return
    raise UserError(
        f"Resume failed: {checkpoint.name} has learned the codes of another codebook "
        f"({checkpoint.codebook[:16]}) than those in {now.store} ({now.identity[:16]}); preprocess the "
        "recordings again with the backend and codec of this run, or start a new run in another --output-dir",
        RESUME_REFUSED,
    )


def _adapter_change(
    checkpoint: CheckpointFacts, new_rank: int, alpha: float, new_targets: str
) -> Message | None:
    """Return what becomes of the adapters in the checkpoint; None if nothing changes.

    Args:
        new_rank, alpha, new_targets: of the run, not the command: without flags, a resume keeps its adapters.
    """
    stored = {} if checkpoint.meta is None else checkpoint.meta.settings
    now = {"lora_rank": new_rank, "lora_alpha": alpha, "lora_targets": new_targets}
    before = {name: stored.get(name, DEFAULTS[name]) for name in now}
    rank, targets = before["lora_rank"], before["lora_targets"]
    if not rank and new_rank:  # a LoRA checkpoint has no place for trained matrices
        raise UserError(
            f"Resume failed: {checkpoint.name} contains all weights, but a LoRA run trains only adapters "
            "beside its base checkpoint; resume without --lora-rank, or start a LoRA run in another "
            "--output-dir",
            RESUME_REFUSED,
        )
    if not rank or now == before:
        return None
    if not new_rank:  # base + a @ b is a matrix like any other: nothing learned is lost
        return Message("restore.adapters_merged")
    if new_targets not in ("all", targets):
        raise UserError(
            f"Resume failed: {checkpoint.name} has adapters for --lora-targets {targets}, and "
            f"--lora-targets {new_targets} would lose them; resume with the same targets or all, or "
            "with --lora-rank 0, which merges them",
            RESUME_REFUSED,
        )
    # the product of adapters of a lower rank cannot equal theirs
    return Message("restore.adapters_reduced" if new_rank < rank else "restore.adapters_kept")


def _other_weights(checkpoint: CheckpointFacts, command: Train) -> str:
    """Return how the choice of trained weights beside the adapters differs; empty if it does not."""
    settings = {} if checkpoint.meta is None else checkpoint.meta.settings
    before = {name: settings.get(name, DEFAULTS[name]) for name in ("train_text_rows", "lora_code_head")}
    # a checkpoint of all weights has every row, and the code head with it
    is_lora = bool(settings.get("lora_rank")) and command.lora_rank > 0
    has_base_rows, had_base_rows = command.train_text_rows != "new", before["train_text_rows"] != "new"
    if is_lora and (had_base_rows > has_base_rows or before["lora_code_head"] > command.lora_code_head):
        flag = f"--train-text-rows {before['train_text_rows']}" if had_base_rows else "--lora-code-head"
        raise UserError(
            f"Resume failed: {checkpoint.name} has weights that were trained with {flag}, which this run "
            "would lose; resume with the same flag, or with --lora-rank 0, which keeps all weights",
            RESUME_REFUSED,
        )
    if checkpoint.meta is not None and command.train_text_rows != before["train_text_rows"]:
        return f"train_text_rows was {before['train_text_rows']} and is {command.train_text_rows}"
    if is_lora and before["lora_code_head"] != command.lora_code_head:
        return "the code head was not trained"
    return ""


# ---- 2. the same pieces, and an optimizer that fits?


def _has_same_pieces(checkpoint: CheckpointFacts, run: RunFacts) -> bool:
    # Not the fingerprints: other scores cut texts differently, but every row still belongs to its piece.
    if checkpoint.vocabulary is None:  # only sizes can be compared; the tables have one row more than pieces
        return checkpoint.text_rows - 1 == run.vocabulary.size
    return checkpoint.vocabulary.pieces == run.vocabulary.pieces


def _require_known_pieces(checkpoint: CheckpointFacts, run: RunFacts, tokenizer: Path) -> None:
    """Raise a UserError if the text rows that the checkpoint learned cannot be moved by piece."""
    num_learned = checkpoint.text_rows - 1 - run.base_size
    if checkpoint.vocabulary is not None or num_learned <= 0:
        return
    raise UserError(
        f"Resume failed: {checkpoint.name} has learned text rows for {counted(num_learned, 'piece')}, and "
        f"--tokenizer {tokenizer} has other pieces ({checkpoint.text_rows - 1:,} -> "
        f"{run.vocabulary.size:,}), but the tokenizer of the checkpoint is unknown; "
        "pass it with --resume-tokenizer PATH to move the rows by "
        "piece, or use --accept-lost-rows to resume without these rows",
        RESUME_REFUSED,
    )


def _row_of(checkpoint: CheckpointFacts, run: RunFacts) -> tuple[int, ...]:
    if checkpoint.vocabulary is not None:
        return move_rows(checkpoint.vocabulary, run.vocabulary)
    # The pieces are unknown: only the rows of the base are known to match.
    kept = min(run.base_size, checkpoint.text_rows - 1)
    # the last row of a table belongs to no piece, and stays the last
    return (*range(kept), *(-1 for _ in range(run.vocabulary.size - kept)), checkpoint.text_rows - 1)


def _optimizer_misfit(checkpoint: CheckpointFacts, run: RunFacts) -> str:
    """Return the first difference between the parameters of the two optimizers; empty if they are equal."""
    old, new = checkpoint.trained_shapes, run.trained_shapes
    if new is None:  # only meta files were read, and a checkpoint with a meta file has matching moments
        return ""
    if old is None:  # torch numbers its moments; without names they could end up with other parameters
        return checkpoint.misfit
    for name in [*new, *(name for name in old if name not in new)]:
        if old.get(name) != new.get(name):
            return f"{name} is {old.get(name, 'absent')} in the checkpoint and {new.get(name, 'absent')} here"
    return ""


def _keeps_best(meta: CheckpointMeta | None, run: RunFacts) -> bool | None:
    """Return whether losses of earlier validations can be compared; None if the pairs are unknown."""
    if meta is None:
        return False
    return None if run.validation_set is None else run.validation_set == meta.validation_set


def _average_outcome(
    checkpoint: CheckpointFacts, decay: float, rank: int, alpha: float, *, continues: bool
) -> AverageOutcome | None:
    """Return what becomes of the weight average; an average of a and b is none of other factors of a @ b."""
    before = {} if checkpoint.meta is None else checkpoint.meta.settings
    if not before.get("ema_decay"):
        return None
    if not decay:
        return "is off"
    # a run without adapters merges those of the checkpoint, and their average
    if rank and (rank, alpha) != (before.get("lora_rank"), before.get("lora_alpha")):
        return "has other adapters"
    return "continues" if continues else "moves"


def _added_languages(checkpoint: CheckpointFacts, run: RunFacts, source: str) -> dict[str, int]:
    """Return the rows of languages that are new to the checkpoint, if they start as that of `source`."""
    if checkpoint.languages is None or source == OWN_ROW:
        return {}
    return {code: row for code, row in run.new_languages.items() if code not in checkpoint.languages}


# ---- 3. the schedule


def _nothing_left(checkpoint: CheckpointFacts, epochs: int, max_steps: int) -> Message | None:
    if checkpoint.epoch >= epochs:
        return Message("planning.epochs_done", {"done": str(checkpoint.epoch), "epochs": str(epochs)})
    if 0 < max_steps <= checkpoint.step:
        values = {"step": f"{checkpoint.step:,}", "max_steps": f"{max_steps:,}"}
        return Message("planning.max_steps_done", values)
    return None


def requested_schedule(
    command: Train, size: EpochSize, *, num_processes: int = 1, step: int, epoch: int, samples_done: int
) -> Schedule:
    """Return the plain schedule of the settings, counted from the current position of the run.

    So a changed batch size affects the remaining steps only. The total is less than `step` if the run is
    already longer than its epochs or --max-steps.

    Args:
        size: of an epoch; with a token budget its remaining steps may be off by one.
        num_processes: the world size; the batch settings apply to each rank.
        step, epoch, samples_done: the position: steps, complete epochs, and samples of the current epoch.

    Raises:
        UserError: the token budget of a micro-batch is too small for the longest sample.
    """
    # of a rank: each packs its own micro-batches, so the budgets of several ranks do not add up
    if 0 < command.batch_tokens < MIN_LONGEST_PER_BATCH * size.longest:
        raise UserError(
            f"--batch-tokens {command.batch_tokens}: the longest pair takes {size.longest} positions and the "
            f"budget must be at least {MIN_LONGEST_PER_BATCH} times that, "
            f"{MIN_LONGEST_PER_BATCH * size.longest}; raise it, remove the longest recordings, or use "
            "--batch-size instead"
        )
    left_of_epoch = steps_of(command, size.scaled(size.num_samples - samples_done), num_processes)
    steps = step + left_of_epoch + (command.epochs - epoch - 1) * steps_of(command, size, num_processes)
    total = min(steps, command.max_steps or steps)
    return Schedule(command.learning_rate, command.warmup_steps, total, floor=command.min_lr_ratio)


def steps_of(command: Train, size: EpochSize, num_processes: int) -> int:
    """Return the steps of an epoch of `size`, or of a part of one."""
    batch = num_processes * command.batch_size, num_processes * command.batch_tokens
    return -(-size.num_batches(*batch) // command.grad_accumulation)


def _continued_schedule(
    checkpoint: CheckpointFacts, run: RunFacts, command: Train, *, keeps_position: bool
) -> Schedule:
    """Return the stored schedule, or one that leads from it to the requested one if something changed."""
    meta, step = checkpoint.meta, checkpoint.step
    # an epoch that restarts has all of its steps before it again
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
    if meta is None:  # another program's curve is unknown, so the bridge starts at the rate of its last step
        known = checkpoint.learning_rate
        rate = requested.learning_rate(step) if known is None else known
        return _led_to(requested, step, rate, command.rewarm)
    stored = Schedule(**meta.schedule)
    # by the batch of all ranks: twice the ranks with half the batch take the same steps
    now = _with_global_batch(command.model_dump(mode="json"), num_processes)
    before = _with_global_batch({**DEFAULTS, **meta.settings}, world_size(meta.environment))
    # Unchanged settings keep the stored schedule, even if skipped steps or samples would give another count
    # now: an interruption must not change a run.
    is_changed = (
        any(before[name] != now[name] for name in SCHEDULE_SETTINGS)
        or run.size.num_samples != meta.num_samples
        or (command.batch_tokens and meta.num_positions != run.size.num_positions)
        or samples_done != meta.samples_done
    )
    if not is_changed:
        return stored
    # Compared with the stored value: the same --rewarm typed again at the next resume must not warm up again.
    if command.rewarm != before["rewarm"]:
        return _led_to(requested, step, stored.learning_rate(step), command.rewarm)
    # an earlier --rewarm set another peak than the learning rate
    peak = stored.peak if before["learning_rate"] == command.learning_rate else requested.peak
    return stored.re_anchored(
        step,
        peak=peak,
        warmup_steps=requested.warmup_steps,
        total_steps=requested.total_steps,
        floor=requested.floor,
    )


def _led_to(requested: Schedule, step: int, rate: float, rewarm: float) -> Schedule:
    """Return the requested schedule from `rate` at `step` on: warmed up to `rewarm`, or over a bridge."""
    return requested.rewarmed(step, rate, rewarm) if rewarm else requested.bridged(step, rate)


def _with_global_batch(settings: Mapping[str, Any], num_processes: int) -> dict[str, Any]:
    """Return `settings` with the batches of all ranks summed; these decide the steps of a run."""
    batches = {name: num_processes * settings[name] for name in PER_RANK_SETTINGS}
    return {**settings, **batches}
