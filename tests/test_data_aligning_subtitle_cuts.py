"""Tests of the plans of clips by subtitles."""

from pathlib import Path

import pytest

from indextts.data.aligning.subtitle_cuts import plan_cuts
from indextts.data.importing.items import Passage, Rejection
from indextts.data.silences import Limits
from indextts.features.vad import Span

LIMITS = Limits(1.0, 20.0)


def cue(start: float, end: float, text: str, line: int = 0, voice: str | None = None) -> Passage:
    return Passage(start, end, text, line, voice)


def plan(cues: list[Passage], speech: list[tuple[float, float]], duration: float = 30.0, **flags: bool):
    return plan_cuts(Path("a.srt"), cues, [Span(*times) for times in speech], duration, LIMITS, **flags)


def test_clips_are_cut_in_the_silence_between_subtitles_and_trimmed():  # D7, D8
    cues = [cue(0.0, 4.9, "a"), cue(5.1, 9.0, "b"), cue(14.0, 20.0, "c")]
    first, second, third = plan(cues, [(1.0, 2.0), (2.3, 4.7), (5.2, 9.3), (14.5, 18.0)])
    assert (first.start_s, first.end_s) == pytest.approx((0.85, 4.85))
    assert (second.start_s, second.end_s) == pytest.approx((5.05, 9.45))
    assert (third.start_s, third.end_s) == pytest.approx((14.35, 18.15))
    assert [clip.text for clip in (first, second, third)] == ["a", "b", "c"]


def test_a_short_silence_is_shared_and_no_clip_goes_beyond_its_middle():
    first, second = plan([cue(1, 5, "a"), cue(5, 9, "b")], [(1, 4.95), (5.15, 9)])
    assert first.end_s == second.start_s == pytest.approx(5.05)


def test_subtitles_without_a_silence_between_them_become_one_clip():
    clips = plan([cue(1, 5, "a", 1), cue(5, 9, "b", 2), cue(9.5, 12, "c", 3)], [(1, 9), (9.6, 12)])
    assert [(clip.text, clip.line) for clip in clips if isinstance(clip, Passage)] == [("a b", 1), ("c", 3)]


def test_speech_without_a_subtitle_belongs_to_no_clip():
    clips = plan([cue(1, 4, "a"), cue(12, 15, "b")], [(1, 4), (5, 6), (7, 11), (12, 15)])
    assert [(round(clip.start_s), round(clip.end_s)) for clip in clips] == [(1, 4), (12, 15)]


def test_speech_without_a_pause_is_never_cut():
    cues = [cue(1, 4, "a", 1), cue(8, 11, "b", 2), cue(14, 15, "c", 3)]
    assert [
        (clip.where.line, clip.code)
        for clip in plan(cues, [(1, 10.9), (14, 15)])
        if isinstance(clip, Rejection)
    ] == [
        (1, "no_pause"),  # speech continues without subtitles
        (2, "no_pause"),
    ]


def test_the_speech_of_a_rejected_subtitle_is_in_no_clip():
    cues = [cue(1, 4, "a", 1), cue(4, 8, "", 2), cue(8, 11, "b", 3)]
    kept = plan(cues, [(1, 3.8), (4.2, 8), (8.3, 11)])
    assert [clip.text for clip in kept] == ["a", "b"]
    assert [clip.end_s for clip in kept] == pytest.approx([3.95, 11.15])
    (lost,) = plan(cues, [(1, 11)])
    assert (lost.where.line, lost.code) == (1, "no_pause")


def test_lengths_silence_and_subtitles_after_the_end_are_refused():
    cues = [
        cue(0, 0.5, "a", 1),
        cue(2, 5, "b", 2),
        cue(6, 28, "c", 3),
        cue(29, 29.9, "d", 4),
        cue(31, 33, "e", 5),
    ]
    codes = [(item.where.line, item.code) for item in plan(cues, [(0.1, 0.4), (6, 28)])]
    assert codes == [(1, "too_short"), (2, "no_speech"), (3, "too_long"), (4, "no_speech"), (5, "bad_time")]


def test_two_voices_without_a_pause_are_rejected_and_a_pause_separates_them():
    cues = [cue(1, 4, "a", 1, "A"), cue(4, 8, "b", 2, "B")]
    assert [item.code for item in plan(cues, [(1, 8)])] == ["dialogue"]
    assert [clip.voice for clip in plan(cues, [(1, 3.8), (4.1, 8)])] == ["A", "B"]


def test_boundaries_of_rolling_captions_need_a_near_silence():
    cues = [cue(1, 4, "a"), cue(4, 8, "b")]
    speech = [(1, 3.5), (3.65, 8)]
    assert [clip.text for clip in plan(cues, speech)] == ["a", "b"]
    assert [clip.text for clip in plan(cues, speech, is_rolling=True)] == ["a b"]
