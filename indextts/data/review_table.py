"""Clips of a manifest as columns, with the findings of the check and the decisions of people.

No torch here. A data set may have 100,000 clips and more, so the manifest and the report are read once per
change, a decision changes one row, and a filter is an operation on arrays.

    check/clips.jsonl    flags, measures and transcript of each clip (check.py); reasons and measures
                         are not listed here: a new one of the check is in the filters by itself
    review.jsonl         decisions (review.py)
"""

import math
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indextts.data.cleaned import read_cleaned
from indextts.data.manifest import Utterance
from indextts.data.quality.reasons import REASON_OF, REASONS, Flag
from indextts.data.quality.verdicts import DOUBTFUL_TEXT, doubtful_text
from indextts.data.review import Decision, DecisionLog, check_folder, decide, undo
from indextts.errors import UserError
from indextts.system.json_lines import json_lines_if_any

CLIPS_NAME = "clips.jsonl"
DOUBTFUL, ALL, SHUFFLED = "doubtful", "all", "shuffled"
REJECTED, WARNED, DECIDED = "rejected", "warned", "decided by hand"
LISTS = (DOUBTFUL, ALL, SHUFFLED, REJECTED, WARNED, DECIDED)

Places = NDArray[np.int64]  # indices of clips in the manifest


@dataclass(frozen=True)
class Filter:
    """Selection of clips."""

    show: str = DOUBTFUL  # one of LISTS, or the name of a reason
    speaker: str = ""  # "" for all
    measure: str = ""  # "" for none, else only clips that have it, the worst first
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True)
class Totals:
    """Amounts of speech before and after the check and the review, and what is left to decide."""

    num_clips: int
    hours: float
    num_kept: int
    hours_kept: float
    num_doubtful: int
    num_undecided: int  # of the doubtful


