"""Tests of cleaning the flagged clips of a data set."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.commands.data import CleanAudio
from indextts.data.cleaned import read_cleaned
from indextts.data.manifest import read_utterances
from indextts.data.review import check_folder
from indextts.data.sound_cleaning import clean_audio
from indextts.errors import UserError
from tests.import_sources import run_import
from tests.recognizers import write_recognizer
from tests.spoken_languages import spoken


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A project with speech that hums, speech that hums and is not flagged, and pure noise."""
    source = tmp_path / "source"
    source.mkdir()
    rng = np.random.default_rng(0)
    clean, rate_hz = spoken("እንደምን አደሩ፣ ዛሬ ፀሐይ በጣም ሞቃታማ ናት።", "am+f2")
    clean = 0.3 * clean / np.abs(clean).max()
    noise = rng.standard_normal(len(clean)).astype(np.float32) * clean.std()
    phase = 2 * np.pi * 50 * np.arange(len(clean)) / rate_hz
    hum = 0.5 * clean.std() * np.sum([np.sin(k * phase) for k in range(1, 9)], axis=0)
    clips = {"noisy": clean + hum, "other": clean + 0.5 * hum, "hiss": 0.1 * noise}
    for name, samples in clips.items():
        soundfile.write(source / f"{name}.wav", samples, rate_hz)
        (source / f"{name}.txt").write_text(f"እንደምን አደሩ {name}", encoding="utf-8")
    dataset = tmp_path / "project/dataset"
    run_import(source, dataset, speaker="almaz")
    check = check_folder(dataset / "manifest.jsonl")
    check.mkdir()
    flags = [{"reason": "noisy", "severity": 1, "said": ""}]
    lines = [{"id": name, "flags": [] if name == "other" else flags} for name in clips]
    (check / "clips.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return dataset / "manifest.jsonl"


def test_a_flagged_clip_is_replaced_if_it_sounds_better_and_can_be_restored(manifest):
    before = {utterance.id: utterance for utterance in read_utterances(manifest)}
    content = before["noisy"].audio.read_bytes()
    report = clean_audio(CleanAudio(manifest=manifest))
    assert (report.num_flagged, report.num_used + report.num_kept) == (2, 2)
    after = {utterance.id: utterance for utterance in read_utterances(manifest)}
    assert after["other"] == before["other"]
    cleaned, record = after["noisy"], read_cleaned(manifest)["noisy"]
    assert record["is_used"]
    assert (cleaned.audio.name, cleaned.original) == ("noisy-clean.flac", "dataset/audio/noisy.wav")
    assert record["after"]["bak"] > record["before"]["bak"] + 0.5
    assert before["noisy"].audio.read_bytes() == content
    assert soundfile.info(cleaned.audio).frames == soundfile.info(before["noisy"].audio).frames

    again = clean_audio(CleanAudio(manifest=manifest))
    assert (again.num_known, again.num_used, again.num_kept) == (1, 0, 1)  # the hiss stays
    unchanged = run_import(manifest.parents[2] / "source", manifest.parent, speaker="almaz")
    assert (unchanged.num_added, unchanged.num_changed) == (0, 0)
    assert {utterance.id: utterance for utterance in read_utterances(manifest)} == after

    restored = clean_audio(CleanAudio(manifest=manifest, restore=["noisy", "hiss"]))
    assert restored.num_restored == report.num_used
    assert {utterance.id: utterance for utterance in read_utterances(manifest)} == before
    assert clean_audio(CleanAudio(manifest=manifest)).num_known == 1


def test_a_set_that_was_not_checked_is_refused(manifest):
    (check_folder(manifest) / "clips.jsonl").unlink()
    with pytest.raises(UserError):
        clean_audio(CleanAudio(manifest=manifest))


def test_a_cleaned_clip_is_not_used_if_the_speech_or_the_recognizer_suffers(manifest, monkeypatch, tmp_path):
    monkeypatch.setattr("indextts.data.sound_cleaning.lost_speech", lambda *_: 0.2)
    assert clean_audio(CleanAudio(manifest=manifest)).num_used == 0
    (manifest.parent / "cleaned.jsonl").unlink()
    monkeypatch.undo()
    monkeypatch.setattr("indextts.data.sound_cleaning._errors", lambda *_: (1, 2))
    asr = str(write_recognizer(tmp_path / "asr", "ላ"))
    assert clean_audio(CleanAudio(manifest=manifest, asr=asr, device="cpu")).num_used == 0
