"""Tests of the comparison of texts with what recognizers hear: speech of espeak-ng with planted faults."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.commands.data import CheckData
from indextts.data.check import check
from indextts.data.manifest import Utterance, read_utterances, write_utterances
from indextts.errors import UserError
from indextts.features.recognizers.ctc import CtcRecognizer
from indextts.features.recognizers.first_transcripts import NUM_FIRST
from tests.espeak_recognizer import TrainRecognizer, sentences_of
from tests.recognizers import write_recognizer, write_whisper
from tests.spoken_languages import spoken

CUT_S = 1.0
NUM_CLIPS = 24
REASONS = {"wrong_text", "unheard_words", "extra_words"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest of clips, the last four of which have a wrong text or a wrong length."""
    folder = tmp_path_factory.mktemp("spoken")
    _, texts = sentences_of(TrainRecognizer(output_dir=folder))
    texts = [f"{first} {second}" for first, second in zip(texts[::2], texts[1::2], strict=True)]
    texts += [f"{first} {second}" for first, second in zip(texts, texts[3:], strict=False)]
    voices = ("m1", "f2", "m3")
    utterances = []
    for number, text in enumerate(texts[:NUM_CLIPS]):
        if number == NUM_CLIPS - 3:
            text += " " + texts[1]  # its end is then too small a part for a wrong text
        samples, rate_hz = spoken(text, f"am+{voices[number % 3]}", 45, 160)
        name = f"clean_{number:02d}"
        if number == NUM_CLIPS - 4:
            name, text = "wrong_text", texts[0]
        elif number == NUM_CLIPS - 3:
            name, samples = "unheard_words", samples[: -int(CUT_S * rate_hz)]
        elif number == NUM_CLIPS - 2:
            name, text = "extra_words", " ".join(text.split()[:-2])
        elif number == NUM_CLIPS - 1:
            name, text = "respelled", text.replace("ሰ", "ሠ").replace("አ", "ዐ").replace(" ", "  ")
        path = folder / f"{name}.wav"
        soundfile.write(path, samples, rate_hz)
        utterances.append(Utterance(name, path, text, voices[number % 3], len(samples) / rate_hz))
    write_utterances(folder / "manifest.jsonl", utterances)
    return folder


def run_check(
    folder: Path, report_dir: Path, asr: Path, readings: Path | None = None
) -> tuple[list[str], dict[str, dict]]:
    """Return the facts of the report, and the records of clips.jsonl by id."""
    command = CheckData(
        train_manifest=folder / "manifest.jsonl",
        report_dir=report_dir,
        asr=str(asr),
        device="cpu",
        quality="fast",
        readings=readings,
    )
    [report] = check(command)
    lines = (report_dir / "clips.jsonl").read_text("utf-8").splitlines()
    return report.facts, {record["id"]: record for record in map(json.loads, lines)}


def write_noise(folder: Path, texts: dict[str, str]) -> None:
    """Write a second of noise, and a manifest in which it has each of the texts."""
    samples = np.random.default_rng(0).standard_normal(24_000) * 0.1
    soundfile.write(folder / "noise.wav", samples, 24_000)
    write_utterances(
        folder / "manifest.jsonl",
        [Utterance(name, folder / "noise.wav", text, "almaz", 1.0) for name, text in texts.items()],
    )


@pytest.mark.long
@pytest.mark.slow
def test_texts_that_do_not_belong_to_the_sound_are_rejected(folder: Path, tmp_path, recognizer_folder: Path):
    facts, records = run_check(folder, tmp_path, recognizer_folder)
    found = {id: {flag["reason"] for flag in record["flags"]} & REASONS for id, record in records.items()}
    planted = ("wrong_text", "unheard_words", "extra_words")
    assert {id: reasons for id, reasons in found.items() if reasons} == {name: {name} for name in planted}
    assert all(records[name]["verdict"] == "rejected" for name in REASONS)
    assert records["clean_00"]["heard"]
    [flag] = [flag for flag in records["wrong_text"]["flags"] if flag["reason"] == "wrong_text"]
    assert records["wrong_text"]["heard"][:100] in flag["said"]
    [limits] = [fact for fact in facts if "deviations from the median" in fact]
    assert "nats per letter" in limits


def test_copies_with_other_texts_are_transcribed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    transcribed: list[int] = []
    of_batch = CtcRecognizer._of_batch
    monkeypatch.setattr(
        CtcRecognizer,
        "_of_batch",
        lambda self, clips: transcribed.extend(map(len, clips)) or of_batch(self, clips),
    )
    write_noise(tmp_path, {"first": "ላላ", "second": "ሰላም"})
    asr = write_recognizer(tmp_path / "asr", "ላ")
    _, expected = run_check(tmp_path, tmp_path / "check", asr)
    aligned = {name: record["measures"].get("alignment") is not None for name, record in expected.items()}
    assert aligned == {"first": True, "second": False}
    assert run_check(tmp_path, tmp_path / "check", asr)[1] == expected
    assert len(transcribed) == 1


@pytest.mark.long
def test_a_recognizer_that_hears_nothing_is_stopped_and_rejects_nothing(folder: Path, tmp_path: Path):
    for asr in (write_whisper(tmp_path / "asr"), write_recognizer(tmp_path / "ctc", "ላ")):
        with pytest.raises(UserError, match=rf"--asr {asr.name}: .*Amharic"):
            run_check(folder, tmp_path / "check", asr)
        stored = (tmp_path / "check/measured/heard.jsonl").read_text("utf-8")
        assert len(stored.splitlines()) == 1 + NUM_FIRST


def test_a_recognizer_that_cannot_be_loaded_is_refused_before_the_recordings_are_read(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("indextts.data.check.measure_clips", None)
    with pytest.raises(UserError, match=r"--asr .*absent"):
        run_check(folder, tmp_path, tmp_path / "absent")


def test_an_unreadable_recording_is_not_transcribed(tmp_path: Path):
    write_noise(tmp_path, {"noise": "ሰላም"})
    (tmp_path / "broken.wav").write_bytes(b"RIFF")
    [noise] = read_utterances(tmp_path / "manifest.jsonl")
    broken = replace(noise, id="broken", audio=tmp_path / "broken.wav")
    write_utterances(tmp_path / "manifest.jsonl", [broken, noise])
    _, records = run_check(tmp_path, tmp_path / "check", write_recognizer(tmp_path / "asr", "ላ"))
    assert [records[name]["heard"] for name in ("broken", "noise")] == [None, "ላ"]
    assert records["noise"]["measures"]["error_percent"] == pytest.approx(100 * 2 / 3, abs=0.01)


def test_the_texts_are_compared_as_the_readings_say_them(tmp_path: Path):
    write_noise(tmp_path, {"noise": "BBC"})
    readings = tmp_path / "readings.tsv"
    readings.write_text("written\tspoken\tmatch\nBBC\tላ\tword\n", "utf-8")
    run_check(tmp_path, tmp_path / "check", write_recognizer(tmp_path / "asr", "ላ"), readings)
    _, line = (tmp_path / "check/measured/heard.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["result"]["text"] == "ላ"
