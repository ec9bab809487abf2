"""Agreement of two recognizers on a clip, and the largest disagreement with which transcripts are kept.

Two recognizers rarely make the same mistake, so a text that both hear is right more often than each of them.
How different the two readings of a clip may be is chosen from the readings of the set itself:

    disagreement   edits between the readings of a clip, over the length of the longer; homophones, spaces and
                   punctuation do not count
    curve          for each limit of the disagreement, what is kept: clips, hours, and how many of the letters
                   in the kept clips differ
    chosen limit   the largest at which at most TARGET of the kept letters differ

What differs is an upper bound of the mistakes that only one recognizer made. Mistakes that both make in the
same way are invisible to any limit; a random sample in the review measures them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.system.amounts import counted
from indextts.system.yaml_files import read_if_valid
from indextts.text.transcripts import edit_distance, scored

REPORT_NAME = "agreement.json"
MAX_POINTS = 12  # of the printed curve
TARGET = 0.002  # share of the letters in the kept clips


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two readings of a clip: edits between them, letters of the longer one, seconds of the clip."""

    edits: int
    letters: int
    duration_s: float

    @property
    def disagreement(self) -> float:
        """Share of the letters; 1 for clips without letters."""
        return self.edits / self.letters if self.letters else 1.0


@dataclass(frozen=True)
class Point:
    """Yield of one limit of the disagreement; `differing` is a share of the letters of the kept clips."""

    limit: float
    num_clips: int
    hours: float
    differing: float


def compare(first: str, second: str, duration_s: float, options: NormalizerOptions) -> Comparison:
    """Return the comparison of two readings."""
    a, b = scored(first, options), scored(second, options)
    return Comparison(edit_distance(a, b), max(len(a), len(b)), duration_s)


def yield_curve(compared: Sequence[Comparison]) -> list[Point]:
    """Return what is kept for each disagreement in the set, in ascending order."""
    points: list[Point] = []
    edits = letters = count = 0
    seconds = 0.0
    for each in sorted(compared, key=lambda each: each.disagreement):
        edits, letters, count = edits + each.edits, letters + each.letters, count + 1
        seconds += each.duration_s
        point = Point(each.disagreement, count, seconds / 3600, edits / letters if letters else 1.0)
        if points and points[-1].limit == point.limit:
            points.pop()
        points.append(point)
    return points


def choose_limit(curve: Sequence[Point]) -> float:
    """Return the largest limit at which at most TARGET of the kept letters differ; 0 if there is none."""
    return max((point.limit for point in curve if point.differing <= TARGET), default=0.0)


@dataclass(frozen=True)
class AgreementReport:
    """Result of a transcription."""

    recognizers: list[str]
    limit: float | None  # of the disagreement of kept transcripts; None with one recognizer
    is_chosen: bool  # whether the limit was chosen from the set
    num_clips: int
    hours: float
    num_kept: int
    hours_kept: float
    num_silent: int  # clips in which no recognizer heard a text; they are not in the manifest
    curve: list[Point]  # what each limit would keep; empty with one recognizer
    shared_family: str = ""  # the family of two recognizers that share mistakes, such as Whisper

    @classmethod
    def read(cls, folder: Path) -> Self | None:
        """Return the report in an output folder; None without a valid one."""
        return read_if_valid(cls, folder / REPORT_NAME)

    def __str__(self) -> str:
        review = self.num_clips - self.num_kept
        if self.limit is None:
            return (
                f"{counted(self.num_clips, 'clip')}, {self.hours:.2f} hours, all for the review: one "
                "recognizer does not know its own mistakes; pass a second --asr to keep what both hear"
            )
        share = 100 * self.hours_kept / self.hours if self.hours else 0.0
        why = "chosen" if self.is_chosen else "as given"
        lines = [
            f"kept {counted(self.num_kept, 'clip')}, {self.hours_kept:.2f} of {self.hours:.2f} hours "
            f"({share:.0f} %), in which {' and '.join(self.recognizers)} agree on at least "
            f"{100 * (1 - self.limit):.1f} % of the letters (--max-disagreement {self.limit:.4g}, {why}); "
            f"{counted(review, 'clip')} for the review",
            "agreement is not accuracy: what both mishear alike is kept; listen to some clips in the review",
            *([f"both are {self.shared_family}: they make the same mistakes"] if self.shared_family else []),
            "",
            "  limit   hours kept   clips   agreement",
        ]
        lines += [
            f"{100 * point.limit:5.1f} %  {point.hours:10.2f}  {point.num_clips:7,}   "
            f"{100 * (1 - point.differing):.2f} %" + ("   <- kept" if point.limit == self.kept_point else "")
            for point in self.shown_curve()
        ]
        return "\n".join(lines)

    @property
    def kept_point(self) -> float | None:
        """The limit of the last point of the curve that is kept."""
        limit = -1.0 if self.limit is None else self.limit
        return max((point.limit for point in self.curve if point.limit <= limit), default=None)

    def shown_curve(self) -> list[Point]:
        """Return about MAX_POINTS points, evenly spaced by clips, with the kept one."""
        step = max(1, self.num_clips // MAX_POINTS)
        shown, next_count = [], 0
        for point in self.curve:
            if point.num_clips >= next_count or point.limit == self.kept_point:
                shown.append(point)
                next_count = point.num_clips + step
        return shown
