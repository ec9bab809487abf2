"""Tests of the normaliser on the lines of tests/normalizer_new_cases.py."""

import pytest

from indextts.text.normalize import normalize
from tests.normalizer_new_cases import CASES
from tests.test_text_normalize import OTHER_OPTIONS

LINES = [
    pytest.param(text, spoken, id=f"{name}-{number}")
    for name, cases in CASES.items()
    for number, (text, spoken) in enumerate(cases)
]


@pytest.mark.parametrize(("text", "spoken"), LINES)
def test_a_line_is_written_as_it_is_spoken_and_only_once(text, spoken):
    assert normalize(text) == spoken
    assert normalize(spoken) == spoken
    once = normalize(text, OTHER_OPTIONS)
    assert normalize(once, OTHER_OPTIONS) == once


@pytest.mark.parametrize(
    "line", ["{}", "{}/3", "3/{}", "{}.5", "{}ኛ", "ከ{}-3", "{},000", "-{}%", "0911234567/{}"]
)
def test_a_number_of_thousands_of_digits_is_read(line):
    once = normalize("ሀ " + line.format("5" * 5_000))
    assert not any(map(str.isdigit, once))
    assert normalize(once) == once


def test_there_are_150_new_lines():
    assert len({text for cases in CASES.values() for text, _ in cases}) >= 150
