from pathlib import Path

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.data.manifest import Utterance, write_utterances
from indextts.data.review import read_reviewed
from indextts.data.text_report import (
    TEXTS_NAME,
    read_text_report,
    report_texts,
    text_notices,
    use_heard_readings,
)
from tests.test_data_check import checked, write_dataset

TEXTS = ["በBBC ዜና WHO", "የBBC ዜና", "በ1985 ዓ.ም ተወለደ", "በ1974 ዓ.ም WHO"]


def utterance(number: int, text: str, duration_s: float) -> Utterance:
    return Utterance(
        id=f"u{number}", audio=Path("a.wav"), text=text, speaker="s", duration_s=duration_s, language="am"
    )


def utterances(durations: list[float]) -> list[Utterance]:
    return [
        utterance(number, text, duration_s)
        for number, (text, duration_s) in enumerate(zip(TEXTS, durations, strict=True))
    ]


def test_forms_are_sorted_by_the_hours_of_speech_that_they_touch():
    report = report_texts(utterances([1.0, 1.0, 3.0, 9.0]), NormalizerOptions())
    assert [(row.form, row.count, round(3600 * row.hours, 6)) for row in report.leftovers] == [
        ("WHO", 2, 10.0),
        ("BBC", 2, 2.0),
    ]
    assert report.leftovers[0].examples == [TEXTS[0], TEXTS[3]]
    [years] = report.ambiguities
    assert (years.option, years.value, years.count) == ("years", "cardinal", 2)
    assert [(clip.id, clip.words[1]) for clip in years.clips] == [("u2", "በአሥራ"), ("u3", "በአሥራ")]
    assert (report.num_texts, round(3600 * report.hours, 6)) == (4, 14.0)


HEARD = ["", None, "በአስራ ዘጠኝ መቶ ሰማኒያ አምስት ተወለደ", "በአንድ ሺ ዘጠኝ መቶ ሰባ አራት"]


def test_the_reading_nearer_to_what_was_heard_is_counted_and_its_texts_are_corrected(tmp_path: Path):
    options = NormalizerOptions()
    found = utterances([1.0] * 4)
    report = report_texts(found, options, HEARD)
    [years] = report.ambiguities
    assert [clip.nearest for clip in years.clips] == ["other", "chosen"]
    assert years.num_heard == (1, 1)
    assert "heard as cardinal in 1 and as hundreds in 1" in text_notices(report, options)[1]
    manifest = tmp_path / "manifest.jsonl"
    write_utterances(manifest, found)
    assert use_heard_readings(manifest, years) == 1
    texts = [utterance.text for _, utterance in read_reviewed(manifest)]
    assert texts == [*TEXTS[:2], "በአሥራ ዘጠኝ መቶ ሰማንያ አምስት ዓመተ ምሕረት ተወለደ", TEXTS[3]]
    assert use_heard_readings(manifest, years) == 0  # the text changed since the report


def test_a_check_writes_the_report_beside_its_other_files(tmp_path: Path):
    write_dataset(tmp_path, TEXTS)
    assert "BBC (latin, 2)" in str(checked(tmp_path, "check"))
    found = read_text_report(tmp_path / "check")
    assert [row.form for row in found.leftovers] == ["BBC", "WHO"]
    assert found.normalizer == NormalizerOptions().fingerprint
    (tmp_path / "check" / TEXTS_NAME).write_text("{", encoding="utf-8")
    assert read_text_report(tmp_path / "check") is None
