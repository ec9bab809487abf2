"""Restore plan as rows: what continues, restarts, changes or is refused, in the page's language. No Gradio.

    kind        name            text
    continues   Model weights   of step 236
    restarts    Step            0 (was at step 236)

The rows come from the facts of the plan; `indextts.runs.restore_notes` words the same facts for a terminal.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from indextts.commands.train import Train
from indextts.planning.plan_from_meta import MetaPlan
from indextts.planning.preflight import nothing_left
from indextts.runs.restore_facts import Difference
from indextts.webui.language import field_title, t

Kind = Literal["continues", "restarts", "changed", "refused", "unknown", "finished"]

SYMBOLS: dict[Kind, str] = {
    "continues": "✓",
    "restarts": "↺",
    "changed": "≠",
    "refused": "✗",
    "unknown": "?",
    "finished": "✓",
}
KINDS: dict[Kind, str] = {
    "continues": "restore.kind.continues",
    "restarts": "restore.kind.restarts",
    "changed": "restore.kind.changed",
    "refused": "restore.kind.refused",
    "unknown": "restore.kind.unknown",
    "finished": "restore.kind.finished",
}
SCHEDULE, STEP_SIZE = "restore.effect.schedule", "restore.effect.step_size"
ROUNDING, LAST_BITS = "restore.effect.rounding", "restore.effect.last_bits"
GRADIENT, NOT_COMPARABLE = "restore.effect.gradient", "restore.effect.not_comparable"
ORDER, NO_EFFECT, AVERAGE = "restore.effect.order", "restore.effect.none", "restore.effect.average"
NEXT_STEP, ADAPTERS = "restore.effect.next_step", "restore.effect.adapters"
NEW_ROWS, EMOTION = "restore.effect.new_rows", "restore.effect.emotion"
EFFECTS = {
    "learning_rate": SCHEDULE,
    "warmup_steps": SCHEDULE,
    "rewarm": SCHEDULE,
    "epochs": SCHEDULE,
    "max_steps": SCHEDULE,
    "batch_size": STEP_SIZE,
    "batch_tokens": STEP_SIZE,
    "grad_accumulation": STEP_SIZE,
    "processes": STEP_SIZE,
    "step_pairs": NO_EFFECT,
    "language_row_init": NO_EFFECT,
    "new_row_lr_scale": NEW_ROWS,
    "freeze_body_steps": NEW_ROWS,
    "emotion_from": EMOTION,
    "emotion_target_share": EMOTION,
    "text_loss_weight": GRADIENT,
    "mel_loss_weight": GRADIENT,
    "amp": ROUNDING,
    "optimizer_state": ROUNDING,
    "lora_rank": ADAPTERS,
    "lora_alpha": ADAPTERS,
    "lora_targets": ADAPTERS,
    "arithmetic": ROUNDING,
    "ema_decay": AVERAGE,
    "padding": NOT_COMPARABLE,
    "val_batch_size": NOT_COMPARABLE,
    "max_val_batches": NOT_COMPARABLE,
    "val_manifest": NOT_COMPARABLE,
    "train_manifest": ORDER,
    "seed": ORDER,
    "torch": LAST_BITS,
    "device": LAST_BITS,
    "threads": LAST_BITS,
    "attention": LAST_BITS,
}
ADAPTER_CHANGES = {
    "merged": "restore.adapters_merged",
    "reduced": "restore.adapters_reduced",
    "kept": "restore.adapters_kept",
}
OF_MACHINE = {
    "torch": "restore.name.torch",
    "device": "restore.name.device",
    "threads": "restore.name.threads",
    "arithmetic": "restore.name.arithmetic",
    "processes": "restore.name.processes",
    "attention": "restore.name.attention",
}


@dataclass(frozen=True)
class RestoreRow:
    """A part of a run and what a start does with it."""

    kind: Kind
    name: str
    text: str


def new_run_rows(command: Train, total_steps: int | None) -> list[RestoreRow]:
    """Return the rows of a new run; without `total_steps`, they leave out the steps."""
    rows = [
        RestoreRow("continues", t("restore.weights"), t("restore.of_base", name=command.base_checkpoint.name))
    ]
    if total_steps is None:
        return rows
    steps = t("restore.steps_to_do", first="1", last=f"{total_steps:,}")
    rows.append(RestoreRow("continues", t("restore.step"), steps))
    if command.warmup_steps > total_steps:
        rows.append(_warmup_row(command.warmup_steps, total_steps))
    return rows


def refused_row(reason: str) -> RestoreRow:
    """Return the row of a resume that the trainer refuses."""
    return RestoreRow("refused", t("restore.checkpoint"), reason)


def unknown_row(name: str) -> RestoreRow:
    """Return the row of a checkpoint whose meta file does not suffice."""
    return RestoreRow("unknown", name, t("restore.needs_weights"))


def restore_rows(found: MetaPlan) -> list[RestoreRow]:
    """Return the rows of a resume: the parts of the run, then what differs from the checkpoint."""
    rows = _continued(found) if found.plan.continues else _restarted(found)
    return [*rows, *_checks(found), *_differences(found)]


def rows_html(rows: Sequence[RestoreRow]) -> str:
    """Return the rows as a list, after the number of rows of each kind; "" without rows."""
    if not rows:
        return ""
    counts = [(kind, sum(row.kind == kind for row in rows)) for kind in KINDS]
    shown = "".join(
        f'<span class="{kind}">{escape(t(KINDS[kind]))} {count}</span>' for kind, count in counts if count
    )
    items = "".join(
        f'<li class="{row.kind}"><span class="symbol" aria-hidden="true">{SYMBOLS[row.kind]}</span>'
        f"<b>{escape(row.name)}</b><span>{escape(row.text)}</span></li>"
        for row in rows
    )
    title = escape(t("training.restore_plan"))
    head = f'<p class="restore-head">{title}<span class="counts">{shown}</span></p>'
    return f'{head}<ul class="restore">{items}</ul>'


def _continued(found: MetaPlan) -> Iterable[RestoreRow]:
    plan, facts = found.plan, found.facts
    step = f"{facts.step:,}"
    yield RestoreRow("continues", t("restore.weights"), t("restore.of_step", step=step))
    yield RestoreRow("continues", t("restore.optimizer"), t("restore.of_step", step=step))
    yield _rate_row(found)
    epochs = plan.command.epochs
    place = {"epoch": min(facts.epoch + 1, epochs), "epochs": epochs}
    if nothing_left(found):
        yield RestoreRow("finished", t("restore.step"), t("restore.done", step=step, **place))
        return
    steps = {"first": f"{facts.step + 1:,}", "last": f"{plan.schedule.total_steps:,}"}
    yield RestoreRow("continues", t("restore.step"), t("restore.steps_in_epoch", **steps, **place))
    if plan.keeps_position:
        done, size = facts.meta.samples_done if facts.meta else 0, found.run.size.num_samples
        position = t("restore.position", done=f"{done:,}", size=f"{size:,}")
        yield RestoreRow("continues", t("restore.data_order"), position)
    else:
        yield RestoreRow("restarts", t("restore.data_order"), t("restore.epoch_restarts"))


def _restarted(found: MetaPlan) -> Iterable[RestoreRow]:
    plan, facts = found.plan, found.facts
    step = f"{facts.step:,}"
    yield RestoreRow("continues", t("restore.weights"), t("restore.of_step", step=step))
    if plan.row_of is not None:
        yield _text_rows(found, plan.row_of)
    if plan.adapter_change and facts.meta:
        before, now = facts.meta.settings["lora_rank"], plan.command.lora_rank
        happens = "merged" if not now else "reduced" if now < before else "kept"
        yield RestoreRow("changed", t("restore.adapters"), t(ADAPTER_CHANGES[happens]))
    yield RestoreRow("restarts", t("restore.optimizer"), t("restore.fresh"))
    schedule = plan.schedule
    rate = t("restore.warms_up", steps=f"{schedule.warmup_steps:,}", peak=f"{schedule.peak:g}")
    yield RestoreRow("restarts", t("restore.rate"), rate)
    yield RestoreRow("restarts", t("restore.step"), t("restore.step_zero", step=step))
    yield RestoreRow("restarts", t("restore.best"), t("restore.fresh"))


def _text_rows(found: MetaPlan, row_of: Sequence[int]) -> RestoreRow:
    base_size = found.run.base_size
    kept = {row for row in row_of[:-1] if row >= 0}
    num_base = sum(row < base_size for row in kept)
    learned = max(0, found.facts.text_rows - 1 - base_size)
    values = {"base": num_base, "kept": len(kept) - num_base, "learned": learned}
    values["fresh"] = sum(row < 0 for row in row_of)
    text = t("restore.rows_moved", **{name: f"{value:,}" for name, value in values.items()})
    return RestoreRow("restarts" if values["kept"] < learned else "continues", t("restore.text_rows"), text)


def _rate_row(found: MetaPlan) -> RestoreRow:
    schedule, step = found.plan.schedule, found.facts.step
    rate = f"{schedule.learning_rate(max(1, step)):.1e}"
    if not found.plan.rate_change or step >= schedule.total_steps:
        return RestoreRow("continues", t("restore.rate"), t("restore.rate_now", rate=rate))
    highest_step, highest = schedule.highest_after(step)
    values = {"rate": rate, "highest": f"{highest:.1e}", "step": f"{highest_step:,}"}
    return RestoreRow("changed", t("restore.rate"), t("restore.rate_changed", **values))


def _checks(found: MetaPlan) -> Iterable[RestoreRow]:
    """Yield what the facts say besides the plan; the notes of a terminal in the page's language."""
    plan, facts, run = found.plan, found.facts, found.run
    if run.base is None:
        yield RestoreRow("unknown", t("restore.base"), t("restore.base_not_compared"))
    if run.command.resume_tokenizer is not None:
        title = field_title(Train, "resume_tokenizer")
        yield RestoreRow("changed", title, t("restore.old_tokenizer_unused"))
    before = facts.vocabulary
    if plan.continues and before is not None and before.fingerprint != run.vocabulary.fingerprint:
        yield RestoreRow("changed", t("restore.tokenizer"), t("restore.other_scores"))
    if (texts := run.changed_texts) is not None:
        id = "restore.changed_texts" if texts.num_compared == texts.num_texts else "restore.changed_sample"
        counts = {"changed": texts.num_changed, "compared": texts.num_compared, "all": texts.num_texts}
        shown = t(id, **{name: f"{count:,}" for name, count in counts.items()})
        yield RestoreRow("changed", t("restore.texts"), shown)
    if run.is_estimated:
        yield RestoreRow("changed", t("restore.data_order"), t("restore.is_estimated"))
    if not plan.continues and run.command.rewarm:
        yield RestoreRow("changed", field_title(Train, "rewarm"), t("restore.rewarm_ignored"))
    step, schedule = facts.step if plan.continues else 0, plan.schedule
    if schedule.warmup_end > schedule.total_steps > step:
        yield _warmup_row(schedule.warmup_steps, schedule.total_steps)


