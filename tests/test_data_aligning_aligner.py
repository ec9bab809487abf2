"""Tests of importing long recordings with a text: a recognizer of espeak-ng aligns what espeak-ng reads."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.commands.data import ImportDataset
from indextts.data.aligning.aligner import reading_options
from indextts.data.aligning.text_placing import read_sentences
from indextts.data.importing.items import Location, Row
from indextts.data.importing.transcoding import recording_stamp
from indextts.data.manifest import Utterance, read_utterances
from indextts.data.review import read_reviewed
from indextts.errors import UserError
from indextts.text.readings import ReadingRow, write_rows
from tests.conftest import REPOSITORY
from tests.import_sources import manifest_lines, rejected, run_import, snapshot, write_tone
from tests.recognizers import write_whisper
from tests.spoken_languages import spoken

RATE_HZ = 22_050  # of espeak-ng


@dataclass(frozen=True)
class Spoken:
    """A sentence of the recording, in seconds."""

    text: str
    start_s: float
    end_s: float

    def is_in(self, clip: Utterance) -> bool:
        """Return whether most of the sentence is in a clip, whose id has its start in milliseconds."""
        start_s = int(clip.id.rpartition("_")[2]) / 1000
        shared_s = min(start_s + clip.duration_s, self.end_s) - max(start_s, self.start_s)
        return shared_s > 0.5 * (self.end_s - self.start_s)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Spoken]]:
    """A folder with a recording of 24 sentences with soft noise, and the sentences."""
    folder, rng = tmp_path_factory.mktemp("book"), np.random.default_rng(7)
    lines = (REPOSITORY / "demo/sentences.txt").read_text("utf-8").splitlines()
    parts, found = [np.zeros(RATE_HZ // 2, np.float32)], []
    for number in rng.permutation(len(lines))[:24].tolist():
        samples, _ = spoken(lines[number], "am+f2", 50, 130)
        loud = np.flatnonzero(np.abs(samples) > 0.02 * np.abs(samples).max())
        start_s = sum(map(len, parts)) / RATE_HZ
        parts.append(samples[loud[0] : loud[-1] + 1])
        found.append(Spoken(lines[number], start_s, start_s + len(parts[-1]) / RATE_HZ))
        parts.append(np.zeros(round(rng.uniform(0.3, 1.0) * RATE_HZ), np.float32))
    joined = np.concatenate(parts)
    joined += 0.01 * joined.std() * rng.standard_normal(len(joined))
    soundfile.write(folder / "book.wav", 0.5 * joined / np.abs(joined).max(), RATE_HZ)
    return folder, found


@pytest.fixture
def source(book: tuple[Path, list[Spoken]], tmp_path: Path) -> Path:
    return shutil.copytree(book[0], tmp_path / "source")


def write_text(source: Path, lines: list[str]) -> None:
    (source / "book.txt").write_text("\n".join(lines), encoding="utf-8")


def kept_sentences(clips: list[Utterance], sentences: list[Spoken]) -> int:
    """Return how many sentences the clips that are not doubtful have; each has the text that it contains."""
    kept = [
        (clip, [each for each in sentences if each.is_in(clip)]) for clip in clips if not clip.is_doubtful
    ]
    assert [clip.text for clip, _ in kept] == [" ".join(each.text for each in inside) for _, inside in kept]
    return sum(len(inside) for _, inside in kept)


@pytest.mark.slow
@pytest.mark.long
def test_sentences_become_clips_and_planted_faults_doubtful_clips(book, source, tmp_path, recognizer_folder):
    _, sentences = book
    texts = [each.text for each in sentences]
    # two swapped, one missing
    write_text(source, [*texts[:8], texts[9], texts[8], *texts[10:16], *texts[17:]])
    dataset = tmp_path / "dataset"
    run_import(source, dataset, asr=str(recognizer_folder), speaker="reader")
    clips = read_utterances(dataset / "manifest.jsonl")
    num_kept = kept_sentences(clips, sentences)
    assert num_kept >= 0.7 * len(sentences)
    doubtful = [clip for clip in clips if clip.is_doubtful]
    assert any(sentences[8].is_in(clip) or sentences[9].is_in(clip) for clip in doubtful)
    assert any(sentences[16].is_in(clip) for clip in doubtful)
    for clip in clips:
        assert (clip.provenance.kind, clip.recording) == ("aligned", "book")
        assert bool(clip.provenance.other) == clip.is_doubtful
        assert soundfile.info(clip.audio).duration == pytest.approx(clip.duration_s)
    reviewed = [clip.id for _, clip in read_reviewed(dataset / "manifest.jsonl")]
    assert reviewed == [clip.id for clip in clips if not clip.is_doubtful]

    before = snapshot(dataset)
    again = run_import(source, dataset, asr=str(recognizer_folder), speaker="reader")
    assert (again.num_added, again.num_changed) == (0, 0)
    assert snapshot(dataset) == before

    write_text(source, texts)  # the text is corrected
    run_import(source, dataset, asr=str(recognizer_folder), speaker="reader")
    assert kept_sentences(read_utterances(dataset / "manifest.jsonl"), sentences) > num_kept


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
