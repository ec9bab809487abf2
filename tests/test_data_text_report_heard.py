"""Tests of texts with two right readings: what a recognizer hears decides; speech of espeak-ng."""

from pathlib import Path

import pytest
import soundfile

from indextts.commands.data import CheckData
from indextts.data.check import check
from indextts.data.manifest import Utterance, write_utterances
from indextts.data.text_report import read_text_report
from indextts.text.ambiguity import find_ambiguities
from tests.recognizers import write_recognizer
from tests.spoken_languages import spoken

TEXTS = ("በ1985 ዓ.ም ተወለደ።", "ከ1974 ዓ.ም ጀምሮ ሠራ።", "በ1966 ዓ.ም መጣ።")


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each text twice: spoken as the options read it, and in the other way."""
    folder = tmp_path_factory.mktemp("years")
    utterances = []
    for number, text in enumerate(TEXTS):
        [found] = find_ambiguities(text)
        for name, words in (("chosen", found.chosen), ("other", found.other)):
            samples, rate_hz = spoken(words.strip("."), "am+m1", 45, 160)
            path = folder / f"{name}_{number}.wav"
            soundfile.write(path, samples, rate_hz)
            utterances.append(Utterance(path.stem, path, text, "m1", len(samples) / rate_hz))
    write_utterances(folder / "manifest.jsonl", utterances)
    return folder / "manifest.jsonl"


def nearest(manifest: Path, report_dir: Path, asr: Path) -> dict[str, str | None]:
    check(CheckData(train_manifest=manifest, report_dir=report_dir, asr=str(asr), device="cpu"))
    report = read_text_report(report_dir)
    assert report is not None
    [years] = report.ambiguities
    return {clip.id: clip.nearest for clip in years.clips}


@pytest.mark.slow
def test_the_reading_that_was_spoken_is_proposed(manifest: Path, tmp_path: Path, recognizer_folder: Path):
    found = nearest(manifest, tmp_path / "check", recognizer_folder)
    assert found == {id: id.partition("_")[0] for id in found}
    assert len(found) == 2 * len(TEXTS)


def test_a_transcript_far_from_both_readings_decides_nothing(manifest: Path, tmp_path: Path):
    found = nearest(manifest, tmp_path / "check", write_recognizer(tmp_path / "asr", "ላ"))
    assert set(found.values()) == {None}
