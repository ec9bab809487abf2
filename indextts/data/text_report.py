"""Report of the check on how texts are read: forms that need a reading, and texts with two right readings.

    REPORT_DIR/texts.json
      {"num_texts": 256, "hours": 0.17, "normalizer": "v7-0123456789abcdef",
       "num_leftovers": 567,
       "leftovers": [{"kind": "latin", "form": "BBC", "count": 12, "hours": 0.02, "examples": [...]}, ...],
       "ambiguities": [{"option": "years", "value": "cardinal", "count": 7, "hours": 0.01,
                        "num_heard": [2, 4],
                        "clips": [{"id", "text", "chosen", "other", "words", "nearest"}, ...]}, ...]}

Both lists are sorted by the hours of speech that they touch. Rejected clips count too: a text that is read
wrongly may be the reason. With a recognizer, `nearest` is the reading of a clip that is nearer to what was
heard, "chosen" or "other", and `num_heard` counts both.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.data.manifest import Utterance, read_numbered_utterances
from indextts.data.review import DecisionLog, decide, edited, read_decisions
from indextts.system.amounts import counted
from indextts.system.yaml_files import read_if_valid
from indextts.text.ambiguity import Ambiguity, find_ambiguities, nearest_reading, other_value
from indextts.text.leftovers import Leftover, LeftoverKind, find_leftovers

TEXTS_NAME = "texts.json"
NUM_EXAMPLES = 3
MAX_LEFTOVERS = 500  # in the file
MAX_CLIPS = 2_000  # of an option, in the file
SHOWN_FORMS = 10  # in the printed report


class LeftoverForm(BaseModel, frozen=True):
    """A form that needs a reading, and the texts that it is in."""

    kind: LeftoverKind
    form: str
    count: int
    hours: float
    examples: list[str]


class AmbiguousClip(BaseModel, frozen=True):
    """A clip whose text has two readings, by the value in use and by the other one; `words` differ."""

    id: str
    text: str
    chosen: str
    other: str
    words: tuple[str, str]
    nearest: Literal["chosen", "other"] | None = None  # to what was heard, if one is


class AmbiguousOption(BaseModel, frozen=True):
    """An option of the normaliser that decides between two readings; `value` is in use."""

    option: str
    value: str
    count: int
    hours: float
    num_heard: tuple[int, int] = (0, 0)  # clips in which the reading in use was heard, and the other one
    clips: list[AmbiguousClip]


class TextReport(BaseModel, frozen=True):
    """Content of texts.json; `num_leftovers` forms, of which the file has the first."""

    num_texts: int
    hours: float
    normalizer: str
    num_leftovers: int
    leftovers: list[LeftoverForm]
    ambiguities: list[AmbiguousOption]


def report_texts(
    utterances: Sequence[Utterance], options: NormalizerOptions, heard: Sequence[str | None] = ()
) -> TextReport:
    """Return the report on the texts of these utterances, and on their transcripts `heard`, if any."""
    forms: dict[Leftover, list[Utterance]] = defaultdict(list)
    by_option: dict[str, list[Utterance]] = defaultdict(list)
    clips: dict[str, list[AmbiguousClip]] = defaultdict(list)
    for utterance, transcript in zip_longest(utterances, heard):
        for leftover in find_leftovers(utterance.text, options):
            forms[leftover].append(utterance)
        for found in find_ambiguities(utterance.text, options):
            by_option[found.option].append(utterance)
            clips[found.option].append(
                AmbiguousClip(
                    id=utterance.id,
                    text=utterance.text,
                    chosen=found.chosen,
                    other=found.other,
                    words=found.words,
                    nearest=_nearest(found, transcript),
                )
            )
    leftovers = [
        LeftoverForm(
            kind=kind,
            form=form,
            count=len(found_in),
            hours=_hours(found_in),
            examples=list(dict.fromkeys(each.text for each in found_in))[:NUM_EXAMPLES],
        )
        for (kind, form), found_in in forms.items()
    ]
    ambiguities = [
        AmbiguousOption(
            option=option,
            value=getattr(options, option),
            count=len(found_in),
            hours=_hours(found_in),
            num_heard=(_count(clips[option], "chosen"), _count(clips[option], "other")),
            # those that a click corrects come first
            clips=sorted(clips[option], key=lambda clip: clip.nearest != "other")[:MAX_CLIPS],
        )
        for option, found_in in by_option.items()
    ]
    return TextReport(
        num_texts=len(utterances),
        hours=_hours(utterances),
        normalizer=options.fingerprint,
        num_leftovers=len(leftovers),
        leftovers=sorted(leftovers, key=lambda row: (-row.hours, row.form))[:MAX_LEFTOVERS],
        ambiguities=sorted(ambiguities, key=lambda row: (-row.hours, row.option)),
    )


def _hours(utterances: Iterable[Utterance]) -> float:
    return sum(utterance.duration_s for utterance in utterances) / 3600


def _nearest(found: Ambiguity, transcript: str | None) -> Literal["chosen", "other"] | None:
    place = nearest_reading((found.chosen, found.other), transcript or "")
    return None if place is None else "other" if place else "chosen"


def _count(clips: Iterable[AmbiguousClip], nearest: str) -> int:
    return sum(clip.nearest == nearest for clip in clips)


def text_notices(report: TextReport, options: NormalizerOptions) -> list[str]:
    """Return the report as notices of the printed one."""
    notices = []
    if report.leftovers:
        first = [f"{row.form} ({row.kind}, {row.count:,})" for row in report.leftovers[:SHOWN_FORMS]]
        more = report.num_leftovers - len(first)
        notices.append(
            f"{counted(report.num_leftovers, 'written form')} without a rule, by hours of speech: "
            f"{', '.join(first)}{f' and {more:,} more' if more > 0 else ''}; add readings (docs/tokenizer.md)"
        )
    for row in report.ambiguities:
        (now, other), other_name = row.clips[0].words, other_value(row.option, options)
        heard = f"; heard as {row.value} in {row.num_heard[0]:,} and as {other_name} in {row.num_heard[1]:,}"
        notices.append(
            f"{counted(row.count, 'text')} with two readings by {row.option}, read as {row.value} "
            f"({now}; {other_name}: {other}){heard if any(row.num_heard) else ''}"
        )
    return notices


def use_heard_readings(manifest: Path, found: AmbiguousOption) -> int:
    """Correct the texts of clips in which the other reading was heard, as decisions of the review.

    The corrected text is that reading in words. A text that changed since the check stays.

    Returns:
        The number of corrected texts.

    Raises:
        UserError: the manifest or the review cannot be read or written.
    """
    log = DecisionLog(manifest)
    decisions = read_decisions(manifest)
    text_of = {u.id: edited(u, decisions).text for _, u in read_numbered_utterances(manifest)}
    wanted = [clip for clip in found.clips if clip.nearest == "other" and text_of.get(clip.id) == clip.text]
    return sum(bool(decide(log, [clip.id], {"text": clip.other})) for clip in wanted)


def read_text_report(folder: Path) -> TextReport | None:
    """Return the report of the last check with this report folder; None without a valid one."""
    return read_if_valid(TextReport, folder / TEXTS_NAME)
