import pytest

from indextts.system.amounts import (
    counted,
    listed,
    ordinal,
    shown_duration,
    shown_gib,
    shown_size,
    shown_time,
)


def test_a_noun_agrees_with_its_count():
    assert counted(0, "utterance") == "0 utterances"
    assert counted(1, "utterance") == "1 utterance"
    assert counted(2000, "utterance") == "2,000 utterances"
    assert counted(2, "process") == "2 processes"
    assert counted(2, "entry", "entries") == "2 entries"


def test_the_first_items_are_listed_and_the_others_counted():
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcde"), 2) == "a, b and 3 more"


def test_ordinals_are_english():
    expected = ["1st", "2nd", "3rd", "4th", "11th", "12th", "93rd", "111th"]
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 93, 111)] == expected


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "1 s"), (7.4, "7 s"), (44, "40 s"), (700, "12 min"), (12000, "3 h 20 min"), (360000, "4 days")],
)
def test_durations_are_rounded_for_reading(seconds: float, text: str):
    assert shown_duration(seconds) == text


@pytest.mark.usefixtures("time_of_addis_ababa")
def test_times_are_local_to_the_minute():
    assert shown_time(0) == "1970-01-01 03:00"
    assert shown_time(1_769_839_559.9) == "2026-01-31 09:05"  # at 06:05:59 UTC


def test_sizes_are_in_decimal_units_and_memory_in_binary_ones():
    assert shown_size(1) == "1 byte"
    assert shown_size(12) == "12 bytes"
    assert shown_size(3_517_000_000) == "3.52 GB"
    assert shown_size(98_320_000) == "98.3 MB"
    assert shown_size(300_000_000) == "300 MB"
    assert shown_gib(22 * 2**30) == "22.0"
