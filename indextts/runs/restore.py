"""What a checkpoint allows under a tokenizer and a command: a pure decision, made before anything is loaded.

No torch here: facts about the checkpoint and about the run go in, a plan comes out, `indextts.training.start`
carries it out, and people read it before (`--plan`, the page). The plan is one of two:

    continue    model, optimizer, schedule (and scaler), step, epoch, position: all of them; of the settings
                what was typed, for the rest the run's own
    start over  the model's weights, its text rows moved by piece; all the rest fresh, step 0, epoch 0; the
                settings of the command

Never two of three: an optimizer without its schedule, or a schedule under a fresh optimizer, is what made
losses jump after a resume. The text tables have one row more than the tokenizer has pieces, so pieces are
compared with pieces (rows - 1), never with rows.
"""

from collections.abc import Mapping
from typing import Any

from indextts.commands.terminal import continued
from indextts.commands.train import Train
from indextts.errors import RESUME_REFUSED, UserError
from indextts.runs.directory import CheckpointMeta
from indextts.runs.restore_differences import (
    Difference,
    config_differences,
    environment_differences,
    manifest_differences,
    normalizer_differences,
    setting_differences,
    size_differences,
)
from indextts.runs.restore_facts import (
    REQUIRED_KEYS,
    CheckpointFacts,
    RestorePlan,
    RunFacts,
    has_same_pairs,
    world_size,
)
from indextts.runs.restore_text import (
    base_notes,
    continue_notes,
    rate_change,
    schedule_line,
    vocabulary_lines,
    why_moved,
)
from indextts.runs.schedule import EpochSize, Schedule, steps_of_run
from indextts.text.vocabulary import move_rows

# A budget's batches may differ by one sample; with room for fewer of the longest, one could be empty.
FEWEST_LONGEST = 3
SCHEDULE_SETTINGS = (
    "learning_rate",
    "warmup_steps",
    "epochs",
    "max_steps",
    "batch_size",
    "batch_tokens",
    "grad_accumulation",
)
PER_PROCESS = ("batch_size", "batch_tokens")


def require_keys(keys: frozenset[str]) -> None:
    """Raise a UserError unless `keys` has all that a resume needs."""
    missing = [key for key in REQUIRED_KEYS if key not in keys]
    if missing:
        raise UserError(
            f"Checkpoint missing required keys: {missing}; a checkpoint to resume from is a model_step*.pth "
            "or latest.pth of a run, base weights go to --base-checkpoint",
            RESUME_REFUSED,
        )


def plan_restore(checkpoint: CheckpointFacts, run: RunFacts) -> RestorePlan:
    """Return what `checkpoint` allows for `run`.

    Raises:
        UserError: with status 3: the checkpoint lacks a required key, or belongs to a model of other sizes,
            to another base checkpoint or to another base tokenizer.
    """
    require_keys(checkpoint.keys)
    if checkpoint.meta is not None:
        _require_same_model(checkpoint.meta, run)
    notes = base_notes(checkpoint, run)
    if not _rows_fit(checkpoint, run):
        row_of = _row_of(checkpoint, run)
        return _start_over(checkpoint, run, row_of, notes, vocabulary_lines(checkpoint, run, row_of))
    misfit = _misfit(checkpoint, run)
    if misfit is not None:
        return _start_over(checkpoint, run, None, [*notes, f"The optimizer state does not fit: {misfit}"], [])
    return _continue(checkpoint, run, notes)