class ClipTable:
    """Facts of the manifest and the check on each clip, in the order of the manifest."""

    def __init__(self, manifest: Path, utterances: Sequence[Utterance]) -> None:
        """Read the report of the check, if there is one; a UserError if it is corrupt."""
        self.manifest = manifest
        self.utterances = utterances
        self.place_of = {utterance.id: place for place, utterance in enumerate(utterances)}
        self.flags: dict[int, tuple[Flag, ...]] = {}
        self.heard: dict[int, str] = {}  # by a recognizer
        self.measures: dict[str, NDArray[np.float32]] = {}
        self.cleaned = read_cleaned(manifest)  # by id
        self._read_report(check_folder(manifest) / CLIPS_NAME)
        for place, utterance in enumerate(utterances):  # also before a check
            if utterance.is_doubtful and all(
                flag.reason != DOUBTFUL_TEXT for flag in self.flags.get(place, ())
            ):
                self.flags[place] = (*self.flags.get(place, ()), *doubtful_text(utterance))
        self.is_rejected = np.zeros(len(utterances), bool)  # by the check
        self.is_rejected[[p for p, found in self.flags.items() if any(f.is_hard for f in found)]] = True
        self.is_flagged = np.zeros(len(utterances), bool)
        self.is_flagged[list(self.flags)] = True
        self.seconds = np.array([utterance.duration_s for utterance in utterances])
        measured = self.measures.get("duration_s")
        if measured is not None:
            self.seconds = np.where(np.isnan(measured), self.seconds, measured)

    def _read_report(self, path: Path) -> None:
        for number, record in json_lines_if_any(path):
            try:
                place = self.place_of.get(str(record["id"]))
                if place is not None:
                    self._add(place, record)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise UserError(
                    f"{path}:{number}: not a record of the check ({error!r}); run the data check again"
                ) from None

    def _add(self, place: int, record: Mapping[str, Any]) -> None:
        flags = [Flag(str(f["reason"]), float(f["severity"]), str(f["said"])) for f in record["flags"]]
        known = tuple(flag for flag in flags if flag.reason in REASON_OF)
        if known:
            self.flags[place] = known
        if record.get("heard"):
            self.heard[place] = str(record["heard"])
        for name, value in (record.get("measures") or {}).items():
            if value is not None:
                if name not in self.measures:
                    self.measures[name] = np.full(len(self.utterances), np.nan, np.float32)
                self.measures[name][place] = value

    @cached_property
    def by_reason(self) -> Mapping[str, Places]:
        """The clips of each reason, the most severe first."""
        found: dict[str, list[tuple[float, int]]] = {}
        for place, flags in self.flags.items():
            for flag in flags:
                found.setdefault(flag.reason, []).append((-flag.severity, place))
        return {
            reason.name: np.array([place for _, place in sorted(found[reason.name])])
            for reason in REASONS
            if reason.name in found
        }

    @cached_property
    def doubt(self) -> NDArray[np.float64]:
        """Surprise at the flags of each clip in this set, in bits; 0 without flags.

        For each flag, the share of clips that the same reason flags as severely or more; the sum of the
        negative logarithms. A reason that flags half of the set says little about a clip, and severities of
        different reasons need no common scale.
        """
        doubt = np.zeros(len(self.utterances))
        for reason, places in self.by_reason.items():
            severity = np.array(
                [next(flag.severity for flag in self.flags[p] if flag.reason == reason) for p in places]
            )
            num_as_severe = np.searchsorted(-severity, -severity, side="right")
            doubt[places] -= np.log2(num_as_severe / len(self.utterances))
        return doubt

    @cached_property
    def by_doubt(self) -> Places:
        """All clips, the most doubtful first."""
        return np.lexsort((-self.doubt, ~self.is_flagged))

    @cached_property
    def shuffled(self) -> Places:
        """All clips in a random order that stays the same: that of the digests of their ids."""
        digests = [zlib.crc32(utterance.id.encode()) for utterance in self.utterances]
        return np.argsort(np.array(digests, np.int64), kind="stable")

    @cached_property
    def by_speaker(self) -> Mapping[str, Places]:
        """The clips of each speaker, the speakers with the most clips first."""
        found: dict[str, list[int]] = {}
        for place, utterance in enumerate(self.utterances):
            found.setdefault(utterance.speaker, []).append(place)
        return {name: np.array(found[name]) for name in sorted(found, key=lambda name: -len(found[name]))}

    def worst_first(self, measure: str) -> Places:
        """Return the clips that have a measure, from the side on which the check flags clips."""
        values = self.measures.get(measure)
        if values is None:
            return np.empty(0, np.int64)
        side = next((reason.side for reason in REASONS if reason.measure == measure), "below")
        order = np.argsort(-values if side == "above" else values, kind="stable")
        return order[: int(np.count_nonzero(~np.isnan(values)))]


