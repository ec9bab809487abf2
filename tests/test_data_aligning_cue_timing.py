"""Tests of the times of subtitles: shifted, at another frame rate, cut, and of another recording."""

from pathlib import Path

import numpy as np
import pytest

from indextts.data.aligning.cue_timing import fitted_cues
from indextts.data.importing.items import Passage
from indextts.features.vad import Span


def sentences(count: int, seed: int = 0) -> tuple[np.ndarray, list[Span]]:
    """Return the times of sentences, (N, 2), and their spans of speech: some have pauses within."""
    random = np.random.default_rng(seed)
    times, spans, at = [], [], 1.0
    for _ in range(count):
        length, pause = random.uniform(1.5, 6), random.uniform(0.3, 1.2)
        middle = at + random.uniform(0.4, 0.6) * length
        inner = random.uniform(0.1, 0.5) * (random.random() < 0.5)
        spans += [Span(at, middle), Span(middle + inner, at + length)] if inner else [Span(at, at + length)]
        times.append((at, at + length))
        at += length + pause
    return np.array(times), spans


def fitted(times: np.ndarray, spans: list[Span], seed: int = 1) -> tuple[dict[str, Passage], list[str]]:
    """Return the kept cues by text, which is their number, and the codes; borders are off by up to 0.2 s."""
    off = np.random.default_rng(seed).uniform(-0.2, 0.2, times.shape)
    cues = [
        Passage(float(start), float(end), str(number), number)
        for number, (start, end) in enumerate(times + off)
        if start >= 0
    ]
    cues.sort(key=lambda cue: cue.start_s)
    found, rejections = fitted_cues(Path("a.srt"), cues, spans, spans[-1].end_s + 1)
    return {cue.text: cue for cue in found if cue.text}, [rejection.code for rejection in rejections]


@pytest.mark.parametrize(
    ("change", "min_kept"),
    [
        (lambda times: times, 40),
        (lambda times: times + 0.3, 40),
        (lambda times: times - 12.0, 36),  # the first ones are before the recording
        (lambda times: times * 25 / 23.976, 40),
        (lambda times: times * 25 / 24 + 2.5, 40),
        (lambda times: times + 5.0 * (np.arange(len(times)) >= len(times) // 2)[:, None], 34),
    ],
)
def test_subtitles_move_to_their_speech(change, min_kept):
    times, spans = sentences(40)
    kept, _ = fitted(change(times), spans)
    assert len(kept) >= min_kept
    for text, cue in kept.items():
        assert (cue.start_s, cue.end_s) == pytest.approx(times[int(text)], abs=0.7)


@pytest.mark.parametrize("count", [3, 5, 40])
def test_subtitles_that_fit_stay_as_they_are_and_others_are_refused(count: int):
    times, spans = sentences(count)
    other, _ = sentences(count, seed=5)
    single = times + 1.5 * (np.arange(count) % 2)[:, None]
    whole, codes = fitted(times, spans)
    assert (len(whole), codes) == (count, [])
    assert fitted(other, spans) == fitted(single, spans) == ({}, ["bad_time"])


def test_cues_that_divide_sentences_without_a_pause_stay():
    times, spans = sentences(20)
    middles = times.mean(axis=1)
    halves = np.stack([times[:, 0], middles, middles, times[:, 1]], axis=1).reshape(-1, 2)
    kept, codes = fitted(halves, spans)
    assert (len(kept), codes) == (40, [])
