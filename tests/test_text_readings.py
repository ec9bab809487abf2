from pathlib import Path

import pytest
from pydantic import ValidationError

from indextts.commands.data import NormalizeText
from indextts.commands.normalizer_options import NormalizerOptions, Reading, RuleName
from indextts.commands.terminal import parse
from indextts.errors import UserError
from indextts.text.normalize import RULES, explain, normalize, reads_alike
from indextts.text.readings import ReadingRow, options_of, read_rows, readings_for, used_readings, write_rows

HEADER = "written\tspoken\tmatch\tlanguage\n"


def test_a_reading_comes_before_the_rules_and_is_listed():
    options = NormalizerOptions(readings=[("ት/ቤት", "የተማሪ 2 ቤት", "word")])
    assert normalize("ት/ቤት", options) == "የተማሪ ሁለት ቤት"
    assert next((each.rule, each.before) for each in explain("ት/ቤት", options)) == ("readings", "ት/ቤት")
    assert used_readings("ት/ቤት በላ", options.readings) == [Reading("ት/ቤት", "የተማሪ 2 ቤት", "word")]


def test_a_rule_that_is_switched_off_changes_nothing():
    off = NormalizerOptions(rules_off=["percent", "abbreviations"])
    assert normalize("5% ት/ቤት", off) == "አምስት ፐርሰንት ት ቤት"  # the sign alone
    assert normalize("5% ት/ቤት") == "አምስት በመቶ ትምህርት ቤት"
    assert set(RuleName.__args__) <= {rule.name for rule in RULES}  # type: ignore[attr-defined]
    with pytest.raises(ValidationError):
        NormalizerOptions(rules_off=["upper case"])


def test_the_order_of_rows_changes_neither_record_nor_fingerprint():
    rows = [Reading("ላም", "በሬ", "word"), Reading("BBC", "ቢቢሲ", "word")]
    one, other = NormalizerOptions(readings=rows), NormalizerOptions(readings=rows[::-1])
    assert (one, one.record, one.fingerprint) == (other, other.record, other.fingerprint)
    assert "readings" not in NormalizerOptions().record


def test_texts_are_compared_by_their_readings():
    old = NormalizerOptions(readings=[("ላም", "በሬ", "word")])
    new = NormalizerOptions(readings=[("ላም", "ፍየል", "word"), ("5", "አምስት", "word")])
    assert not reads_alike("ላም", old, new)
    assert reads_alike("በላም", old, new)
    assert reads_alike("5", old, new)  # the rules read it in the same way
    assert not reads_alike("5%", NormalizerOptions(), NormalizerOptions(percent="ከመቶ"))


def test_a_table_is_read_back_as_it_was_written(tmp_path: Path):
    rows = [ReadingRow("ክፍል #", "ክፍል ቁጥር #", "number", "am"), ReadingRow("BBC", "ቢቢሲ", "word")]
    path = tmp_path / "readings.tsv"
    write_rows(path, rows)
    assert read_rows(path) == rows
    content = 'written\t"spoken"\tmatch\r\n\r\nBBC\t ቢ  ቢሲ \tword\r\n"a ""b"""\t""\t"word"\r\n'
    path.write_text(content, encoding="utf-8-sig")
    assert read_rows(path) == [ReadingRow("BBC", "ቢ ቢሲ", "word"), ReadingRow('a "b"', "", "word")]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("", ":1: "),
        ("ላም\tበሬ\tword\n", ":1: .*ላም"),
        (f"{HEADER}ላም\tበሬ\n", ":2: .*2 columns"),
        (f"{HEADER}\tበሬ\tword\n", ":2: .*written"),
        (f"{HEADER}ላም #\t\tnumber\n", ":2: .*spoken"),
        (f"{HEADER}{'ላም' * 101}\tበሬ\tword\n", ":2: .*202"),
        (f"{HEADER}ላም\tበሬ\twhole\n", ":2: .*'whole'"),
        (f"{HEADER}ላም\tበሬ\tnumber\n", ":2: .*'ላም'"),
        (f"{HEADER}ላም\tበሬ\tword\tklingonish\n", ":2: .*'klingonish'"),
        (f"{HEADER}ላም\tበሬ\tword\n\nላም\tፍየል\tword\n", ":4: .*line 2"),
    ],
)
def test_an_error_in_a_table_is_named_with_its_line(tmp_path: Path, content, place):
    path = tmp_path / "readings.tsv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=f"readings.tsv{place}"):
        read_rows(path)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_table_that_cannot_be_read_is_named(tmp_path: Path, content):
    path = tmp_path / "readings.tsv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"readings\.tsv"):
        read_rows(path)


def test_only_the_rows_of_a_language_count_and_its_own_precede_those_of_all(tmp_path: Path):
    rows = [
        ReadingRow("BBC", "ቢቢሲ", "word", "am"),
        ReadingRow("BBC", "bibisi", "word"),
        ReadingRow("UN", "umoja", "word", "sw"),
    ]
    assert readings_for(rows, "amh") == (Reading("BBC", "ቢቢሲ", "word"),)
    assert {reading.spoken for reading in readings_for(rows, "sw")} == {"bibisi", "umoja"}
    path = tmp_path / "readings.tsv"
    write_rows(path, rows)
    flags = parse(NormalizeText, [f"--readings={path}", "--rules-off=dates", "--rules-off=addresses"])
    assert options_of(flags) == NormalizerOptions(
        readings=readings_for(rows, "am"), rules_off=["addresses", "dates"]
    )