def _require_same_model(meta: CheckpointMeta, run: RunFacts) -> None:
    sizes = size_differences(meta.gpt_config, run.gpt_config)
    if sizes:
        raise UserError(
            f"Resume failed: --config {run.command.config} is another model's: {'; '.join(sizes)}; "
            "give the config.yaml that the run was started with",
            RESUME_REFUSED,
        )
    base, path = run.base, run.command.base_checkpoint
    if base is not None and (base.num_bytes, base.digest) != (meta.base.num_bytes, meta.base.digest):
        raise UserError(
            f"Resume failed: --base-checkpoint {path} is not the file that the run was started from "
            f"({meta.base.path}, {meta.base.num_bytes:,} bytes; now {base.num_bytes:,} bytes): its frozen "
            "weights are part of the run; give that file, or start a new run in another --output-dir",
            RESUME_REFUSED,
        )
    for token, piece in enumerate(meta.pieces[: meta.base_size]):
        now = run.vocabulary.pieces[token] if token < run.vocabulary.size else "absent"
        if now != piece:
            raise UserError(
                f"Resume failed: --tokenizer {run.command.tokenizer} does not extend the run's base: "
                f"id {token} is {now!r} and was {piece!r}; make it with tools/extend_bpe.py from the base's "
                "bpe.model",
                RESUME_REFUSED,
            )


def _rows_fit(checkpoint: CheckpointFacts, run: RunFacts) -> bool:
    if checkpoint.vocabulary is None:
        return checkpoint.text_rows - 1 == run.vocabulary.size
    return checkpoint.vocabulary.pieces == run.vocabulary.pieces


def _row_of(checkpoint: CheckpointFacts, run: RunFacts) -> tuple[int, ...]:
    if checkpoint.vocabulary is not None:
        return move_rows(checkpoint.vocabulary, run.vocabulary)
    # the base's rows alone: of the others a file without a record does not say the pieces
    kept = min(run.base_size, checkpoint.text_rows - 1)
    return (*range(kept), *(-1 for _ in range(run.vocabulary.size - kept)), checkpoint.text_rows - 1)


def _misfit(checkpoint: CheckpointFacts, run: RunFacts) -> str | None:
    """Return how the parameters of the two optimizers differ, or None where they are the same."""
    old, new = checkpoint.trained_shapes, run.trained_shapes
    if new is None:
        return None
    if old is None:
        return checkpoint.misfit
    for name in [*new, *(name for name in old if name not in new)]:
        if old.get(name) != new.get(name):
            return f"{name} is {old.get(name, 'absent')} in the checkpoint and {new.get(name, 'absent')} here"
    return None


def _start_over(
    checkpoint: CheckpointFacts,
    run: RunFacts,
    row_of: tuple[int, ...] | None,
    notes: list[str],
    lines: list[str],
) -> RestorePlan:
    differences = _differences(checkpoint, run, run.command)
    lines = [
        *lines,
        *(f"[Warn] {said}" for said in (*notes, *differences)),
        "[Info] SKIPPING optimizer, scheduler, AND scaler restore",
        "[Info] AUTOMATIC FIX: Skipping incompatible optimizer state",
        "[Info] Using FRESH optimizer with initial LR and warmup",
        f"[Info] Training will RESTART from step 0 (was at step {checkpoint.step})",
    ]
    return RestorePlan(
        continues=False,
        keeps_position=False,
        takes_scaler=False,
        row_of=row_of,
        command=run.command,
        schedule=requested_schedule(
            run.command,
            run.size,
            num_processes=world_size(run.environment),
            step=0,
            epoch=0,
            samples_done=0,
        ),
        rate_change="",
        differences=differences,
        notes=tuple(notes),
        lines=tuple(lines),
    )


def _continue(checkpoint: CheckpointFacts, run: RunFacts, notes: list[str]) -> RestorePlan:
    meta = checkpoint.meta
    command = run.command if meta is None else continued(run.command, meta.settings)
    keeps_position = meta is not None and _is_same_data(meta, run, command)
    schedule = _plan_schedule(checkpoint, run, command, keeps_position=keeps_position)
    change = ""
    if meta is not None:
        change = rate_change(Schedule(**meta.schedule), schedule, checkpoint.step)
    takes_scaler = checkpoint.has_scaler and run.environment.get("arithmetic") == "float16"
    notes = [*notes, *continue_notes(checkpoint, run, command)]
    differences = _differences(checkpoint, run, command)
    said = [*notes, *map(str, differences)]
    if not keeps_position:
        said.append(f"The epoch starts at its beginning, {why_moved(checkpoint)}")
    if change:
        said.append(change)
    lines = [f"[Warn] {sentence}" for sentence in said]
    if meta is None:
        lines.append(schedule_line(checkpoint, schedule))
    return RestorePlan(
        continues=True,
        keeps_position=keeps_position,
        takes_scaler=takes_scaler,
        row_of=None,
        command=command,
        schedule=schedule,
        rate_change=change,
        differences=differences,
        notes=tuple(notes),
        lines=tuple(lines),
    )


