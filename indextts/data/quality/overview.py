"""Overview of a check, for the page: totals, reasons, histograms, problems and notices. No torch here.

    REPORT_DIR/overview.json
      {"num_utterances": 256, "num_good": 197, "num_warned": 59, "num_rejected": 0, "hours": 0.17,
       "num_speakers": 4,
       "reasons": [{"name": "short", "count": 46, "hours": 0.02}, ...],     in the order of REASONS
       "histograms": [{"measure": "duration_s", "counts": [3, ...], "edges": [1.3, ...],
                       "limits": [{"value": 2.0, "side": "below", "is_hard": false}, ...]}, ...],
       "problems": [{"code": "too_many_rejected", "count": 130, "text": "..."}, ...],
       "notices": [{"code": "few_speakers", "values": {"count": 4}, "text": "..."}, ...]}

`edges` has one element more than `counts`. `code` is "" for a finding of another check;
`text` is the line of the report. The file is replaced atomically, before the verdicts.
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from indextts.system.files import write_json

OVERVIEW_NAME = "overview.json"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class ReasonCount(_Record):
    """Clips with a reason."""

    name: str
    count: int
    hours: float


class Limit(_Record):
    """Limit of a reason; clips on its side are rejected if it is hard, else get a warning."""

    value: float
    side: Literal["below", "above"]
    is_hard: bool


class MeasureHistogram(_Record):
    """Histogram of a measure, with the limits of its reasons; one bin of width 0 if all values are equal."""

    measure: str
    counts: list[int]
    edges: list[float]
    limits: list[Limit]


class Problem(_Record):
    """Problem that makes the set unfit for training."""

    code: str
    count: int
    text: str


class Notice(_Record):
    """Notice for the user to judge; `values` are the numbers and names in its text."""

    code: str
    values: dict[str, float | str]
    text: str


class Overview(_Record):
    """Content of overview.json."""

    num_utterances: int
    num_good: int
    num_warned: int
    num_rejected: int
    hours: float
    num_speakers: int
    reasons: list[ReasonCount]
    histograms: list[MeasureHistogram]
    problems: list[Problem]
    notices: list[Notice]


def write_overview(folder: Path, overview: Overview) -> None:
    """Write overview.json into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / OVERVIEW_NAME, overview.model_dump())


def read_overview(folder: Path) -> Overview | None:
    """Return the overview of the last check with this report folder; None without a valid one."""
    try:
        return Overview.model_validate_json((folder / OVERVIEW_NAME).read_bytes())
    except (OSError, ValidationError):
        return None
