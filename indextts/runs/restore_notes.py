"""The wording of a restore: differences, notes, log lines, and the plan as text for `--plan` and the page.

`indextts.runs.restore` decides; nothing here does. No torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from indextts.commands.bases import BASE_2_0
from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NEWER_OPTIONS
from indextts.commands.pairs_file import PairsFile
from indextts.commands.train import Train
from indextts.runs.directory import CheckpointMeta, FileIdentity
from indextts.runs.restore_facts import (
    CheckpointFacts,
    Difference,
    RestorePlan,
    RunFacts,
    recorded_files,
    recorded_manifests,
    split_manifests,
)
from indextts.runs.schedule import Schedule
from indextts.system.amounts import counted

FROM_NEXT_STEP = "from the next step on"
STEP_SIZE = "the samples per step, the steps per epoch and therefore the schedule"
ADAPTERS = "the trained weights, with a fresh optimizer"
EMOTION = f"the emotion vectors of the training pairs, {FROM_NEXT_STEP}; validation takes the prompt's"
# The consequence of a changed setting; a setting that is not listed acts FROM_NEXT_STEP.
EFFECTS = {
    "learning_rate": "the peak of the schedule",
    "warmup_steps": "the start of the schedule",
    "rewarm": "a new warm-up to this peak",
    "epochs": "the length of the run and of the schedule",
    "max_steps": "the length of the run and of the schedule",
    "batch_size": STEP_SIZE,
    "batch_tokens": STEP_SIZE,
    "grad_accumulation": STEP_SIZE,
    "step_pairs": "nothing before a new run: this one keeps its batches; set --grad-accumulation instead",
    "language_row_init": "nothing before a new run",
    "new_row_lr_scale": f"the learning rate of the new rows, {FROM_NEXT_STEP}",
    "freeze_body_steps": "the last step that trains the new rows only",
    "emotion_from": EMOTION,
    "emotion_target_share": EMOTION,
    "text_loss_weight": "the gradient; logged losses stay comparable",
    "mel_loss_weight": "the gradient; logged losses stay comparable",
    "amp": f"the rounding, {FROM_NEXT_STEP}",
    "lora_rank": ADAPTERS,
    "lora_alpha": ADAPTERS,
    "lora_targets": ADAPTERS,
    "optimizer_state": f"the rounding of the moments, {FROM_NEXT_STEP}",
    "ema_decay": "the averaged weights; the trained weights do not depend on them",
    "padding": "the effect of the batch on the loss of a sample; losses before and after are not comparable",
    "seed": "new order and new dropout",
    "val_batch_size": "the validation samples, if --max-val-batches limits them",
    "max_val_batches": "the validation samples; losses before and after are not comparable",
}
LAST_BITS = "the state is exact, results may differ in the last bits"
ENVIRONMENT_EFFECTS = {
    "torch": LAST_BITS,
    "device": LAST_BITS,
    "threads": LAST_BITS,
    "arithmetic": f"the rounding, {FROM_NEXT_STEP}",
    "processes": "the samples per step and therefore the schedule, unless the batch size compensates",
    "attention": "the rounding and, if one of the two has none, attention dropout",
}
TEXTS_DIFFER = "texts are normalised differently; losses before and after are not comparable"
MAX_ROWS_SHOWN = 5  # readings that differ
LOW_SHARE = 0.1  # of the peak: a run whose rate stays below learns little
# What a checkpoint means that does not record these: the model could not be another one.
SIZES_OF_OLDER_CHECKPOINTS = {"base": BASE_2_0.name, "style_dim": 192, "num_language_rows": 107}
# Config keys that no weight shape depends on: these may change. Pieces are compared separately.
NO_SIZES = ("dropout", "pe_length", "number_text_tokens")


# ---- the plan for people


def plan_text(plan: RestorePlan, checkpoint: CheckpointFacts, run: RunFacts) -> str:
    """Return the plan as lines: a summary, the steps to do, notes, then a line for each difference."""
    lines = [f"{checkpoint.name}: {describe(plan, checkpoint, run)}"]
    step = checkpoint.step if plan.continues else 0
    if step < plan.schedule.total_steps:
        about = "about " if run.is_estimated else ""
        lines.append(f"to do: steps {step + 1:,} to {about}{plan.schedule.total_steps:,}")
    if plan.rate_change:
        lines.append(plan.rate_change)
    lines += plan.notes
    name_width = max((len(d.name) for d in plan.differences), default=0)
    value_width = max((len(d.values) for d in plan.differences), default=0)
    lines += [f"  {d.name:<{name_width}}  {d.values:<{value_width}}  {d.effect}" for d in plan.differences]
    return "\n".join(lines)


def describe(plan: RestorePlan, checkpoint: CheckpointFacts, run: RunFacts) -> str:
    """Return the plan as one sentence."""
    if plan.continues:
        place = f"step {checkpoint.step:,}, epoch {checkpoint.epoch}"
        position = "" if plan.keeps_position else f"; the epoch restarts, {restart_reason(checkpoint)}"
        return f"{place}: model, optimizer and scheduler continue{position}"
    fresh = f"optimizer, scheduler and scaler fresh; step 0 (was at step {checkpoint.step:,})"
    if plan.row_of is None:
        return f"{plan.adapter_change or 'the optimizer state does not fit: weights unchanged'}; {fresh}"
    sizes = f"{checkpoint.text_rows - 1:,} -> {counted(run.vocabulary.size, 'piece')}"
    return f"tokenizer changed, {sizes}: {moved_rows(checkpoint, run, plan.row_of)}; {fresh}"


def moved_rows(checkpoint: CheckpointFacts, run: RunFacts, row_of: Sequence[int]) -> str:
    """Return which text rows of the checkpoint the run keeps, as a phrase."""
    kept = {row for row in row_of[:-1] if row >= 0}
    num_base = sum(row < run.base_size for row in kept)
    num_learned = max(0, checkpoint.text_rows - 1 - run.base_size)
    num_new = sum(row < 0 for row in row_of)
    return (
        f"{counted(num_base, 'row')} of the base and {len(kept) - num_base:,} of "
        f"{counted(num_learned, 'learned row')} moved by piece, {counted(num_new, 'new row')}"
    )


# ---- notes and log lines


def base_notes(checkpoint: CheckpointFacts, run: RunFacts) -> list[str]:
    """Return a note if the base checkpoint could not be compared with that of the run."""
    if checkpoint.meta is None or run.base is not None:
        return []
    path = run.command.base_checkpoint
    return [f"{path} could not be compared with the base checkpoint of the run: {run.why_no_base}"]


def text_notes(run: RunFacts) -> list[str]:
    """Return a note on the training texts that are read differently than in the checkpoint."""
    if run.changed_texts is None:
        return []
    texts = f"{run.changed_texts} are read differently"
    return [f"The normaliser of --tokenizer differs from the checkpoint's: {texts}"]


def tokenizer_notes(checkpoint: CheckpointFacts, run: RunFacts) -> list[str]:
    """Return a note on the tokenizer of a checkpoint that another program wrote."""
    given = run.command.resume_tokenizer
    if checkpoint.meta is not None:
        return [f"--resume-tokenizer {given} is not used: the checkpoint records its pieces"] if given else []
    old = checkpoint.old_tokenizer
    if old.vocabulary is not None:
        return [f"The pieces of the checkpoint are those of {old.source}"]
    return [f"The pieces of the checkpoint are unknown ({old.source}): only sizes could be compared"]


def continue_notes(checkpoint: CheckpointFacts, run: RunFacts, command: Train) -> list[str]:
    """Return the notes of a run that continues.

    Args:
        command: with the values that the run uses.
    """
    notes = []
    vocabulary = checkpoint.vocabulary
    if vocabulary is not None and vocabulary.fingerprint != run.vocabulary.fingerprint:
        notes.append(
            "The tokenizer has the same pieces as the checkpoint with other scores or settings: the rows "
            "fit, but texts are tokenized differently"
        )
    if run.environment.get("arithmetic") == "float16" and not checkpoint.has_scaler:
        notes.append("AMP enabled but no scaler state: the scaler starts fresh")
    if run.is_estimated:
        notes.append(
            "The step count is an estimate: the pairs or their tokens changed, and the trainer skips those "
            "that are too long"
        )
    if checkpoint.epoch >= command.epochs:
        notes.append(
            f"Nothing left to train: {checkpoint.epoch} of {counted(command.epochs, 'epoch')} done; "
            "raise --epochs to continue"
        )
    elif 0 < command.max_steps <= checkpoint.step:
        notes.append(
            f"Nothing left to train: --max-steps is {command.max_steps}; raise --max-steps to continue, "
            "or set it to 0 to train all epochs"
        )
    return notes


def restart_reason(checkpoint: CheckpointFacts) -> str:
    """Return the reason why the epoch restarts."""
    if checkpoint.meta is None:
        return "because the checkpoint does not record which samples are done"
    return "because the training pairs, their order or the seed changed"


def vocabulary_lines(checkpoint: CheckpointFacts, run: RunFacts, row_of: tuple[int, ...]) -> list[str]:
    """Return the log lines of a changed vocabulary."""
    old_size, size = checkpoint.text_rows - 1, run.vocabulary.size
    first = "WARNING: Vocab size mismatch!"
    if old_size == size:
        first = "WARNING: Vocabulary mismatch: same size, other pieces!"
    return [
        first,
        f"[Warn]    Checkpoint vocab: {old_size}",
        f"[Warn]    Current tokenizer: {size}",
        f"[Info] Text rows: {moved_rows(checkpoint, run, row_of)}",
    ]


def rewarm_notes(command: Train) -> list[str]:
    """Return the note of a --rewarm at the start of a schedule, where it has no effect."""
    if not command.rewarm:
        return []
    return [
        f"--rewarm {command.rewarm:g} is ignored: the schedule starts at step 0 and warms up to "
        "--learning-rate; use --rewarm on a later resume"
    ]


def warmup_notes(schedule: Schedule, step: int) -> list[str]:
    """Return the note of a warm-up that does not end before the run does.

    Args:
        step: the last step done.
    """
    last = schedule.total_steps
    if schedule.warmup_end <= last or step >= last:
        return []
    return [
        f"The warm-up of {counted(schedule.warmup_steps, 'step')} is longer than the run: the learning rate "
        f"is {schedule.learning_rate(last):.1e} at the last step, {last:,}, and never reaches "
        f"{schedule.peak:g}; lower --warmup-steps"
    ]


def rate_change(old: Schedule, new: Schedule, step: int) -> str:
    """Return the learning rates of the old and the new schedule, empty if the schedules are equal."""
    if new == old:
        return ""
    now = f"learning rate: {new.learning_rate(step):.1e} at step {step:,}"
    if 0 < step == new.start_step:
        change = f"{now} -> {_rate_at(new, min(new.warmup_end, new.total_steps))} (--rewarm), then towards 0"
    elif new.bridge_steps:
        to = step + new.bridge_steps
        before = f" instead of {old.learning_rate(to):.1e}" if to <= old.total_steps else ""
        change = f"{now} -> {_rate_at(new, to)}{before}, over {counted(new.bridge_steps, 'step')}"
    else:
        change = f"{now}, unchanged"
    if step < new.total_steps:
        highest_step, highest = new.highest_after(step)
        share = highest / new.peak
        percent = f"{100 * share:.2g}" if share < LOW_SHARE else f"{100 * share:.0f}"
        is_extended = new.total_steps > old.total_steps and step != new.start_step
        if is_extended or share < LOW_SHARE:
            change += f"; at most {_rate_at(new, highest_step)} from here on, {percent} % of {new.peak:g}"
        if share < LOW_SHARE:
            change += " (--rewarm PEAK sets a higher one)"
    if new.total_steps != old.total_steps:
        change += f"; {new.total_steps:,} steps in total instead of {old.total_steps:,}"
    return change


def _rate_at(schedule: Schedule, step: int) -> str:
    return f"{schedule.learning_rate(step):.1e} at step {step:,}"


def schedule_line(checkpoint: CheckpointFacts, schedule: Schedule) -> str:
    """Return the log line of a schedule that is rebuilt, because the checkpoint has no usable one."""
    rate = f"learning rate {schedule.learning_rate(checkpoint.step + 1):.2e}"
    if not checkpoint.has_scheduler:
        return f"[Info] No scheduler state in the checkpoint: rebuilt from step {checkpoint.step}, {rate}"
    return f"[Info] Scheduler state of another program: rebuilt from step {checkpoint.step}, {rate}"


# ---- differences between the checkpoint and the run


def find_differences(
    meta: CheckpointMeta, run: RunFacts, command: Train, has_same_order: bool
) -> tuple[Difference, ...]:
    """Return all differences; those where the new value is used come first.

    Args:
        command: with the values that the run uses.
        has_same_order: the training pairs are the same in the same order.
    """
    found = [
        *_setting_differences(meta.settings, run.command, command),
        *_manifest_differences(meta, run, has_same_order),
        *_config_differences(meta.gpt_config, run.gpt_config),
        *_normalizer_differences(meta.normalizer, run.normalizer),
        *_environment_differences(meta.environment, run.environment),
    ]
    return tuple(sorted(found, key=lambda difference: difference.used != "now"))


def size_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the model sizes that differ, a phrase each."""
    old, new = {**SIZES_OF_OLDER_CHECKPOINTS, **old}, {**SIZES_OF_OLDER_CHECKPOINTS, **new}
    names = [name for name in {**old, **new} if name not in NO_SIZES]
    return [
        f"{name} is {old.get(name, 'absent')} in the checkpoint and {new.get(name, 'absent')} in the config"
        for name in names
        if old.get(name) != new.get(name)
    ]