def _is_same_data(meta: CheckpointMeta, run: RunFacts, command: Train) -> bool:
    """Return whether the samples come in the order that the position of the checkpoint counts along."""
    if run.data_order is not None:
        return run.data_order(command.seed) == meta.data_order
    return command.seed == meta.settings.get("seed") and has_same_pairs(meta, run)


def requested_schedule(
    command: Train, size: EpochSize, *, num_processes: int = 1, step: int, epoch: int, samples_done: int
) -> Schedule:
    """Return the plain schedule that the settings ask for, seen from where the run stands.

    Args:
        num_processes: each has the batches that the command names.

    Raises:
        UserError: the budget of a micro-batch is too small for the longest sample.
    """
    if 0 < command.batch_tokens < FEWEST_LONGEST * size.longest:
        raise UserError(
            f"--batch-tokens {command.batch_tokens}: the longest pair takes {size.longest} positions and the "
            f"budget must be at least {FEWEST_LONGEST} times that, {FEWEST_LONGEST * size.longest}; or leave "
            "out the longest recordings, or give --batch-size instead"
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


def _plan_schedule(
    checkpoint: CheckpointFacts, run: RunFacts, command: Train, *, keeps_position: bool
) -> Schedule:
    meta, step = checkpoint.meta, checkpoint.step
    done = meta.samples_done if meta is not None and keeps_position else 0
    num_processes = world_size(run.environment)
    wanted = requested_schedule(
        command,
        run.size,
        num_processes=num_processes,
        step=step,
        epoch=checkpoint.epoch,
        samples_done=done,
    )
    if meta is None:
        rate = checkpoint.learning_rate
        return wanted if rate is None else wanted.bridged(step, rate)
    stored = Schedule(**meta.schedule)
    held = _of_all_processes(command.model_dump(mode="json"), num_processes)
    before = _of_all_processes(meta.settings, world_size(meta.environment))
    # Where nothing was told otherwise the stored schedule holds, also if skipped steps or samples would make
    # another count now: an interruption must not change a run.
    is_told_otherwise = (
        any(name not in before or before[name] != held[name] for name in SCHEDULE_SETTINGS)
        or run.size.num_samples != meta.num_samples
        or done != meta.samples_done
    )
    if not is_told_otherwise:
        return stored
    return stored.re_anchored(
        step, peak=wanted.peak, warmup_steps=wanted.warmup_steps, total_steps=wanted.total_steps
    )


def _of_all_processes(settings: Mapping[str, Any], num_processes: int) -> dict[str, Any]:
    """Return `settings` with the batches of all processes together: these decide the steps of a run."""
    batches = {name: num_processes * settings[name] for name in PER_PROCESS if name in settings}
    return {**settings, **batches}


def _differences(checkpoint: CheckpointFacts, run: RunFacts, holding: Train) -> tuple[Difference, ...]:
    meta = checkpoint.meta
    if meta is None:
        return ()
    found = [
        *setting_differences(meta.settings, run.command, holding),
        *manifest_differences(meta, run.command, run.manifests, run.size.num_samples),
        *config_differences(meta.gpt_config, run.gpt_config),
        *normalizer_differences(meta.normalizer, run.normalizer),
        *environment_differences(meta.environment, run.environment),
    ]
    return tuple(sorted(found, key=lambda difference: difference.holds != "now"))
