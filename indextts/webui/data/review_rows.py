"""Rows of the review, and the filters of its list. No Gradio here.

The clips of a project stay in memory until the manifest or the report of the check changes; decisions are
read as they come (indextts/data/review_table.py).
"""

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from indextts.data.cleaned import CLEANED_NAME, audio_before, shown_scores
from indextts.data.manifest import Utterance
from indextts.data.quality.reasons import REASON_OF, Flag
from indextts.data.review import Decision, check_folder, edited
from indextts.data.review_table import CLIPS_NAME, LISTS, ClipTable, Places, Review
from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.webui.language import t, t_or
from indextts.webui.view_versions import files_version, utterances_of

ROWS_PER_PAGE = 20
MAX_TEXT_CHARS = 2000
MAX_SPEAKERS = 500  # offered as choices, those with the most clips; others can be typed
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_LOADING = threading.Lock()  # two browsers that open the review at once read the files once


@dataclass(frozen=True)
class Row:
    """One clip with its effective text: the edited text if there is one."""

    utterance: Utterance
    original_text: str
    flags: tuple[Flag, ...]
    made: Decision | None  # the decision that counts, if there is one
    is_kept: bool
    score: tuple[str, float] | None = None  # the value of the measure that the list is filtered by
    heard: str = ""  # another reading: what a second recognizer heard, or the text nearby; "" without one
    heard_by: str = ""  # the recognizer of `heard`; "" if it is that of the check
    can_swap: bool = False  # the other reading can replace the text, and differs from it
    cleaned: str = ""  # what a cleaning of the sound did; "" without one
    before: Path | None = None  # the recording before the cleaning whose result is in use

    @property
    def verdict(self) -> str:
        """Id of the verdict, and whether it was made by hand."""
        if self.is_by_hand:
            return "data.verdicts.kept_by_hand" if self.is_kept else "data.verdicts.rejected_by_hand"
        return "data.verdicts.kept" if self.is_kept else "data.verdicts.rejected"

    @property
    def is_by_hand(self) -> bool:
        return self.made is not None and self.made.verdict is not None

    @property
    def is_decided(self) -> bool:
        return self.made is not None and (self.made.verdict or self.made.text) is not None


def read_review(project: Project) -> Review | None:
    """Return the clips with all decisions so far, None before the import; a UserError for a corrupt file."""
    if not project.manifest.is_file():
        return None
    report = check_folder(project.manifest) / CLIPS_NAME
    with _LOADING:
        cleaned = project.dataset / CLEANED_NAME
        review = _read(project.manifest, files_version(project.manifest, report, cleaned))
    review.refresh()
    return review


@lru_cache(maxsize=4)
def _read(manifest: Path, _version: str) -> Review:
    return Review(ClipTable(manifest, utterances_of(manifest)))


def find_place(review: Review | None, id: str) -> int:
    """Return the place of a clip; a UserError if there is no such clip."""
    place = None if review is None else review.table.place_of.get(id)
    if place is None:
        raise UserError(t("data.choose_clip"))
    return place


def row_of(review: Review, place: int, measure: str = "") -> Row:
    table = review.table
    utterance = table.utterances[place]
    made = review.log.decided.get(utterance.id)
    decisions = {utterance.id: made} if made else {}
    values = table.measures.get(measure)
    found = utterance.provenance
    other = found.other if found is not None else ""
    cleaned = table.cleaned.get(utterance.id)
    shown = edited(utterance, decisions)
    return Row(
        utterance=shown,
        original_text=utterance.text,
        flags=table.flags.get(place, ()),
        made=made,
        is_kept=bool(review.is_kept[place]),
        score=None if values is None else (measure, float(values[place])),
        heard=other or table.heard.get(place, ""),
        heard_by=found.by[-1] if found is not None and other and found.by else "",
        can_swap=bool(other) and other.split() != shown.text.split(),
        cleaned=cleaned_text(cleaned),
        before=audio_before(table.manifest, cleaned),
    )


def other_reading(review: Review, place: int) -> str:
    """Return the other reading of a clip; a UserError if there is none."""
    found = review.table.utterances[place].provenance
    if found is None or not found.other:
        raise UserError(t("data.no_other_reading"))
    return checked_text(found.other)


def cleaned_text(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return ""
    text = "data.cleaned_used" if record["is_used"] else "data.cleaned_unused"
    return t(text, scores=shown_scores(record))


def page_of(review: Review, places: Places, number: int) -> tuple[int, int]:
    """Return the page nearest to `number`, or for 0 the first with a clip to decide; and how many exist."""
    num_pages = max(1, -(-len(places) // ROWS_PER_PAGE))
    return min(number if number > 0 else page_to_decide(review, places, 0), num_pages), num_pages


def page_to_decide(review: Review, places: Places, after: int) -> int:
    return 1 + review.first_undecided(places, after * ROWS_PER_PAGE) // ROWS_PER_PAGE


def list_choices(review: Review | None) -> list[tuple[str, str]]:
    """Return label (with the number of clips) and name of each list and each reason."""
    names = [*LISTS, *(review.table.by_reason if review else ())]
    counts = {name: review.count(name) if review else 0 for name in names}
    labels = {name: t_or(f"data.filters.{name}", reason_name(name)) for name in names}
    return [(f"{labels[name]} ({counts[name]:,})", name) for name in names]


def speaker_choices(review: Review | None) -> list[tuple[str, str]]:
    """Return label and value of the speakers with the most clips, after the choice of all."""
    speakers = review.table.by_speaker if review else {}
    shown = [(f"{name} ({len(places):,})", name) for name, places in speakers.items()][:MAX_SPEAKERS]
    return [(t("data.all_speakers"), ""), *shown]


def measure_choices(review: Review | None) -> list[tuple[str, str]]:
    """Return label and value of the measures of the check, after the choice of none."""
    names = review.table.measures if review else ()
    return [(t("data.no_measure"), ""), *sorted((measure_name(name), name) for name in names)]


def measure_name(measure: str) -> str:
    return t_or(f"data.measures.{measure}", measure)


def reason_name(reason: str) -> str:
    return t_or(f"data.reasons.{reason}", reason)


def flag_text(flag: Flag) -> str:
    """Return the name of a flag's reason with the number or the name in its description."""
    known = REASON_OF.get(flag.reason)
    what = known.what if known else flag.reason
    detail = flag.description.removeprefix(what).removeprefix(": ")
    return f"{reason_name(flag.reason)}: {detail}" if detail else reason_name(flag.reason)


def checked_text(typed: str | None) -> str:
    """Return the validated text of a clip; a UserError if it is empty or too long."""
    text = " ".join(_CONTROL.sub(" ", typed or "").split())
    if not text:
        raise UserError(t("data.text_empty"))
    if len(text) > MAX_TEXT_CHARS:
        raise UserError(t("data.text_too_long", count=len(text), most=MAX_TEXT_CHARS))
    return text