class Review:
    """A table with the decisions of people. Several threads may use it."""

    def __init__(self, table: ClipTable) -> None:
        self.table = table
        self.log = DecisionLog(table.manifest)
        self.is_kept = ~table.is_rejected
        self.is_decided = np.zeros(len(table.utterances), bool)
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Apply the decisions of the file; a UserError if a line is not a decision."""
        with self._lock:
            self._refresh()

    def decide(self, place: int, changed: Mapping[str, str | None]) -> Decision | None:
        """Change a decision as `review.decide`."""
        with self._lock:
            made = decide(self.log, [self.table.utterances[place].id], changed)
            self._refresh()
            return next(iter(made), None)

    def rejected_for(self, reason: str) -> list[str]:
        """Return the ids of the clips with a reason that are rejected, except for a person's decisions."""
        places = self.table.by_reason.get(reason, ())
        left = (place for place in places if not self.is_kept[place] and not self.is_decided[place])
        return [self.table.utterances[place].id for place in left]

    def keep_all(self, reason: str) -> int:
        """Keep the clips of `rejected_for`; return their number."""
        with self._lock:
            made = decide(self.log, self.rejected_for(reason), {"verdict": "keep"})
            self._refresh()
            return len(made)

    def undo(self, key: str) -> Decision | None:
        """Cancel a decision as `review.undo`."""
        with self._lock:
            made = undo(self.log, key)
            self._refresh()
            return made

    def _refresh(self) -> None:
        self.log.refresh()
        kept, decided = ~self.table.is_rejected, np.zeros(len(self.table.utterances), bool)
        for id, decision in self.log.decided.items():
            if (place := self.table.place_of.get(id)) is not None:
                kept[place] = decision.verdict == "keep" if decision.verdict else kept[place]
                decided[place] = (decision.verdict or decision.text) is not None
        self.is_kept, self.is_decided = kept, decided

    @property
    def revision(self) -> int:
        """Number of changes so far: decisions, and decisions that were undone."""
        return len(self.log.changed)

    def changed_since(self, revision: int) -> Sequence[int]:
        """Return the clips whose decision changed since a revision."""
        ids = dict.fromkeys(self.log.changed[max(0, revision) :])
        return [self.table.place_of[id] for id in ids if id in self.table.place_of]

    def totals(self) -> Totals:
        table = self.table
        return Totals(
            num_clips=len(table.utterances),
            hours=float(table.seconds.sum()) / 3600,
            num_kept=int(np.count_nonzero(self.is_kept)),
            hours_kept=float(table.seconds[self.is_kept].sum()) / 3600,
            num_doubtful=int(np.count_nonzero(table.is_flagged)),
            num_undecided=int(np.count_nonzero(table.is_flagged & ~self.is_decided)),
        )

    def count(self, show: str) -> int:
        """Return the number of clips of a list or a reason."""
        mask = self._mask(show)
        return int(np.count_nonzero(mask)) if mask is not None else len(self.table.by_reason.get(show, ()))

    def select(self, chosen: Filter) -> Places:
        """Return the clips of a filter in their order; none for an unknown speaker or measure."""
        table = self.table
        if chosen.measure:
            places = table.worst_first(chosen.measure)
            places = places[_within(table.measures.get(chosen.measure), places, chosen)]
            if chosen.show in table.by_reason:
                places = places[np.isin(places, table.by_reason[chosen.show])]
        elif chosen.show == DECIDED:
            newest = (table.place_of.get(id) for id in dict.fromkeys(reversed(self.log.changed)))
            places = np.array([place for place in newest if place is not None], np.int64)
        elif chosen.show in table.by_reason:
            places = table.by_reason[chosen.show]
        elif chosen.show == SHUFFLED:
            places = table.shuffled
        else:
            places = np.arange(len(table.utterances)) if chosen.show == ALL else table.by_doubt
        mask = self._mask(chosen.show)
        if mask is not None:
            places = places[mask[places]]
        if chosen.speaker:
            is_of_speaker = np.zeros(len(table.utterances), bool)
            is_of_speaker[table.by_speaker.get(chosen.speaker, np.empty(0, np.int64))] = True
            places = places[is_of_speaker[places]]
        return places

    def first_undecided(self, places: Places, start: int = 0) -> int:
        """Return the index of the first undecided clip from `start` on, else from 0 on, else `start`."""
        undecided = np.flatnonzero(~self.is_decided[places])
        later = undecided[undecided >= start]
        return int(later[0]) if later.size else int(undecided[0]) if undecided.size else start

    def _mask(self, show: str) -> NDArray[np.bool_] | None:
        """Return which clips are in a list; None for a reason."""
        if show == REJECTED:
            return ~self.is_kept
        if show == WARNED:
            return self.table.is_flagged & self.is_kept
        if show == DECIDED:
            return self.is_decided
        if show == DOUBTFUL:
            return self.table.is_flagged
        return np.ones(len(self.table.utterances), bool) if show in (ALL, SHUFFLED) else None


def _within(values: NDArray[np.float32] | None, places: Places, chosen: Filter) -> NDArray[np.bool_]:
    if values is None:
        return np.ones(len(places), bool)
    low = -math.inf if chosen.at_least is None else chosen.at_least
    high = math.inf if chosen.at_most is None else chosen.at_most
    return (values[places] >= low) & (values[places] <= high)
