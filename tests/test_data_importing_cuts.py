"""Tests of the plans of clips, by subtitles and by the places of sentences."""

from dataclasses import replace
from pathlib import Path

import pytest

from indextts.data.importing.cuts import Limits, Part, plan_aligned, plan_cuts, silences_of
from indextts.data.importing.items import Passage, Rejection
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


# --- by the places of sentences


def part(start: float, end: float, text: str, *, doubtful: bool = False, other: str = "") -> Part:
    return Part(start, end, text, 1, None if doubtful else -0.3, other, is_doubtful=doubtful)


def plan_parts(parts: list[Part], speech: list[tuple[float, float]], duration: float = 60.0):
    pauses = silences_of([Span(*times) for times in speech], duration)
    return plan_aligned(Path("a.txt"), parts, pauses, LIMITS, "mms")


def texts(planned) -> list[str]:
    return [item.text if isinstance(item, Passage) else item.code for item in planned]


def test_sentences_are_cut_in_the_pauses_and_padded():
    first, second = plan_parts([part(1.1, 3.8, "a"), part(4.6, 8.9, "b")], [(1, 4), (4.5, 9)])
    assert (first.start_s, first.end_s) == pytest.approx((0.9, 4.1))
    assert (second.start_s, second.end_s) == pytest.approx((4.4, 9.1))
    assert first.provenance is not None
    found = first.provenance
    assert (found.kind, found.by, found.score, found.is_doubtful) == ("aligned", ("mms",), -0.3, False)


def test_sentences_without_a_pause_between_them_become_one_clip():
    assert texts(plan_parts([part(1, 4, "a"), part(4.1, 8, "b"), part(9, 12, "c")], [(1, 8), (9, 12)])) == [
        "a b",
        "c",
    ]


def test_a_short_sentence_is_joined_with_its_neighbour_after_a_short_pause():
    parts = [part(1, 2, "a"), part(2.3, 5, "b"), part(9, 10.2, "c"), part(12, 15, "d")]
    assert texts(plan_parts(parts, [(1, 2), (2.3, 5), (9, 10.2), (12, 15)])) == ["a b", "c", "d"]


def test_a_long_sentence_is_cut_in_its_longest_pauses_between_words():
    words = (("w1", 1.0, 6.0), ("w2", 6.4, 11.0), ("w3", 11.3, 18.0), ("w4", 18.2, 23.0))
    long = replace(part(1, 23, "w1 w2 w3 w4"), words=words)
    speech = [(1, 6), (6.4, 11), (11.3, 18), (18.2, 23)]
    assert texts(plan_parts([long], speech)) == ["w1", "w2", "w3 w4"]
    assert all(
        isinstance(item, Passage) and item.end_s - item.start_s < 15 for item in plan_parts([long], speech)
    )


def test_a_sentence_that_is_too_short_or_has_no_pause_is_rejected():
    parts = [part(1, 1.4, "a"), part(3, 26, "b")]
    assert texts(plan_parts(parts, [(1, 1.4), (3, 26)])) == ["too_short", "too_long"]


def test_speech_without_a_line_makes_its_clip_doubtful():
    parts = [part(1, 4, "a"), part(4.1, 6, "heard", doubtful=True, other="b"), part(8, 12, "c")]
    first, second = plan_parts(parts, [(1, 6), (8, 12)])
    assert (first.text, second.text) == ("a heard", "c")
    assert first.provenance is not None
    assert second.provenance is not None
    assert (first.provenance.is_doubtful, first.provenance.other) == (True, "b")
    assert not second.provenance.is_doubtful
