"""Clips whose text fits what a recognizer hears much worse than the other clips of the speaker.

A recognizer makes errors of its own, with some voices more than others, so that no fixed limit suits all. A
measure is therefore compared with its median over the speaker's clips, or over the set if the speaker has
fewer than MIN_CLIPS, in robust standard deviations (1.4826 times the median absolute deviation), which up to
half of the clips with wrong texts do not shift much:

    text_mismatch    the larger deviation of character error rate and alignment score
    text_unheard     of the letters of the text that were not heard at the start or end: a clip that was cut
    text_beyond      of the letters heard before or after the text: a text that lacks words

Deviations below MIN_DEVIATION count as that much: a nearly perfect recognizer flags no single letter. Clips
of speakers that the recognizer hardly understands are not compared.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from indextts.data.quality.measures import Measures
from indextts.data.report import robust_deviation

MIN_CLIPS = 20  # a median of fewer is unreliable
MAX_MEDIAN_ERROR_PERCENT = 50.0  # a recognizer that hears less says nothing about single clips
DEVIATIONS_OF_90_PERCENT = 1.2816
MIN_DEVIATION = {"error_percent": 3.0, "alignment": 0.1, "num_unheard": 0.5, "num_beyond": 0.5}
OWN_DEVIATION = 0.5  # of a speaker's own deviation, if it is larger than that of the speakers together
COUNTS = ("num_unheard", "num_beyond")
MAX_CHARS = 150  # of a text in a description


@dataclass(frozen=True)
class Heard:
    """Transcript of a clip, and its differences from the text.

    Args:
        text: the transcript.
        error_percent: character error rate.
        alignment: fit of the text in nats per letter, near 0 if it is spoken; None without a CTC model.
        num_unheard: letters of the text that were not heard at its start or end.
        num_beyond: heard letters before or after the text.
    """

    text: str
    error_percent: float
    alignment: float | None
    num_unheard: int
    num_beyond: int


@dataclass(frozen=True)
class Spread:
    """Median of a measure and robust standard deviation."""

    median: float
    deviation: float


@dataclass(frozen=True)
class TextFit:
    """Comparison of the transcripts of a set.

    Args:
        num_clips: that were transcribed.
        error_percent: the median error.
        not_understood: speakers of which the recognizer understands too little, with their median errors.
        spreads: of the measures over the clips of the other speakers; empty if nothing can be compared.
        spreads_of: likewise for each of them with enough clips.
    """

    num_clips: int
    error_percent: float
    not_understood: Mapping[str, float]
    spreads: Mapping[str, Spread]
    spreads_of: Mapping[str, Mapping[str, Spread]]

    def measures(self, speaker: str, heard: Heard | None) -> Measures:
        """Return the measures of a clip; deviations are positive if the text fits worse than usual."""
        if heard is None:
            return {}
        found: Measures = {"error_percent": heard.error_percent, "alignment": heard.alignment}
        if not self.spreads or speaker in self.not_understood:
            return found
        spreads = self.spreads_of.get(speaker, self.spreads)
        errors, alignment, unheard, beyond = (_deviation(heard, name, spreads) for name in MIN_DEVIATION)
        mismatch = max(errors or 0.0, -(alignment or 0.0))
        return {**found, "text_mismatch": mismatch, "text_unheard": unheard, "text_beyond": beyond}

    def facts(self, max_deviation: float) -> list[str]:
        """Return lines for the report: what the recognizer hears, and the limits that follow from it."""
        if not self.num_clips:
            return []
        lines = [f"recognizer: median error {self.error_percent:.1f} % of letters, {self.num_clips} clips"]
        for speaker, error in sorted(self.not_understood.items()):
            lines.append(f"  {speaker}: {error:.0f} %, so its texts are not judged")
        if not self.spreads:
            reason = "too few clips" if self.num_clips < MIN_CLIPS else "too many letters differ"
            return [*lines, f"texts are not compared with the speech: {reason}"]
        deviations = f"{max_deviation:g} robust standard deviations from the median"
        lines.append(f"limits of the text, {deviations}: {_limits(self.spreads, max_deviation)}")
        if len(self.spreads_of) > 1:
            by_error = sorted(self.spreads_of, key=lambda name: self.spreads_of[name]["error_percent"].median)
            for which, name in (("best", by_error[0]), ("worst", by_error[-1])):
                limits = _limits(self.spreads_of[name], max_deviation)
                lines.append(f"  {name}, the {which} understood: {limits}")
        return lines


def text_fit(clips: Sequence[tuple[str, Heard]]) -> TextFit:
    """Return the comparison of speakers and transcripts."""
    errors_of: dict[str, list[float]] = defaultdict(list)
    for speaker, heard in clips:
        errors_of[speaker].append(heard.error_percent)
    medians = {name: statistics.median(each) for name, each in errors_of.items() if len(each) >= MIN_CLIPS}
    not_understood = {name: error for name, error in medians.items() if error > MAX_MEDIAN_ERROR_PERCENT}
    compared = [heard for speaker, heard in clips if speaker not in not_understood]
    error = statistics.median(heard.error_percent for _, heard in clips) if clips else 0.0
    enough = len(compared) >= MIN_CLIPS
    if not enough or statistics.median(h.error_percent for h in compared) > MAX_MEDIAN_ERROR_PERCENT:
        return TextFit(len(clips), error, not_understood, {}, {})
    clips_of: dict[str, list[Heard]] = defaultdict(list)
    for speaker, heard in clips:
        if speaker in medians and speaker not in not_understood:
            clips_of[speaker].append(heard)
    return TextFit(len(clips), error, not_understood, _spreads_of({"": compared})[""], _spreads_of(clips_of))


def _deviation(heard: Heard, name: str, spreads: Mapping[str, Spread]) -> float | None:
    value = getattr(heard, name)
    spread = spreads.get(name)
    return None if value is None or spread is None else (value - spread.median) / spread.deviation


def _limits(spreads: Mapping[str, Spread], max_deviation: float) -> str:
    """Return the limits of the measures as a sentence."""
    limits = {
        name: spread.median + (-1 if name == "alignment" else 1) * max_deviation * spread.deviation
        for name, spread in spreads.items()
    }
    shown = [f"more than {limits['error_percent']:.0f} % of the letters"]
    if "alignment" in limits:
        shown.append(f"an alignment below {limits['alignment']:.2f} nats per letter")
    unheard, beyond = (math.floor(limits[name]) + 1 for name in ("num_unheard", "num_beyond"))
    shown.append(f"at least {unheard} letters unheard or {beyond} beyond the text")
    return ", ".join(shown)


def _spreads_of(clips_of: Mapping[str, Sequence[Heard]]) -> dict[str, dict[str, Spread]]:
    """Return the spreads of each group: the own medians, and the deviation of all groups from theirs.

    The deviation of few clips is unreliable, but some speakers are understood less evenly than others.
    """
    spreads_of: dict[str, dict[str, Spread]] = {speaker: {} for speaker in clips_of}
    for name, least in MIN_DEVIATION.items():
        medians, distances = {}, {}
        for speaker, clips in clips_of.items():
            if values := _values(clips, name):
                medians[speaker] = statistics.median(values)
                distances[speaker] = [value - medians[speaker] for value in values]
        together = _robust_deviation([value for each in distances.values() for value in each], name)
        for speaker, median in medians.items():
            own = OWN_DEVIATION * _robust_deviation(distances[speaker], name)
            spreads_of[speaker][name] = Spread(median, max(together, own, least))
    return spreads_of


def _values(clips: Sequence[Heard], name: str) -> list[float]:
    return [value for heard in clips if (value := getattr(heard, name)) is not None]


def _robust_deviation(distances: Sequence[float], name: str) -> float:
    """Return the robust standard deviation of distances from a median; 0 without any."""
    if not distances:
        return 0.0
    deviation = robust_deviation(distances)
    if name in COUNTS:  # mostly 0, so that their median deviation says nothing
        deviation = max(deviation, sorted(distances)[int(0.9 * len(distances))] / DEVIATIONS_OF_90_PERCENT)
    return deviation


def details(text: str, heard: Heard | None) -> Mapping[str, str]:
    """Return what the flags of a clip say, by reason: the numbers, the text and the transcript."""
    if heard is None:
        return {}
    both = f'text "{_shortened(text)}", heard "{_shortened(heard.text)}"'
    return {
        "wrong_text": f"{heard.error_percent:.0f} % of the letters; {both}",
        "unheard_words": f"{heard.num_unheard} letters; {both}",
        "extra_words": f"{heard.num_beyond} letters; {both}",
    }


def _shortened(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= MAX_CHARS else f"{words[: MAX_CHARS - 3]}..."
