"""Health of the text rows: the frozen ones stay, the new ones move, the tokenizer knows the texts."""

from indextts.runs.health.observed import Finding, Level, Line, Observed

FEWEST_STEPS = 20
NUM_SAMPLED = 200  # rates, for the mean over many steps
STANDS = 1e-4  # of what the learning rate allows; a random walk of a million steps still makes ten times that
MANY_UNKNOWN = 0.005  # of the tokens
TOO_MANY_UNKNOWN = 0.05

CHANGED = "health.changed"
CHANGED_EVIDENCE = "health.changed_evidence"
CHANGED_ADVICE = "health.changed_advice"
STANDING = "health.standing"
STANDING_EVIDENCE = "health.standing_evidence"
STANDING_ADVICE = "health.standing_advice"
UNKNOWN = "health.unknown"
UNKNOWN_EVIDENCE = "health.unknown_evidence"
UNKNOWN_ADVICE = "health.unknown_advice"


def base_rows_changed(run: Observed) -> Finding | None:
    """Return whether the frozen rows are other ones than at the beginning of this part of the run."""
    facts = [line for line in run.of_kind("facts") if line.get("base_rows")]
    changed = next((line for line in facts if line["base_rows"] != facts[0]["base_rows"]), None)
    if changed is None:
        return None
    return Finding(
        "base_rows",
        "problem",
        CHANGED,
        CHANGED_EVIDENCE,
        CHANGED_ADVICE,
        {
            "before": facts[0]["base_rows"],
            "first": facts[0]["step"],
            "after": changed["base_rows"],
            "step": changed["step"],
        },
    )


def new_rows_unchanged(run: Observed) -> Finding | None:
    """Return whether the new rows moved by next to nothing, measured by what the learning rate allows.

    Adam moves a value by about the learning rate in each step that has a gradient for it.
    """
    process = run.newest_process
    facts = [line for line in process if line["kind"] == "facts" and "new_rows_moved" in line]
    if not facts or process[0]["kind"] != "start":
        return None
    first, last = int(process[0]["step"]), int(facts[-1]["step"])
    allowed = _sum_of_rates(run, process, first, last)
    moved = facts[-1]["new_rows_moved"]
    if last - first < FEWEST_STEPS or moved >= STANDS * allowed:
        return None
    return Finding(
        "new_rows",
        "problem",
        STANDING,
        STANDING_EVIDENCE,
        STANDING_ADVICE,
        {"first": first, "moved": moved, "steps": last - first, "allowed": allowed},
    )


def unknown_pieces(run: Observed) -> Finding | None:
    """Return whether the tokenizer leaves more than MANY_UNKNOWN of the training texts' tokens unknown."""
    facts = [line for line in run.of_kind("facts") if "unknown_share" in line]
    share = facts[-1]["unknown_share"] if facts else 0.0
    if share <= MANY_UNKNOWN:
        return None
    level: Level = "problem" if share > TOO_MANY_UNKNOWN else "warning"
    return Finding("unknown", level, UNKNOWN, UNKNOWN_EVIDENCE, UNKNOWN_ADVICE, {"percent": 100 * share})


def _sum_of_rates(run: Observed, process: list[Line], first: int, last: int) -> float:
    """Return the sum of the learning rates of the steps behind `first` up to `last`."""
    if run.schedule is not None:
        sampled = range(first + 1, last + 1, max(1, (last - first) // NUM_SAMPLED))
        rates = [run.schedule.learning_rate(step) for step in sampled]
    else:
        rates = [line["lr"] for line in process if line["kind"] == "train" and line.get("lr") is not None]
    return (last - first) * sum(rates) / len(rates) if rates else 0.0
