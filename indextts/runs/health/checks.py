"""All checks of a run's health, in the order in which a person should hear of what they find."""

from collections.abc import Callable, Sequence
from pathlib import Path

from indextts.runs.health.disk import disk_filling
from indextts.runs.health.finding import Finding
from indextts.runs.health.losses import jump_at_resume, plateau, validation_rising
from indextts.runs.health.observed import Line, Observed, read_observed
from indextts.runs.health.rows import base_rows_changed, new_rows_standing, unknown_pieces
from indextts.runs.health.steps import card_waiting, gradients_exploding, rate_off_schedule, steps_skipped

CHECKS: tuple[Callable[[Observed], Finding | None], ...] = (
    disk_filling,
    base_rows_changed,
    new_rows_standing,
    rate_off_schedule,
    steps_skipped,
    gradients_exploding,
    jump_at_resume,
    plateau,
    validation_rising,
    unknown_pieces,
    card_waiting,
)


def find(run_dir: Path, lines: Sequence[Line] | None = None) -> list[Finding]:
    """Return what is wrong with the run in `run_dir`, problems before warnings; empty if nothing is.

    Args:
        lines: of its metrics.jsonl, where they are read already.
    """
    return find_in(read_observed(run_dir, lines))


def find_in(run: Observed) -> list[Finding]:
    """Return what is wrong with a run that was read."""
    found = [finding for check in CHECKS if (finding := check(run)) is not None]
    return sorted(found, key=lambda finding: finding.level != "problem")
