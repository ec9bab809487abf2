"""Tests of importing long recordings with a text: a recognizer of espeak-ng aligns what espeak-ng reads."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.commands.data import ImportDataset
from indextts.data.importing.aligning import reading_options
from indextts.data.importing.items import Location, Row
from indextts.data.importing.text_placing import read_sentences
from indextts.data.importing.transcoding import recording_stamp
from indextts.data.manifest import read_utterances
from indextts.data.review import read_reviewed
from indextts.errors import UserError
from indextts.text.readings import ReadingRow, write_rows
from tests.aligned_text import RATE_HZ, Spoken, judge, plant_faults, record
from tests.import_sources import manifest_lines, rejected, run_import, snapshot, write_tone
from tests.recognizers import write_whisper


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Spoken]]:
    """A folder with a recording of 24 sentences, and the sentences."""
    folder = tmp_path_factory.mktemp("book")
    sentences, samples = record(minutes=1.2)
    soundfile.write(folder / "book.wav", samples, RATE_HZ)
    return folder, sentences


@pytest.fixture
def source(book: tuple[Path, list[Spoken]], tmp_path: Path) -> Path:
    return shutil.copytree(book[0], tmp_path / "source")


def write_text(source: Path, lines: list[str]) -> None:
    (source / "book.txt").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.long
def test_sentences_become_clips_and_planted_faults_doubtful_clips(book, source, tmp_path, recognizer_folder):
    _, sentences = book
    planted = plant_faults(sentences, places=1, missing=1)
    write_text(source, planted.lines)
    dataset = tmp_path / "dataset"
    run_import(source, dataset, asr=str(recognizer_folder), speaker="reader")

    found = judge(sentences, planted, dataset)
    assert (found.num_wrong, found.places_found, found.missing_found) == (0, 1, 1)
    assert found.num_kept_sentences >= 0.7 * len(sentences)
    assert np.quantile(found.errors_s, 0.95) < 0.2
    for utterance in read_utterances(dataset / "manifest.jsonl"):
        assert utterance.provenance is not None
        assert (utterance.provenance.kind, utterance.recording) == ("aligned", "book")
        assert bool(utterance.provenance.other) == utterance.is_doubtful
        assert soundfile.info(utterance.audio).duration == pytest.approx(utterance.duration_s)
    kept = [utterance.id for _, utterance in read_reviewed(dataset / "manifest.jsonl")]
    assert len(kept) == found.num_kept

    before = snapshot(dataset)
    again = run_import(source, dataset, asr=str(recognizer_folder), speaker="reader")
    assert (again.num_added, again.num_changed) == (0, 0)
    assert snapshot(dataset) == before

    write_text(source, [each.text for each in sentences])  # the text is corrected
    run_import(source, dataset, asr=str(recognizer_folder), speaker="reader")
    corrected = judge(sentences, plant_faults(sentences, places=0, missing=0), dataset)
    assert corrected.num_kept_sentences > found.num_kept_sentences


@pytest.mark.slow
@pytest.mark.long
def test_the_text_of_another_recording_is_rejected(source, tmp_path, recognizer_folder):
    write_text(source, ["በዓለም ላይ ያሉ ቋንቋዎች ብዙ ናቸው።", "ኮምፒውተር ፈጣን ስሌት ያካሂዳል።", "ጠፈርተኞች ወደ ጨረቃ ተጓዙ።"] * 8)
    with pytest.raises(UserError, match="book"):
        run_import(source, tmp_path / "dataset", asr=str(recognizer_folder), speaker="reader")
    assert rejected(tmp_path / "dataset") == [("book.txt", None, "not_heard")]


def test_readings_of_the_text_decide_what_is_aligned_and_when_again(tmp_path):
    text, table, audio = tmp_path / "a.txt", tmp_path / "readings.tsv", write_tone(tmp_path / "a.wav")
    text.write_text("ዶ/ር አበበ UN ሄዱ።", encoding="utf-8")
    found = Row(Location(audio), audio=audio, text_file=text, language="am")

    def import_with(*rows: tuple[str, str]) -> ImportDataset:
        write_rows(table, [ReadingRow(written, spoken, "word", "") for written, spoken in rows])
        return ImportDataset(output_dir=tmp_path, asr="no/such-recognizer", readings=table)

    before = recording_stamp(found, import_with())
    assert recording_stamp(found, import_with(("BBC", "ቢቢሲ"))) == before  # not in the text
    command = import_with(("UN", "ተመድ"))
    assert recording_stamp(found, command) != before
    [sentence], _ = read_sentences(text, reading_options(command, "am"))
    assert "ተመድ" in sentence.letters


def test_short_clips_are_imported_as_without_a_recognizer(source, tmp_path):
    (source / "book.wav").unlink()
    soundfile.write(source / "book.wav", np.full(RATE_HZ * 2, 0.1), RATE_HZ)
    write_text(source, ["ሰላም ነው።"])
    run_import(source, tmp_path / "dataset", asr="no/such-recognizer", speaker="reader")
    [line] = manifest_lines(tmp_path / "dataset")
    assert (line["text"], line.get("provenance")) == ("ሰላም ነው።", None)


def test_a_text_that_is_too_long_for_a_clip_needs_a_recognizer(source, tmp_path):
    write_text(source, ["ልጁ ወደ ቤት ሄደ።"] * 2000)
    with pytest.raises(UserError):
        run_import(source, tmp_path / "dataset", speaker="reader")
    assert rejected(tmp_path / "dataset") == [("book.txt", None, "line_too_long")]


def test_a_model_without_times_is_refused(source, tmp_path):
    write_text(source, ["ልጁ ወደ ቤት ሄደ።"])
    with pytest.raises(UserError, match="whisper"):
        run_import(
            source, tmp_path / "dataset", asr=str(write_whisper(tmp_path / "whisper")), speaker="reader"
        )
