"""Clips whose text fits the speech much worse than the other clips of the speaker.

Without a recognizer, the length of the text is compared with the time spoken:

    length_deviation    distance of log(seconds of speech / (syllables + 2)) from its median over the clips
                        of the speaker, or of the set if the speaker has fewer than MIN_CLIPS, in robust
                        standard deviations
    misplaced           clips in a row with texts of other recordings, as in a table that is shifted by a
                        line: together, their distances are as those of texts drawn by chance

A recognizer makes errors of its own, with some voices more than others, so that no fixed limit suits all. A
measure of it is therefore compared likewise, in robust standard deviations (1.4826 times the median absolute
deviation), which up to half of the clips with wrong texts do not shift much:

    text_mismatch    the larger deviation of character error rate and alignment score
    text_unheard     of the letters of the text that were not heard at the start or end: a clip that was cut
    text_beyond      of the letters heard before or after the text: a text that lacks words

Deviations below MIN_DEVIATION count as that much: a nearly perfect recognizer flags no single letter. Clips
of speakers that the recognizer hardly understands are not compared.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indextts.data.quality.measures import Measures
from indextts.data.report import robust_deviation

MIN_CLIPS = 20  # a median of fewer is unreliable
MAX_MEDIAN_ERROR_PERCENT = 50.0  # a recognizer that hears less says nothing about single clips
DEVIATIONS_OF_90_PERCENT = 1.2816
MIN_DEVIATION = {"error_percent": 3.0, "alignment": 0.1, "num_unheard": 0.5, "num_beyond": 0.5}
OWN_DEVIATION = 0.5  # of a speaker's own deviation, if it is larger than that of the speakers together
COUNTS = ("num_unheard", "num_beyond")
MAX_CHARS = 150  # of a text in a description

# Measured on four people and four synthetic voices (docs/lab/wrong_texts.md).
PAUSE_SYLLABLES = 2  # that the lengthening of the last word and the detector's margins take
QUARTILE_OF_NORMAL = 0.3186  # of the absolute values
LENGTH_DEVIATIONS = (0.06, 0.25)  # of a speaker; with half of the texts wrong, the quartile is too large
USUAL_DEVIATION = 0.15  # and more is no reason to believe that the texts are right
MAX_EVIDENCE = 3.0  # nats of a clip: a single one proves nothing
MIN_EVIDENCE_OF_RUN = 15.0  # the highest of 4,900 clips with right texts is 9.0
MAX_CORRELATION_OF_RUN = 0.5  # of right texts by somebody who speaks unevenly it is 0.6
USUAL_CORRELATION = 0.8
MAX_SHIFT = 3  # lines


@dataclass(frozen=True)
class Heard:
    """Transcript of a clip, and its differences from the text."""

    text: str
    error_percent: float  # character error rate
    alignment: float | None  # fit of the text in nats per letter, near 0 if spoken; None without a CTC model
    num_unheard: int  # letters of the text that were not heard at its start or end
    num_beyond: int  # heard letters before or after the text


@dataclass(frozen=True)
class Spread:
    """Median of a measure and robust standard deviation."""

    median: float
    deviation: float


@dataclass(frozen=True)
class TextFit:
    """Comparison of the transcripts of a set."""

    num_clips: int  # that were transcribed
    error_percent: float  # the median error
    not_understood: Mapping[str, float]  # speakers that the recognizer hardly understands, with median errors
    spreads: Mapping[str, Spread]  # over the clips of the other speakers; empty if nothing can be compared
    spreads_of: Mapping[str, Mapping[str, Spread]]  # likewise for each of them with enough clips

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


@dataclass(frozen=True)
class Run:
    """Clips in a row whose texts belong to other recordings."""

    places: range  # of its clips
    correlation: float  # of length and speech in it
    shift: int  # lines after a clip that its text stands; 0 if no shift helps


@dataclass(frozen=True)
class LengthFit:
    """Comparison of the lengths of the texts with the time spoken."""

    correlation: float | None  # of their logarithms; None for too few clips
    deviations: Sequence[float]  # of the clips, NaN where one is undefined
    runs: Sequence[Run]

    def measures(self, place: int) -> Measures:
        """Return the measures of a clip."""
        deviation = self.deviations[place]
        length = next((len(run.places) for run in self.runs if place in run.places), None)
        return {"length_deviation": None if math.isnan(deviation) else abs(deviation), "misplaced": length}


def length_fit(speakers: Sequence[str], syllables: Sequence[float], speech_s: Sequence[float]) -> LengthFit:
    """Return the comparison of clips in the order of the manifest.

    Args:
        syllables: of the texts; 0 where they are unknown.
        speech_s: without pauses; 0 where none is found.
    """
    is_known = np.minimum(syllables, speech_s) > 0  # (N,)
    deviations, evidence = np.full(len(speakers), np.nan), np.zeros(len(speakers))
    if is_known.sum() < MIN_CLIPS:
        return LengthFit(None, deviations.tolist(), ())
    text = np.log(np.maximum(syllables, 0) + PAUSE_SYLLABLES)
    speech = np.log(np.where(is_known, speech_s, 1))
    count_of = Counter(np.array(speakers)[is_known].tolist())
    groups = np.array([name if count_of[name] >= MIN_CLIPS else "" for name in speakers])
    for name in set(groups):
        judged = is_known & (groups == name)
        compared = judged if name else is_known
        distances = speech - text - np.median((speech - text)[compared])
        deviation = np.quantile(np.abs(distances[compared]), 0.25) / QUARTILE_OF_NORMAL
        deviations[judged] = distances[judged] / np.clip(deviation, *LENGTH_DEVIATIONS)
        # Right texts have a t distribution with four degrees of freedom. Texts drawn by chance differ from
        # the speech as two independent lengths do, whichever of them are right.
        usual = np.clip(deviation, LENGTH_DEVIATIONS[0], USUAL_DEVIATION)
        by_chance = np.sqrt(speech[compared].var() + text[compared].var()) + 1e-9
        right = np.log(0.375 / usual) - 2.5 * np.log1p(np.square(distances / usual) / 4)
        wrong = np.log(0.399 / by_chance) - np.square(distances / by_chance) / 2
        evidence[judged] = np.clip(wrong - right, -MAX_EVIDENCE, MAX_EVIDENCE)[judged]
    runs = [_run(text, speech, is_known, places) for places in _places_of_runs(evidence)]
    found = tuple(run for run in runs if run.correlation < MAX_CORRELATION_OF_RUN)
    return LengthFit(_correlation(text[is_known], speech[is_known]), deviations.tolist(), found)


def _places_of_runs(evidence: NDArray[np.float64]) -> Iterator[range]:
    """Yield the stretches with the largest sums."""
    left = evidence.copy()
    while True:
        sums = np.concatenate([[0.0], np.cumsum(left)])
        above = sums - np.minimum.accumulate(sums)
        end = int(np.argmax(above))
        if above[end] < MIN_EVIDENCE_OF_RUN:
            return
        first = int(np.argmin(sums[:end]))
        yield range(first, end)
        left[first:end] = -MAX_EVIDENCE


def _run(
    text: NDArray[np.float64], speech: NDArray[np.float64], is_known: NDArray[np.bool_], places: range
) -> Run:
    """Return a run, and the shift with which its texts have the lengths of the speech."""

    def shifted(lines: int) -> float:
        clips = np.array([p for p in places if is_known[p] and 0 <= p + lines < len(text)])
        return _correlation(text[clips + lines], speech[clips])

    best = max((lines for lines in range(-MAX_SHIFT, MAX_SHIFT + 1) if lines), key=shifted)
    is_shifted = len(places) >= MIN_CLIPS and shifted(best) > USUAL_CORRELATION
    return Run(places, shifted(0), best if is_shifted else 0)


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the correlation, 0 where one of both is constant."""
    if len(first) < 2 or min(first.std(), second.std()) == 0:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


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
            if values := [value for heard in clips if (value := getattr(heard, name)) is not None]:
                medians[speaker] = statistics.median(values)
                distances[speaker] = [value - medians[speaker] for value in values]
        together = _robust_deviation([value for each in distances.values() for value in each], name)
        for speaker, median in medians.items():
            own = OWN_DEVIATION * _robust_deviation(distances[speaker], name)
            spreads_of[speaker][name] = Spread(median, max(together, own, least))
    return spreads_of


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
