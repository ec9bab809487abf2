"""Checks of the steps: learning rate, gradients, skipped steps, waiting for data."""

from statistics import median

from indextts.runs.health.observed import Finding, Level, Observed, is_number

MAX_WAIT_SHARE = 0.05  # of the time; the target is 0.01
NUM_RECENT = 5  # log lines
MIN_LINES = 15

RATE_TOLERANCE = 0.01  # of the schedule's rate
EXPLODED = 10.0  # times the earlier median norm
MANY_SKIPPED = 0.01  # of the steps; the float16 gradient scaler skips some to find its scale


def rate_off_schedule(run: Observed) -> Finding | None:
    """Return a finding for the newest line of this process whose rate differs from its schedule."""
    if run.schedule is None:
        return None
    for line in reversed(run.newest_process):
        if line["kind"] != "train" or not is_number(line.get("lr")):
            continue
        expected = run.schedule.learning_rate(line["step"])
        if abs(line["lr"] - expected) > RATE_TOLERANCE * expected:
            return Finding(
                "learning_rate",
                "problem",
                {"step": line["step"], "rate": line["lr"], "expected": expected},
            )
    return None


def gradients_exploding(run: Observed) -> Finding | None:
    """Return a finding if the last gradient norms are far above all earlier ones."""
    norms = run.curve("train", "grad_norm")
    if len(norms) < MIN_LINES:
        return None
    before = median(norm for _, norm in norms[:-NUM_RECENT])
    now = median(norm for _, norm in norms[-NUM_RECENT:])
    if now <= EXPLODED * before:
        return None
    return Finding(
        "gradients",
        "problem",
        {"number": NUM_RECENT, "step": norms[-1][0], "now": now, "before": before},
    )


def steps_skipped(run: Observed) -> Finding | None:
    """Return a finding if this process skipped steps; in float16, only if it skipped more than a few."""
    lines = [line for line in run.lines if line["kind"] == "train" and "num_skipped" in line]
    start = run.newest_start
    if not lines or start is None or lines[-1]["step"] <= start["step"]:
        return None
    # the count at the resume; a line at that very step belongs to the process before
    known = [line["num_skipped"] for line in lines if line["step"] <= start["step"]]
    skipped, steps = lines[-1]["num_skipped"] - max(known, default=0), lines[-1]["step"] - start["step"]
    usual = MANY_SKIPPED * steps if run.precision == "float16" else 0
    if skipped <= usual:
        return None
    level: Level = "problem" if skipped > MANY_SKIPPED * steps else "warning"
    values: dict[str, int | float | str] = {"skipped": skipped, "steps": steps, "first": start["step"]}
    return Finding("skipped", level, values)


def gpu_waiting(run: Observed) -> Finding | None:
    """Return a finding if the GPU waited for data in more than MAX_WAIT_SHARE of the time."""
    waits = [line for line in run.newest_process if line["kind"] == "train" and "data_wait" in line]
    if run.device in ("", "cpu") or len(waits) < NUM_RECENT:
        return None
    share = median(line["data_wait"] for line in waits[-NUM_RECENT:])
    if share <= MAX_WAIT_SHARE:
        return None
    return Finding(
        "data_wait",
        "warning",
        {
            "percent": 100 * share,
            "number": NUM_RECENT,
            "step": waits[-1]["step"],
            "workers": run.settings.get("num_workers", "?"),
        },
    )
