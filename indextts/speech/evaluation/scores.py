"""Scores of checkpoints, as a table for the report, the model card and the page. No torch here.

summary.jsonl    a `Row` of all clips in each line, the recordings first
groups.jsonl     the same of each group
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from indextts.errors import UserError
from indextts.system.json_lines import read_json_lines

SUMMARY_NAME, GROUPS_NAME, DIFFERENCES_NAME = "summary.jsonl", "groups.jsonl", "differences.jsonl"
RECORDINGS = "recordings"  # the name of the first row
SHARES = {  # fields of a row that are fractions of its clips, and their titles
    "no_stop": "no stop",
    "loops": "loops",
    "silent": "silent",
    "first_lost": "first word lost",
    "last_lost": "last word lost",
    "leaks": "prompt's words",
    "pace_outside": "pace outside",
}


class Row(BaseModel, frozen=True):
    """The scores of a checkpoint, or of the recordings, over the clips of a group; None if not measured.

    Args:
        group: "" for all clips.
        cer: character error rate by recognizer, 0 to 1: a clip counts at most all of its characters.
        cer_interval: the 95 % interval of each.
        cer_unbounded: the same rates if a looping transcript counts all of its characters.
        asr_loops, asr_empty: numbers of transcripts with a loop and without a letter, by recognizer.
        likeness: mean cosine similarity to the prompt's voice.
        syllables_per_s: median, silence included.
        length_ratio: median of the durations relative to the recordings.
        no_stop, loops, silent, first_lost, last_lost, leaks: fractions of the clips; leaks have words of the
            prompt's text before their own.
        pace_outside: fraction of the segments with a pace outside `pace_range` of the recordings.
    """

    name: str
    step: int | None
    num_clips: int
    cer: dict[str, float]
    cer_interval: dict[str, tuple[float, float]]
    likeness: float | None
    syllables_per_s: float
    length_ratio: float
    no_stop: float | None
    loops: float | None
    silent: float
    cer_unbounded: dict[str, float] = {}  # summaries before it have none, as of the next two
    asr_loops: dict[str, int] = {}
    asr_empty: dict[str, int] = {}
    group: str = ""
    first_lost: float | None = None
    last_lost: float | None = None
    leaks: float | None = None
    pace_outside: float | None = None


def read_rows(folder: Path) -> list[Row]:
    """Return the rows of a scoring, at least one, those of all clips first.

    Raises:
        UserError: the folder has no valid summary.jsonl.
    """
    path, groups = folder / SUMMARY_NAME, folder / GROUPS_NAME
    try:
        paths = [path, groups] if groups.is_file() else [path]
        return [Row.model_validate(line) for one in paths for _, line in read_json_lines(one)]
    except ValidationError:
        raise UserError(f"{path}: contains no scores; pass an output folder of tools/evaluate.py") from None


def markdown_table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a Markdown table; the first row is of the recordings."""
    recognizers = list(rows[0].cer)
    titles = [
        "",
        "group",
        "step",
        "clips",
        *(f"CER, {name} (95 %)" for name in recognizers),
        *(f"times the recordings', {name}" for name in recognizers),
        "likeness",
        "syllables/s",
        "length",
        *SHARES.values(),
    ]
    head, *body = (f"| {' | '.join(cells)} |" for cells in (titles, *score_cells(rows)))
    return [head, "|---" * len(titles) + "|", *body]


def score_cells(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Yield the texts of each row: name, group, step, clips, error rates, these relative to the recordings'.

    The recognizers' error rate on real speech is the practical minimum, so the relative rate says more.
    """
    recorded_in = {row.group: row.cer for row in rows if row.name == RECORDINGS}
    for row in rows:
        recordings = recorded_in.get(row.group, rows[0].cer)
        yield [
            row.name,
            row.group or "all",
            _shown(row.step, ",d"),
            f"{row.num_clips:,}",
            *(_rate(row, name) for name in recordings),
            *(
                _shown(row.cer[name] / recorded if name in row.cer and recorded else None, ".2f")
                for name, recorded in recordings.items()
            ),
            _shown(row.likeness, ".3f"),
            f"{row.syllables_per_s:.1f}",
            f"{row.length_ratio:.2f}",
            *(_shown(getattr(row, name), ".0%") for name in SHARES),
        ]


def _rate(row: Row, recognizer: str) -> str:
    if recognizer not in row.cer:
        return "-"
    low, high = row.cer_interval[recognizer]
    parts = [f"{100 * row.cer[recognizer]:.1f} % ({100 * low:.1f} to {100 * high:.1f})"]
    if (unbounded := row.cer_unbounded.get(recognizer, 0.0)) > row.cer[recognizer]:
        parts.append(f"unbounded {100 * unbounded:.1f} %")
    for kind, of_names in (("looping", row.asr_loops), ("empty", row.asr_empty)):
        if count := of_names.get(recognizer):
            parts.append(f"{count} {kind}")
    return "; ".join(parts)


def _shown(value: Any, format: str) -> str:
    return "-" if value is None else f"{value:{format}}"
