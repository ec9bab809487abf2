"""All health checks of a run, most important first, and the check of its disk space."""

from collections.abc import Callable, Sequence
from pathlib import Path

from indextts.runs.health.losses import jump_at_resume, language_forgotten, plateau, validation_rising
from indextts.runs.health.observed import Finding, Line, Observed, read_observed
from indextts.runs.health.rows import base_rows_changed, new_rows_unchanged, unknown_pieces
from indextts.runs.health.steps import gpu_waiting, gradients_exploding, rate_off_schedule, steps_skipped

ADDITIONAL = 2  # besides the checkpoints to keep: the one being written, and the best one


def disk_filling(run: Observed) -> Finding | None:
    """Return a finding if the disk has no space for the checkpoints still to come before pruning starts."""
    if not run.checkpoint_bytes or run.end_reason == "finished":
        return None
    keep = int(run.settings.get("keep_checkpoints", 3))
    number = max(1, keep + ADDITIONAL - run.num_checkpoints)
    if run.free_bytes >= number * run.checkpoint_bytes:
        return None
    is_full = run.free_bytes < run.checkpoint_bytes
    return Finding(
        "disk",
        "problem" if is_full else "warning",
        {
            "free_gb": run.free_bytes / 1e9,
            "each_gb": run.checkpoint_bytes / 1e9,
            "number": number,
            "keep": keep,
        },
        what="health.disk_full" if is_full else "health.disk_filling",
    )


CHECKS: tuple[Callable[[Observed], Finding | None], ...] = (
    disk_filling,
    base_rows_changed,
    new_rows_unchanged,
    rate_off_schedule,
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
    return check_observed(read_observed(run_dir, lines))


def check_observed(run: Observed) -> list[Finding]:
    """Return the findings of all checks on a run that is already read, problems before warnings."""
    found = [finding for check in CHECKS if (finding := check(run)) is not None]
    return sorted(found, key=lambda finding: finding.level != "problem")
