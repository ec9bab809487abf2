"""The restore plan in words: a row for each part of a run and what a start does with it. No torch.

    kind        name            text
    continues   Model weights   of step 236
    restarts    Step            back to 0, was at step 236

The log, `--plan` and the page show the same rows; `indextts.runs.restore` decides, nothing here does.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NEWER_OPTIONS
from indextts.commands.pairs_file import PairsFile
from indextts.commands.train import Train
from indextts.runs.directory import CheckpointMeta, FileIdentity
from indextts.runs.restore import CURVE_SETTINGS, STEP_SETTINGS
from indextts.runs.restore_facts import NO_SIZES, AverageOutcome, RestorePlan, RunFacts, contents, pairs_files
from indextts.runs.schedule import Schedule
from indextts.system.messages import Message, as_is

Kind = Literal["continues", "restarts", "changed", "refused", "unknown", "finished"]

STEP_SIZE, ROUNDING = "restore.effect.step_size", "restore.effect.rounding"
LAST_BITS, NOT_COMPARABLE = "restore.effect.last_bits", "restore.effect.not_comparable"
NEXT_STEP, NO_EFFECT = "restore.effect.next_step", "restore.effect.none"
# The consequence of a changed value; one that is not listed acts from the next step on.
SETTINGS_BY_EFFECT: Mapping[str, Sequence[str]] = {
    "restore.effect.schedule": CURVE_SETTINGS,
    STEP_SIZE: STEP_SETTINGS,
    NO_EFFECT: ("step_pairs",),
    "restore.effect.new_languages": ("language_row_init",),
    "restore.effect.new_pieces": ("new_row_init",),
    "restore.effect.new_rows": ("new_row_lr_scale", "freeze_body_steps"),
    "restore.effect.emotion": ("emotion_from", "emotion_target_share", "emotion_dropout"),
    "restore.effect.gradient": ("text_loss_weight", "mel_loss_weight"),
    ROUNDING: ("amp", "optimizer_state"),
    "restore.effect.adapters": (
        "train_text_rows",
        "lora_rank",
        "lora_alpha",
        "lora_targets",
        "lora_code_head",
    ),
    "restore.effect.average": ("ema_decay",),
    NOT_COMPARABLE: ("padding", "val_batch_size", "max_val_batches"),
    "restore.effect.order": ("seed",),
}
EFFECTS = {name: effect for effect, names in SETTINGS_BY_EFFECT.items() for name in names}
# These follow from a setting; where it changed, its own row says so.
OF_SETTING = {"arithmetic": ("amp",), "attention": ("amp", "padding")}
OF_MACHINE = {
    "torch": ("restore.name.torch", LAST_BITS),
    "device": ("restore.name.device", LAST_BITS),
    "processor": ("restore.name.processor", LAST_BITS),
    "threads": ("restore.name.threads", LAST_BITS),
    "arithmetic": ("restore.name.arithmetic", ROUNDING),
    "processes": ("restore.name.processes", STEP_SIZE),
    "attention": ("restore.name.attention", LAST_BITS),
}
OF_AVERAGE: Mapping[AverageOutcome, tuple[Kind, str]] = {
    "continues": ("continues", "restore.average_continues"),
    "moves": ("continues", "restore.average_moves"),
    "is off": ("restarts", "restore.average_off"),
    "has other adapters": ("restarts", "restore.average_of_other_adapters"),
}
HELD, HELD_AUTOMATIC = "restore.held_value", "restore.held_automatic"
MAX_ROWS_SHOWN = 5  # readings that differ
LOW_SHARE = 0.1  # of the peak: a run whose rate stays below learns little


@dataclass(frozen=True)
class RestoreRow:
    """A part of a run and what a start does with it."""

    kind: Kind
    name: Message  # the text of a part; of a setting, its field of Train as it is
    text: Message

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


def plan_text(plan: RestorePlan) -> str:
    """Return the plan as lines: the checkpoint, then the rows."""
    facts = plan.checkpoint
    id = "restore.title_continues" if plan.continues else "restore.title_restarts"
    title = Message(id, {"name": facts.name, "step": f"{facts.step:,}", "epoch": facts.epoch})
    return "\n".join([str(title), *(f"  {row}" for row in restore_rows(plan))])


def log_lines(plan: RestorePlan) -> list[str]:
    """Return the plan as log lines; what differs from the checkpoint is a warning."""
    facts = plan.checkpoint
    lines = []
    if plan.row_of is not None:
        old_size, size = facts.text_rows - 1, plan.run.vocabulary.size
        has_same_size = old_size == size
        lines = [
            "WARNING: Vocabulary mismatch: same size, other pieces!"
            if has_same_size
            else "WARNING: Vocab size mismatch!",
            f"[Warn]    Checkpoint vocab: {old_size}",
            f"[Warn]    Current tokenizer: {size}",
        ]
    for row in restore_rows(plan):
        is_expected = row.kind in ("continues", "finished") and row.text.id not in (HELD, HELD_AUTOMATIC)
        lines.append(f"{'[Info]' if is_expected else '[Warn]'} {row}")
    if not plan.continues:
        lines += [
            "[Info] SKIPPING optimizer, scheduler, AND scaler restore",
            "[Info] AUTOMATIC FIX: Skipping incompatible optimizer state",
            "[Info] Using FRESH optimizer with initial LR and warmup",
            f"[Info] Training will RESTART from step 0 (was at step {facts.step})",
        ]
    return lines


def restore_rows(plan: RestorePlan) -> list[RestoreRow]:
    """Return the rows of a resume: the parts of the run, then what differs from the checkpoint."""
    typed, used = plan.run.command, plan.command
    parts = _continued(plan, used.epochs) if plan.continues else _restarted(plan)
    parts, meta = list(parts), plan.checkpoint.meta
    if meta is not None and plan.average is not None:
        kind, id = OF_AVERAGE[plan.average]
        updates = "?" if meta.num_averaged is None else f"{meta.num_averaged:,}"
        parts.append(_row(kind, "restore.average", id, updates=updates))
    if plan.added_languages:
        values = {"languages": ", ".join(plan.added_languages), "source": used.language_row_init}
        parts.append(_row("changed", "restore.language_rows", "restore.language_rows_copied", **values))
    notes = _notes(plan, typed.base_checkpoint, typed.resume_tokenizer, typed.rewarm)
    now, settings = (each.model_dump(mode="json") for each in (typed, used))
    return [*parts, *notes, *_differences(plan, now, settings)]


def new_run_rows(base: Path, total_steps: int | None, warmup_steps: int, rewarm: float) -> list[RestoreRow]:
    """Return the rows of a new run; without `total_steps`, they leave out the steps."""
    rows = [_row("continues", "restore.weights", "restore.of_base", name=base.name)]
    if total_steps is None:
        return rows
    rows.append(_row("continues", "restore.step", "restore.steps_to_do", first="1", last=f"{total_steps:,}"))
    rows += _rewarm_rows(rewarm)
    if warmup_steps > total_steps:
        rows.append(_warmup_row(warmup_steps, total_steps))
    return rows


def refused_row(reason: str) -> RestoreRow:
    """Return the row of a resume that the trainer refuses."""
    return RestoreRow("refused", Message("restore.checkpoint"), as_is(reason))


def unknown_row() -> RestoreRow:
    """Return the row of a checkpoint without a meta file, whose weights decide."""
    return _row("unknown", "restore.checkpoint", "restore.needs_weights")


def _row(kind: Kind, part: str, id: str, **values: object) -> RestoreRow:
    """Return a row from the ids of its two texts."""
    return RestoreRow(kind, Message(part), Message(id, values))


# ---- the parts of a run


def _continued(plan: RestorePlan, epochs: int) -> Iterable[RestoreRow]:
    facts, run = plan.checkpoint, plan.run
    step, size = f"{facts.step:,}", run.size.num_samples
    yield _row("continues", "restore.weights", "restore.of_step", step=step)
    yield _row("continues", "restore.optimizer", "restore.of_step", step=step)
    yield _rate_row(plan)
    if plan.finished:
        yield RestoreRow("finished", Message("restore.step"), plan.finished)
        return
    place = {"epoch": min(facts.epoch + 1, epochs), "epochs": epochs}
    steps = {"first": f"{facts.step + 1:,}", "last": f"{plan.schedule.total_steps:,}"}
    yield _row("continues", "restore.step", "restore.steps_in_epoch", **steps, **place)
    if facts.meta is None:
        yield _row("restarts", "restore.data_order", "restore.position_unknown")
    elif plan.keeps_position:
        yield _row(
            "continues",
            "restore.data_order",
            "restore.position",
            done=f"{facts.meta.samples_done:,}",
            size=f"{size:,}",
        )
    else:
        yield _row("restarts", "restore.data_order", "restore.epoch_restarts")
    if facts.meta is not None and plan.keeps_best is None:
        yield _row("unknown", "restore.best", "restore.best_unknown")
    elif facts.meta is not None and not plan.keeps_best:
        yield _row("restarts", "restore.best", "restore.best_of_other_pairs")


def _restarted(plan: RestorePlan) -> Iterable[RestoreRow]:
    step, schedule = f"{plan.checkpoint.step:,}", plan.schedule
    yield _row("continues", "restore.weights", "restore.of_step", step=step)
    if plan.row_of is not None:
        yield _text_rows(plan, plan.row_of)
    if plan.adapters is not None:
        yield RestoreRow("changed", Message("restore.adapters"), plan.adapters)
    if plan.misfit:
        yield _row("restarts", "restore.optimizer", "restore.misfit", why=plan.misfit)
    else:
        yield _row("restarts", "restore.optimizer", "restore.fresh")
    yield _row(
        "restarts",
        "restore.rate",
        "restore.warms_up",
        steps=f"{schedule.warmup_steps:,}",
        peak=f"{schedule.peak:g}",
    )
    yield _row("restarts", "restore.step", "restore.step_zero", step=step, last=f"{schedule.total_steps:,}")
    yield _row("restarts", "restore.best", "restore.fresh")


def _text_rows(plan: RestorePlan, row_of: Sequence[int]) -> RestoreRow:
    """Return which text rows of the checkpoint the run keeps."""
    base_size = plan.run.base_size
    kept = {row for row in row_of[:-1] if row >= 0}
    num_base = sum(row < base_size for row in kept)
    learned = max(0, plan.checkpoint.text_rows - 1 - base_size)
    values = {
        "old": plan.checkpoint.text_rows - 1,
        "new": plan.run.vocabulary.size,
        "base": num_base,
        "kept": len(kept) - num_base,
        "learned": learned,
        "fresh": sum(row < 0 for row in row_of),
    }
    kind: Kind = "restarts" if values["kept"] < learned else "continues"
    return _row(
        kind,
        "restore.text_rows",
        "restore.rows_moved",
        **{name: f"{value:,}" for name, value in values.items()},
    )


def _rate_row(plan: RestorePlan) -> RestoreRow:
    """Return the rate now, and the rates to come if the schedule is not that of the checkpoint."""
    schedule, facts = plan.schedule, plan.checkpoint
    step, rate = facts.step, f"{schedule.learning_rate(max(1, facts.step)):.1e}"
    if facts.meta is None:
        return _row("changed", "restore.rate", "restore.rate_rebuilt", rate=rate, step=f"{step:,}")
    if schedule == Schedule(**facts.meta.schedule) or step >= schedule.total_steps:
        return _row("continues", "restore.rate", "restore.rate_now", rate=rate)
    highest_step, highest = schedule.highest_after(step)
    share = highest / schedule.peak
    is_low = share < LOW_SHARE
    # where the bridge or the warm-up ends, else the end of the run
    ends = (step + schedule.bridge_steps, schedule.warmup_end)
    to = next((end for end in ends if step < end < schedule.total_steps), schedule.total_steps)
    values = {"rate": rate, "highest": f"{highest:.1e}", "step": f"{highest_step:,}"}
    values |= {"then": f"{schedule.learning_rate(to):.1e}", "to": f"{to:,}"}
    values |= {
        "percent": f"{100 * share:.2g}" if is_low else f"{100 * share:.0f}",
        "peak": f"{schedule.peak:g}",
    }
    return _row("changed", "restore.rate", "restore.rate_low" if is_low else "restore.rate_changed", **values)


def _notes(
    plan: RestorePlan, base: Path, resume_tokenizer: Path | None, rewarm: float
) -> Iterable[RestoreRow]:
    """Yield unusual facts and what could not be compared."""
    facts, run = plan.checkpoint, plan.run
    if facts.meta is not None and run.base is None:
        yield _row("unknown", "restore.base", "restore.base_not_compared", path=base, why=run.why_no_base)
    if facts.meta is not None and run.base is not None and facts.meta.settings.get("lora_rank"):
        yield _row("continues", "restore.base", "restore.base_by_time", path=run.base.path)
    yield from _tokenizer_rows(plan, resume_tokenizer)
    is_half = run.environment.get("arithmetic") == "float16"
    if plan.continues and is_half and not facts.has_scaler:
        yield _row("changed", "restore.scaler", "restore.no_scaler")
    step, schedule = facts.step if plan.continues else 0, plan.schedule
    if not plan.continues:
        yield from _rewarm_rows(rewarm)
    if schedule.warmup_end > schedule.total_steps > step:
        yield _warmup_row(schedule.warmup_steps, schedule.total_steps)


def _tokenizer_rows(plan: RestorePlan, given: Path | None) -> Iterable[RestoreRow]:
    facts, run = plan.checkpoint, plan.run
    if facts.meta is None:
        if facts.old_pieces is not None:
            yield _row("changed", "restore.tokenizer", "restore.old_tokenizer", source=given)
        else:
            yield _row("unknown", "restore.tokenizer", "restore.old_tokenizer_unknown")
    elif given is not None:
        yield _setting("changed", "resume_tokenizer", "restore.old_tokenizer_unused", path=given)
    before = facts.vocabulary
    if plan.continues and before is not None and before.fingerprint != run.vocabulary.fingerprint:
        yield _row("changed", "restore.tokenizer", "restore.other_scores")


def _rewarm_rows(rewarm: float) -> list[RestoreRow]:
    """Return the row of a --rewarm at the start of a schedule, where it has no effect."""
    return [_setting("changed", "rewarm", "restore.rewarm_ignored")] if rewarm else []


def _warmup_row(warmup_steps: int, total_steps: int) -> RestoreRow:
    values = {"warmup": f"{warmup_steps:,}", "steps": f"{total_steps:,}"}
    return _setting("changed", "warmup_steps", "restore.warmup_too_long", **values)


def _setting(kind: Kind, name: str, id: str, **values: object) -> RestoreRow:
    return RestoreRow(kind, as_is(name), Message(id, values))


# ---- differences between the checkpoint and the run


def _differences(plan: RestorePlan, now: Mapping[str, Any], used: Mapping[str, Any]) -> list[RestoreRow]:
    """Return a row for each difference; those where the new value is used come first.

    Args:
        now, used: the settings as typed, and those of the run.
    """
    meta, run = plan.checkpoint.meta, plan.run
    if meta is None:
        return []
    rows = [
        *_setting_rows(meta.settings, now, used),
        *_manifest_rows(meta, run, now, is_same_order=run.data_order(used["seed"]) == meta.data_order),
        *(
            _changed(as_is(f"config {name}"), meta.gpt_config[name], run.gpt_config[name], NEXT_STEP)
            for name in NO_SIZES
            if name != "number_text_tokens" and meta.gpt_config[name] != run.gpt_config[name]
        ),
        *_normalizer_rows(meta.normalizer, run.normalizer),
        *(
            _changed(Message(id), meta.environment[name], run.environment[name], effect)
            for name, (id, effect) in OF_MACHINE.items()
            if name in meta.environment and name in run.environment
            if meta.environment[name] != run.environment[name]
            if all(meta.settings.get(each) == used[each] for each in OF_SETTING.get(name, ()))
        ),
    ]
    return sorted(rows, key=lambda row: row.kind != "changed")


def _setting_rows(
    stored: Mapping[str, Any], now: Mapping[str, Any], used: Mapping[str, Any]
) -> Iterable[RestoreRow]:
    """Yield the settings that differ between the checkpoint and the command as given, `now`."""
    for name in Train.model_fields:
        if name in Train.of_process or name not in stored or stored[name] == now[name]:
            continue
        if used[name] == now[name]:
            is_idle = name in ("lora_alpha", "lora_targets", "lora_code_head") and not used["lora_rank"]
            is_of_all = name == "val_batch_size" and not used["max_val_batches"]
            effect = NO_EFFECT if is_idle else LAST_BITS if is_of_all else EFFECTS.get(name, NEXT_STEP)
            yield _changed(as_is(name), stored[name], now[name], effect)
        else:  # an automatic setting has no default that would hold instead
            id = HELD_AUTOMATIC if name in Train.automatic else HELD
            values = {"before": _shown(stored[name]), "default": _shown(now[name])}
            yield RestoreRow("continues", as_is(name), Message(id, values))


def _manifest_rows(
    meta: CheckpointMeta, run: RunFacts, typed: Mapping[str, Any], *, is_same_order: bool
) -> Iterable[RestoreRow]:
    """Yield the manifests whose content, language or share differs, whatever their paths."""
    old, new = pairs_files(meta.settings, meta.manifests), pairs_files(typed, run.manifests)
    counts = {"before": f"{meta.num_samples:,}", "now": f"{run.size.num_samples:,}"}
    train = Message("restore.effect.same_order" if is_same_order else "restore.effect.other_pairs", counts)
    for name, effect in (("train_manifest", train), ("val_manifest", Message(NOT_COMPARABLE))):
        if contents(old[name]) != contents(new[name]):
            yield _changed(as_is(name), _names(old[name]), _names(new[name]), effect)


def _normalizer_rows(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterable[RestoreRow]:
    """Yield the normalizer options that differ; a record leaves out newer options at their default."""
    if not old:
        return
    defaults = DEFAULT_OPTIONS.model_dump(mode="json", include=set(NEWER_OPTIONS))
    before, now = {**defaults, **old}, {**defaults, **new}
    for name in now:
        if name in before and before[name] != now[name]:
            if isinstance(now[name], list):
                shown = _shown_rows(before[name], now[name]), _shown_rows(now[name], before[name])
            else:
                shown = before[name], now[name]
            yield _changed(as_is(f"normalizer {name}"), *shown, NOT_COMPARABLE)


def _changed(name: Message, before: Any, now: Any, effect: str | Message) -> RestoreRow:
    effect = Message(effect) if isinstance(effect, str) else effect
    values = {"before": _shown(before), "now": _shown(now), "effect": effect}
    return RestoreRow("changed", name, Message("restore.changed_value", values))


def _shown_rows(rows: Sequence[Any], besides: Sequence[Any]) -> str:
    """Return the number of rows of an option, and those that are not in the other list."""
    own = [row if isinstance(row, str) else f"{row[0]} = {row[1]}" for row in rows if row not in besides]
    more = [f"and {len(own) - MAX_ROWS_SHOWN} more"] if len(own) > MAX_ROWS_SHOWN else []
    return f"{len(rows)} ({', '.join([*own[:MAX_ROWS_SHOWN], *more])})" if own else f"{len(rows)}"


def _names(files: Sequence[tuple[PairsFile, FileIdentity]]) -> str:
    return ", ".join(replace(file, path=Path(identity.path)).name for file, identity in files)


def _shown(value: Any) -> str | Message:
    if isinstance(value, bool):
        return Message("forms.on" if value else "forms.off")
    return f"{value:.3g}" if isinstance(value, float) else str(value)
