"""Checks of the text rows: frozen rows stay, new rows change, the tokenizer knows the texts."""

from indextts.runs.health.observed import Finding, Level, Line, Observed

MIN_STEPS = 20
NUM_SAMPLED = 200  # learning rates, for the mean over many steps
MIN_CHANGE = 1e-4  # of the sum of the rates; a random walk of a million steps moves ten times as far
MANY_UNKNOWN = 0.005  # of the tokens
TOO_MANY_UNKNOWN = 0.05


def base_rows_changed(run: Observed) -> Finding | None:
    """Return a finding if the frozen rows differ from those at the start of this run part."""
    facts = [line for line in run.of_kind("facts") if line.get("base_rows")]
    changed = next((line for line in facts if line["base_rows"] != facts[0]["base_rows"]), None)
    if changed is None:
        return None
    return Finding(
        "base_rows",
        "problem",
        {
            "before": facts[0]["base_rows"],
            "first": facts[0]["step"],
            "after": changed["base_rows"],
            "step": changed["step"],
        },
    )


def new_rows_unchanged(run: Observed) -> Finding | None:
    """Return a finding if the new rows barely change, compared with the sum of the learning rates.

    Adam moves a value by about the learning rate in each step that has a gradient for it.
    """
    process = run.newest_process
    facts = [line for line in process if line["kind"] == "facts" and "new_rows_moved" in line]
    if not facts or process[0]["kind"] != "start":
        return None
    first, last = int(process[0]["step"]), int(facts[-1]["step"])
    allowed = _sum_of_rates(run, process, first, last)
    moved = facts[-1]["new_rows_moved"]
    if last - first < MIN_STEPS or moved >= MIN_CHANGE * allowed:
        return None
    return Finding(
        "new_rows",
        "problem",
        {"first": first, "moved": moved, "steps": last - first, "allowed": allowed},
    )


def unknown_pieces(run: Observed) -> Finding | None:
    """Return a finding if more than MANY_UNKNOWN of the tokens in the training texts are unknown."""
    facts = [line for line in run.of_kind("facts") if "unknown_share" in line]
    share = facts[-1]["unknown_share"] if facts else 0.0
    if share <= MANY_UNKNOWN:
        return None
    level: Level = "problem" if share > TOO_MANY_UNKNOWN else "warning"
    return Finding("unknown", level, {"percent": 100 * share})


def _sum_of_rates(run: Observed, process: list[Line], first: int, last: int) -> float:
    """Return the sum of the learning rates of the steps after `first`, up to `last`."""
    if run.schedule is not None:
        sampled = range(first + 1, last + 1, max(1, (last - first) // NUM_SAMPLED))
        rates = [run.schedule.learning_rate(step) for step in sampled]
    else:
        rates = [line["lr"] for line in process if line["kind"] == "train" and line.get("lr") is not None]
    return (last - first) * sum(rates) / len(rates) if rates else 0.0
