"""Tests of the choice of sentences and prompts in indextts/speech/evaluation/evaluate.py."""

from pathlib import Path

import pytest

from indextts.data.manifest import Utterance, write_utterances
from indextts.errors import UserError
from indextts.speech.evaluation.evaluate import read_held_out


def clip(folder: Path, id: str, speaker: str, duration_s: float = 4.0, text: str | None = None) -> Utterance:
    text = text or f"ቃል {'ሀለመረሰ'[int(id[-1])]}"
    return Utterance(id, folder / f"{id}.wav", text, speaker, duration_s)


def write(folder: Path, *clips: Utterance) -> Path:
    write_utterances(folder / "manifest.jsonl", clips)
    return folder / "manifest.jsonl"


def test_speakers_alternate_and_each_sentence_is_prompted_by_another_clip(tmp_path: Path):
    clips = [clip(tmp_path, f"a{n}", "a") for n in range(3)] + [
        clip(tmp_path, f"b{n}", "b") for n in range(2)
    ]
    found = read_held_out(write(tmp_path, *clips), 4)
    assert [one.utterance.id for one in found] == ["a0", "b0", "a1", "b1"]
    assert found == read_held_out(tmp_path / "manifest.jsonl", 4)
    for one in found:
        assert one.prompt.speaker == one.utterance.speaker
        assert one.prompt.id != one.utterance.id


def test_prompts_last_three_seconds_if_the_speaker_has_such_clips(tmp_path: Path):
    durations = {"a0": 2.0, "a1": 4.0, "a2": 5.0, "a3": 0.5, "a4": 700.0}
    found = read_held_out(write(tmp_path, *(clip(tmp_path, id, "a", s) for id, s in durations.items())), 0)
    assert len(found) == 5
    assert {one.prompt.id for one in found} == {"a1", "a2"}


def test_a_clip_with_the_same_text_is_not_a_prompt(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    same = [clip(tmp_path, f"a{n}", "a", text="ሰላም።" if n else "ሠላም") for n in range(3)]
    other = [clip(tmp_path, f"b{n}", "b") for n in range(2)]
    found = read_held_out(write(tmp_path, *same, *other), 0)
    assert {one.utterance.speaker for one in found} == {"b"}
    assert "3 clips" in caplog.text


def test_a_manifest_without_two_clips_of_a_speaker_is_refused(tmp_path: Path):
    manifest = write(tmp_path, clip(tmp_path, "a0", "a"), clip(tmp_path, "b0", "b"))
    with pytest.raises(UserError, match=f"--manifest {manifest}: "):
        read_held_out(manifest, 0)