def _warmup_row(warmup_steps: int, total_steps: int) -> RestoreRow:
    text = t("restore.warmup_too_long", warmup=f"{warmup_steps:,}", steps=f"{total_steps:,}")
    return RestoreRow("changed", field_title(Train, "warmup_steps"), text)


def _differences(found: MetaPlan) -> Iterable[RestoreRow]:
    """Yield the values that change, and those of the run that stay in one row."""
    for difference in found.plan.differences:
        if difference.used == "now":
            effect = t(EFFECTS.get(_key(difference), NEXT_STEP))
            values = {"before": _value(difference.before), "now": _value(difference.now), "effect": effect}
            yield RestoreRow("changed", _name(difference), t("restore.changed_value", **values))
    stay = [
        f"{_name(difference)} {_value(difference.before)}"
        for difference in found.plan.differences
        if difference.used == "checkpoint"
    ]
    if stay:
        yield RestoreRow("continues", t("restore.settings"), ", ".join(stay))


def _key(difference: Difference) -> str:
    """Return the name in EFFECTS."""
    return "padding" if difference.name.startswith("normalizer ") else difference.name


def _name(difference: Difference) -> str:
    if difference.name in OF_MACHINE:
        return t(OF_MACHINE[difference.name])
    if difference.name in Train.model_fields:
        return field_title(Train, difference.name)
    return difference.name  # a key of the config or of the normaliser, as in their files


def _value(shown: str) -> str:
    return {"on": t("forms.on"), "off": t("forms.off")}.get(shown, shown)
