"""Tests of the plans of clips by the places of sentences."""

from dataclasses import replace
from pathlib import Path

import pytest

from indextts.data.aligning.cuts import Part, plan_aligned
from indextts.data.importing.items import Passage
from indextts.data.silences import Limits, silences_of
from indextts.features.vad import Span

LIMITS = Limits(1.0, 20.0)


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
    assert (first.provenance.is_doubtful, first.provenance.other) == (True, "b")
    assert not second.provenance.is_doubtful
