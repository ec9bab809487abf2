"""What is said of a restore: the plan for people, the notes and the lines of the log."""

from indextts.commands.train import Train
from indextts.runs.restore_facts import CheckpointFacts, RestorePlan, RunFacts, is_counted_only
from indextts.runs.schedule import Schedule


def describe(plan: RestorePlan, checkpoint: CheckpointFacts, run: RunFacts) -> str:
    """Return the plan in a sentence, for whoever decides whether to start."""
    if plan.continues:
        place = f"step {checkpoint.step:,}, epoch {checkpoint.epoch}"
        position = (
            "" if plan.keeps_position else f"; the epoch starts at its beginning, {why_moved(checkpoint)}"
        )
        return f"{place}: model, optimizer and scheduler continue{position}"
    fresh = f"optimizer, scheduler and scaler fresh; step 0 (was at step {checkpoint.step:,})"
    if plan.row_of is None:
        return f"the optimizer state does not fit: weights as they are; {fresh}"
    sizes = f"{checkpoint.text_rows - 1:,} -> {run.vocabulary.size:,} pieces"
    num_new = sum(row < 0 for row in plan.row_of)
    return f"tokenizer changed, {sizes}: weights by piece, {num_new:,} rows new; {fresh}"


def plan_text(plan: RestorePlan, checkpoint: CheckpointFacts, run: RunFacts) -> str:
    """Return the plan for people: what happens, then what is to do, then what differs, a line each."""
    lines = [f"{checkpoint.name}: {describe(plan, checkpoint, run)}"]
    step = checkpoint.step if plan.continues else 0
    if step < plan.schedule.total_steps:
        about = "about " if is_counted_only(checkpoint, run) else ""
        lines.append(f"to do: steps {step + 1:,} to {about}{plan.schedule.total_steps:,}")
    if plan.rate_change:
        lines.append(plan.rate_change)
    lines += plan.notes
    name_width = max((len(d.name) for d in plan.differences), default=0)
    value_width = max((len(d.values) for d in plan.differences), default=0)
    lines += [f"  {d.name:<{name_width}}  {d.values:<{value_width}}  {d.effect}" for d in plan.differences]
    return "\n".join(lines)


def vocabulary_lines(checkpoint: CheckpointFacts, run: RunFacts, row_of: tuple[int, ...]) -> list[str]:
    carried = sum(row >= 0 for row in row_of[:-1])
    old_size, size = checkpoint.text_rows - 1, run.vocabulary.size
    first = "WARNING: Vocab size mismatch!"
    if old_size == size:
        first = "WARNING: Vocabulary mismatch: the same size, but other pieces!"
    return [
        first,
        f"[Warn]    Checkpoint vocab: {old_size}",
        f"[Warn]    Current tokenizer: {size}",
        f"[Info] {carried} text rows are carried over by piece, {size - carried} are new",
    ]


def rate_change(old: Schedule, new: Schedule, step: int) -> str:
    """Return where the learning rate was going and where it goes, empty if the schedule is the same."""
    if new == old:
        return ""
    if new.bridge_steps:
        at = step + new.bridge_steps
        said = (
            f"learning rate at step {at:,}: {old.learning_rate(at):.1e} -> {new.learning_rate(at):.1e}, "
            f"reached without a jump from {old.learning_rate(step):.1e} at step {step:,}"
        )
    else:
        said = f"learning rate at step {step + 1:,}: {new.learning_rate(step + 1):.1e}, as it was"
    if new.total_steps != old.total_steps:
        said += f"; {new.total_steps:,} steps in all instead of {old.total_steps:,}"
    return said


def schedule_line(checkpoint: CheckpointFacts, schedule: Schedule) -> str:
    """Return what is said of a schedule that is made anew, as the checkpoint's cannot be read."""
    rate = f"learning rate {schedule.learning_rate(checkpoint.step + 1):.2e}"
    if not checkpoint.has_scheduler:
        return f"[Info] No scheduler state in the checkpoint: rebuilt from step {checkpoint.step}, {rate}"
    return f"[Info] The scheduler is another program's: rebuilt from step {checkpoint.step}, {rate}"


def base_notes(checkpoint: CheckpointFacts, run: RunFacts) -> list[str]:
    if checkpoint.meta is None or run.base is not None:
        return []
    path = run.command.base_checkpoint
    return [f"Whether {path} is the run's base could not be checked: {run.why_no_base}"]


def continue_notes(checkpoint: CheckpointFacts, run: RunFacts, command: Train) -> list[str]:
    notes = []
    vocabulary = checkpoint.vocabulary
    if vocabulary is None:
        notes.append(
            "The checkpoint names no tokenizer: only sizes could be compared, and they agree; that its "
            "pieces are those of --tokenizer could not be checked"
        )
    elif vocabulary.fingerprint != run.vocabulary.fingerprint:
        notes.append(
            "The tokenizer has the checkpoint's pieces with other scores or settings: "
            "the rows fit, but texts are cut differently than before"
        )
    if run.environment.get("arithmetic") == "float16" and not checkpoint.has_scaler:
        notes.append("AMP enabled but no scaler state: the scaler starts fresh")
    if is_counted_only(checkpoint, run):
        notes.append(
            "The changed pairs were counted and not read: the start leaves out those that are too long"
        )
    if checkpoint.epoch >= command.epochs:
        notes.append(
            f"Nothing is left to train: {checkpoint.epoch} of {command.epochs} epochs are done; "
            "ask for more with --epochs"
        )
    elif 0 < command.max_steps <= checkpoint.step:
        notes.append(
            f"Nothing is left to train: --max-steps is {command.max_steps}; ask for more with --max-steps, "
            "0 for the end of the epochs"
        )
    return notes


def why_moved(checkpoint: CheckpointFacts) -> str:
    if checkpoint.meta is None:
        return "since the checkpoint does not say which samples are done"
    return "since the training data or the seed changed"