def _setting_differences(stored: Mapping[str, Any], asked: Train, command: Train) -> list[Difference]:
    """Return the settings that differ between the checkpoint and the command.

    Args:
        stored: `CheckpointMeta.settings`.
        asked: the command as given, with defaults.
        command: with the values that the run uses.
    """
    now, used = asked.model_dump(mode="json"), command.model_dump(mode="json")
    found = []
    for name in Train.model_fields:
        if name in Train.of_process or name not in stored or stored[name] == now[name]:
            continue
        before, after = _shown(stored[name]), _shown(now[name])
        if used[name] == now[name]:
            found.append(Difference(name, before, after, "now", EFFECTS.get(name, FROM_NEXT_STEP)))
        else:
            default = "" if name in Train.automatic else f" (default {after})"
            effect = f"the value of the run, because the command does not set it{default}"
            found.append(Difference(name, before, after, "checkpoint", effect))
    return found


def _manifest_differences(meta: CheckpointMeta, run: RunFacts, has_same_order: bool) -> list[Difference]:
    """Return the manifests whose content, language or share differs, whatever their paths."""
    old, new = recorded_manifests(meta), split_manifests(run.manifests, len(run.command.train_manifest))
    typed = recorded_files(meta)
    typed_now = {"train_manifest": run.command.train_files, "val_manifest": run.command.val_files}
    effects = {
        "train_manifest": "the same pairs in the same order, with other texts or features"
        if has_same_order
        else f"other pairs or another order ({meta.num_samples:,} before, {run.size.num_samples:,} now)",
        "val_manifest": "validation losses before and after are not comparable",
    }
    return [
        Difference(name, _names(old[name], typed[name]), _names(new[name], typed_now[name]), "now", effect)
        for name, effect in effects.items()
        if _contents(old[name], typed[name]) != _contents(new[name], typed_now[name])
    ]


