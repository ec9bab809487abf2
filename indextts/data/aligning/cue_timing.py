"""Move subtitles whose times do not fit the speech of their recording, or refuse them.

Axes: N cues, F frames of STEP_S, O offsets.

    speech    ____=====__==_======______====___        of the voice activity detector
    cues      __[#####]##[########]___[####]___        too early by two frames

A cue at an offset scores the logarithm of how much likelier its frames are than chance: speech within it,
silence beside it. The offset may change between two cues at the price of SPLIT, because a part of the
recording was cut out or inserted there. So the offsets of all cues are a path through a table (N, O), whose
best is found by dynamic programming, for each ratio of frame rates. A cue is clear if every path that places
it elsewhere is worse by MARGIN.

The file is refused if many cues, or all on average, score too little: a few cues may fit by chance.

Rolling captions are left as they are: programs time them, at words without a pause.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indextts.data.importing.items import Location, Passage, Rejection
from indextts.features.vad import Span
from indextts.system.amounts import counted

logger = logging.getLogger(__name__)

STEP_S = 0.064  # two windows of the detector
MAX_OFFSET_S = 60.0
_FRAME_RATES = ((24, 23.976), (25, 24), (25, 23.976))
RATES = (1.0, *(rate for one, other in _FRAME_RATES for rate in (one / other, other / one)))
NEAR_S = 0.35  # people are off by as much, and the cuts look for the pause
MISFIT = -0.5  # score of a cue that fits worse than chance
MAX_MISFITS = 0.1  # share of the cues
FEW_CUES = 8  # fewer may fit the speech of another recording by chance
MIN_MEAN = (1.0, 0.7)  # score of few cues and of others; of right ones 2.2
# In nats, chosen on joined recordings of four voices.
SPLIT = 10.0
OTHER_RATE = 3.0
UNMOVED = 5.0  # most subtitles fit
MARGIN = 4.0
CAP = (-2.0, 3.0)  # of a cue, since a single one proves little
NATS_PER_S = 2.0  # a frame is nearly as the frame before it
EDGE_S = 0.1  # of a cue that counts as a gap, so that cues that touch have one too
GAP_S = 0.5
TOUCHING_S = 0.3  # with EDGE_S: cues so near may divide a sentence, and need no silence between them
SILENT_INSIDE = 0.5  # share of the usual silence that is within a cue
SPEECH_BESIDE = 0.2  # share of the usual speech that is between cues

Floats = NDArray[np.float32]
Times = NDArray[np.float64]


@dataclass(frozen=True)
class Timing:
    """Times of cues that fit the speech."""

    rate: float
    offsets_s: Times  # (N,), to add after the rate
    scores: Floats  # (N,), negative for a cue that fits worse than chance
    is_clear: NDArray[np.bool_]  # (N,)


def fitted_cues(
    path: Path, cues: Sequence[Passage], speech: Sequence[Span], duration_s: float
) -> tuple[list[Passage], list[Rejection]]:
    """Return the cues in order at the times of their speech, and rejections; unclear ones lose their text."""
    has_text = np.array([bool(cue.text) for cue in cues], bool)
    times = np.array([(cue.start_s, cue.end_s) for cue in cues]).reshape(-1, 2)
    num_texts = int(has_text.sum())
    if not num_texts:
        return list(cues), []
    timing = find_timing(times, has_text, speech, duration_s)
    is_moved = timing.rate != 1 or bool((np.abs(timing.offsets_s[has_text]) > NEAR_S).any())
    scores = timing.scores[has_text]
    num_misfits = int((scores < MISFIT).sum())
    is_lost = has_text & ~timing.is_clear
    is_wrong = num_misfits > MAX_MISFITS * num_texts or scores.mean() < MIN_MEAN[num_texts >= FEW_CUES]
    if is_wrong or 2 * is_lost.sum() > num_texts:
        found = f"{num_misfits} of {num_texts} subtitles have speech at their borders or silence within"
        if not num_misfits:
            found = f"{counted(num_texts, 'subtitle')} without clear pauses around them prove too little"
        reason = (
            f"the times do not fit the speech ({found}), and no shift or frame rate corrects them; use "
            "subtitles of this recording, or its text as .txt without times and --asr, which finds when it "
            "is spoken"
        )
        logger.warning("%s: %s", path, reason)
        return [], [Rejection(Location(path), "bad_time", reason)]
    if is_moved:
        logger.warning("%s: cues moved by %s, to the speech", path, _shown(timing, times))
        starts, ends = np.maximum(0, times.T * timing.rate + timing.offsets_s)
        cues = [
            replace(cue, start_s=float(start), end_s=float(end))
            for cue, start, end in zip(cues, starts, ends, strict=True)
        ]
    reason = "unclear when it is spoken; the times of the subtitles change here"
    rejections = [
        Rejection(Location(path, cue.line), "bad_time", reason)
        for cue, lost in zip(cues, is_lost, strict=True)
        if lost
    ]
    kept = [replace(cue, text="") if lost else cue for cue, lost in zip(cues, is_lost, strict=True)]
    return sorted(kept, key=lambda cue: (cue.start_s, cue.end_s)), rejections


def _shown(timing: Timing, times: Times) -> str:
    """Return rate and offsets as text: "-1.2 s" or "+0.0 s, -5.0 s from 5:01"."""
    firsts = [0, *(np.flatnonzero(np.diff(timing.offsets_s)) + 1).tolist()]
    minutes = [divmod(int(times[first, 0]), 60) for first in firsts]
    parts = [f"{timing.offsets_s[first]:+.1f} s" for first in firsts]
    parts[1:] = [f"{part} from {at[0]}:{at[1]:02}" for part, at in zip(parts[1:], minutes[1:], strict=True)]
    rate = "" if timing.rate == 1 else f"a factor of {timing.rate:.4f} (another frame rate) and "
    return rate + ", ".join(parts)


def find_timing(
    times: Times, has_text: NDArray[np.bool_], speech: Sequence[Span], duration_s: float
) -> Timing:
    """Return the rate and the offsets of the cues that fit the speech best.

    Args:
        times: (N, 2), start and end of the cues in order.
        has_text: (N,); others, such as sounds, only move along.
    """
    spoken = np.zeros(round(duration_s / STEP_S) + 2, np.float32)  # (F,)
    for span in speech:
        spoken[round(span.start_s / STEP_S) : round(span.end_s / STEP_S)] = 1
    most = round(MAX_OFFSET_S / STEP_S)
    steps = np.arange(-most, most + 1, dtype=np.int32)  # (O,)
    found = []
    for rate in RATES:
        scores = _scores(times * rate, spoken, steps) * has_text[:, None]  # (N, O)
        prior = UNMOVED * (np.abs(steps) * STEP_S < NEAR_S) if rate == 1 else np.full(len(steps), -OTHER_RATE)
        until = _best_paths(scores, prior.astype(np.float32))
        after = _best_paths(scores[::-1], np.zeros(len(steps), np.float32))[::-1]
        found.append((float(until[-1].max()), rate, scores, until + after - scores))
    total, rate, scores, paths = max(found, key=lambda each: each[0])
    best = paths.argmax(axis=1)  # (N,)
    is_elsewhere = np.abs(steps - steps[best][:, None]) * STEP_S > 1.5 * NEAR_S  # (N, O)
    others = np.where(is_elsewhere, paths, -np.inf).max(axis=1)
    own = scores[np.arange(len(best)), best]
    return Timing(rate, steps[best] * STEP_S, own, total - others >= MARGIN)


def _scores(times: Times, spoken: Floats, steps: NDArray[np.int32]) -> Floats:
    """Return the score of each cue at each offset: (N, O)."""
    density = float(np.clip(spoken.mean(), 0.05, 0.95))
    inside = np.log((1 - (1 - density) * SILENT_INSIDE) / density), np.log(SILENT_INSIDE)
    beside = np.log(SPEECH_BESIDE), np.log((1 - density * SPEECH_BESIDE) / (1 - density))
    starts = times[:, 0] + EDGE_S
    ends = np.maximum(times[:, 1] - EDGE_S, starts + STEP_S)
    gap_starts = np.clip(np.append(-np.inf, ends[:-1]), starts - GAP_S, starts)
    gap_ends = np.clip(np.append(starts[1:], np.inf), ends, ends + GAP_S)
    summed = np.append(np.float32(0), np.cumsum(spoken, dtype=np.float32))

    def beside_nats(first: Times, last: Times) -> Floats:
        found = nats(first, last, beside)
        return np.where((last - first <= TOUCHING_S)[:, None], np.maximum(found, 0), found)

    def nats(first: Times, last: Times, of: tuple[float, float]) -> Floats:
        one, two = (np.round(each / STEP_S).astype(np.int32)[:, None] + steps for each in (first, last))
        num_spoken = summed[np.clip(two, 0, len(spoken))] - summed[np.clip(one, 0, len(spoken))]
        total: Floats = num_spoken * np.float32(of[0] - of[1]) + (two - one) * np.float32(of[1])
        return total

    total = nats(starts, ends, inside) + beside_nats(ends, gap_ends) + beside_nats(gap_starts, starts)
    capped: Floats = np.clip(total * np.float32(NATS_PER_S * STEP_S), *CAP)
    return capped


def _best_paths(scores: Floats, prior: Floats) -> Floats:
    """Return the score of the best path up to each offset of each cue: (N, O)."""
    paths = np.empty_like(scores)
    best = prior
    for number, row in enumerate(scores):
        best = paths[number] = np.maximum(best, best.max() - SPLIT) + row
    return paths
