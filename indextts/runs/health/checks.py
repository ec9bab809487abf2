"""All health checks of a run: its disk space, text rows, steps, and the losses (losses.py)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from indextts.runs.health.losses import jump_at_resume, language_forgotten, plateau, validation_rising
from indextts.runs.health.observed import Finding, Level, Line, Observed, found, read_observed

ADDITIONAL = 2  # checkpoints besides those to keep: the one being written, and the best one

MIN_STEPS = 20
NUM_SAMPLED = 200  # learning rates, for the mean over many steps
MIN_CHANGE = 1e-4  # of the sum of the rates; a random walk of a million steps moves ten times as far
MANY_UNKNOWN = 0.005  # of the tokens
TOO_MANY_UNKNOWN = 0.05

MAX_WAIT_SHARE = 0.05  # of the time; the target is 0.01
NUM_RECENT = 5  # log lines
MIN_LINES = 15

EXPLODED = 10.0  # times the earlier median norm
MANY_SKIPPED = 0.01  # of the steps; the float16 gradient scaler skips some to find its scale


def disk_filling(run: Observed) -> Finding | None:
    """Return a finding if the disk has no space for the checkpoints still to come before pruning starts."""
    if not run.checkpoint_bytes or run.end_reason == "finished":
        return None
    keep = int(run.settings.get("keep_checkpoints", 3))
    number = max(1, keep + ADDITIONAL - run.num_checkpoints)
    if run.free_bytes >= number * run.checkpoint_bytes:
        return None
    is_full = run.free_bytes < run.checkpoint_bytes
    level: Level = "problem" if is_full else "warning"
    what = "health.disk_full" if is_full else "health.disk_filling"
    free_gb, each_gb = run.free_bytes / 1e9, run.checkpoint_bytes / 1e9
    return found("disk", level, what, free_gb=free_gb, each_gb=each_gb, number=number, keep=keep)


def saves_failing(run: Observed) -> Finding | None:
    """Return a finding if the newest saves failed."""
    failed = run.of_kind("failed_save")
    if not failed or failed[-1]["time"] < run.saved_time:
        return None
    return found("saves", "problem", number=failed[-1]["failures"], step=failed[-1]["step"])


# ---- text rows: frozen rows stay, new rows change, the tokenizer knows the texts


def base_rows_changed(run: Observed) -> Finding | None:
    """Return a finding if the frozen rows differ from those at the start of this run part."""
    facts = [line for line in run.of_kind("facts") if line.get("base_rows")]
    changed = next((line for line in facts if line["base_rows"] != facts[0]["base_rows"]), None)
    if changed is None:
        return None
    before, after = facts[0]["base_rows"], changed["base_rows"]
    return found(
        "base_rows", "problem", before=before, first=facts[0]["step"], after=after, step=changed["step"]
    )


def new_rows_unchanged(run: Observed) -> Finding | None:
    """Return a finding if the new rows barely change, compared with the sum of the learning rates.

    Adam moves a value by about the learning rate in each step that has a gradient for it.
    """
    process = run.newest_process
    facts = [line for line in process if line["kind"] == "facts" and "new_rows_moved_lately" in line]
    if not facts or process[0]["kind"] != "start":
        return None
    first, last = int(process[0]["step"]), int(facts[-1]["step"])
    allowed = _sum_of_rates(run, process, first, last)
    moved = facts[-1]["new_rows_moved_lately"]
    if last - first < MIN_STEPS or moved >= MIN_CHANGE * allowed:
        return None
    return found("new_rows", "problem", first=first, moved=moved, steps=last - first, allowed=allowed)


def unknown_pieces(run: Observed) -> Finding | None:
    """Return a finding if more than MANY_UNKNOWN of the tokens in the training texts are unknown."""
    facts = [line for line in run.of_kind("facts") if "unknown_share" in line]
    share = facts[-1]["unknown_share"] if facts else 0.0
    if share <= MANY_UNKNOWN:
        return None
    level: Level = "problem" if share > TOO_MANY_UNKNOWN else "warning"
    return found("unknown", level, percent=100 * share)


def _sum_of_rates(run: Observed, process: list[Line], first: int, last: int) -> float:
    """Return the sum of the learning rates of the steps after `first`, up to `last`."""
    if run.schedule is not None:
        sampled = range(first + 1, last + 1, max(1, (last - first) // NUM_SAMPLED))
        rates = [run.schedule.learning_rate(step) for step in sampled]
    else:
        rates = [line["lr"] for line in process if line["kind"] == "train" and line.get("lr") is not None]
    return (last - first) * sum(rates) / len(rates) if rates else 0.0


# ---- steps: gradients, skipped steps, waiting for data


def gradients_exploding(run: Observed) -> Finding | None:
    """Return a finding if the last gradient norms are far above all earlier ones."""
    norms = run.curve("train", "grad_norm")
    if len(norms) < MIN_LINES:
        return None
    before = median(norm for _, norm in norms[:-NUM_RECENT])
    now = median(norm for _, norm in norms[-NUM_RECENT:])
    if now <= EXPLODED * before:
        return None
    return found("gradients", "problem", number=NUM_RECENT, step=norms[-1][0], now=now, before=before)


def steps_skipped(run: Observed) -> Finding | None:
    """Return a finding if this process skipped steps; in float16, only if it skipped more than a few."""
    lines = [line for line in run.lines if line["kind"] == "train" and "num_skipped" in line]
    start = run.newest_process[0] if lines else {}
    if start.get("kind") != "start" or lines[-1]["step"] <= start["step"]:
        return None
    # the count at the resume; a line at that very step belongs to the process before
    known = [line["num_skipped"] for line in lines if line["step"] <= start["step"]]
    skipped, steps = lines[-1]["num_skipped"] - max(known, default=0), lines[-1]["step"] - start["step"]
    usual = MANY_SKIPPED * steps if run.precision == "float16" else 0
    if skipped <= usual:
        return None
    level: Level = "problem" if skipped > MANY_SKIPPED * steps else "warning"
    return found("skipped", level, skipped=skipped, steps=steps, first=start["step"])


def gpu_waiting(run: Observed) -> Finding | None:
    """Return a finding if the GPU waited for data in more than MAX_WAIT_SHARE of the time."""
    waits = [line for line in run.newest_process if line["kind"] == "train" and "data_wait" in line]
    if run.device in ("", "cpu") or len(waits) < NUM_RECENT:
        return None
    share = median(line["data_wait"] for line in waits[-NUM_RECENT:])
    if share <= MAX_WAIT_SHARE:
        return None
    step, workers = waits[-1]["step"], run.settings.get("num_workers", "?")
    return found("data_wait", "warning", percent=100 * share, number=NUM_RECENT, step=step, workers=workers)


CHECKS: tuple[Callable[[Observed], Finding | None], ...] = (
    disk_filling,
    saves_failing,
    base_rows_changed,
    new_rows_unchanged,
    steps_skipped,
    gradients_exploding,
    jump_at_resume,
    plateau,
    validation_rising,
    language_forgotten,
    unknown_pieces,
    gpu_waiting,
)


def check_health(run_dir: Path, lines: Sequence[Line] | None = None) -> list[Finding]:
    """Return the findings of all checks on the run in `run_dir`, problems before warnings.

    Args:
        lines: the lines of its metrics.jsonl, if they are already read.
    """
    run = read_observed(run_dir, lines)
    findings = [finding for check in CHECKS if (finding := check(run)) is not None]
    return sorted(findings, key=lambda finding: finding.level != "problem")