def _contents(
    identities: Sequence[FileIdentity], typed: Sequence[PairsFile]
) -> list[tuple[str, str, float | None]]:
    return [
        (identity.digest, file.language, file.share) for identity, file in zip(identities, typed, strict=True)
    ]


def _config_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Return the config keys that differ and are no model size."""
    return [
        Difference(f"config {name}", _shown(old[name]), _shown(new[name]), "now", FROM_NEXT_STEP)
        for name in NO_SIZES
        if name != "number_text_tokens" and name in old and name in new and old[name] != new[name]
    ]


def _normalizer_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Return the normalizer options that differ; checkpoints of older versions record none."""
    unrecorded = DEFAULT_OPTIONS.model_dump(mode="json", include=set(NEWER_OPTIONS)) if old else {}
    before, now = {**unrecorded, **old}, {**unrecorded, **new}
    return [
        Difference(f"normalizer {name}", *_shown_items(before[name], now[name]), "now", TEXTS_DIFFER)
        for name in now
        if name in before and before[name] != now[name]
    ]


def _shown_items(before: Any, now: Any) -> tuple[str, str]:
    """Return two values of a normalizer option as text; of lists, the number and the rows that differ."""
    if not isinstance(now, list):
        return _shown(before), _shown(now)
    return _shown_rows(before, besides=now), _shown_rows(now, besides=before)


def _shown_rows(rows: Sequence[Any], besides: Sequence[Any]) -> str:
    own = [row if isinstance(row, str) else f"{row[0]} = {row[1]}" for row in rows if row not in besides]
    more = [f"and {len(own) - MAX_ROWS_SHOWN} more"] if len(own) > MAX_ROWS_SHOWN else []
    return f"{len(rows)} ({', '.join([*own[:MAX_ROWS_SHOWN], *more])})" if own else f"{len(rows)}"


def _environment_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Return the facts of the machine that both sides know and that differ."""
    old = {"processes": 1, **old}  # checkpoints of older versions had a single rank
    return [
        Difference(name, _shown(old[name]), _shown(new[name]), "now", effect)
        for name, effect in ENVIRONMENT_EFFECTS.items()
        if name in old and name in new and old[name] != new[name]
    ]


def _names(identities: Sequence[FileIdentity], typed: Sequence[PairsFile]) -> str:
    return ", ".join(
        replace(file, path=Path(identity.path)).name for identity, file in zip(identities, typed, strict=True)
    )


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)
