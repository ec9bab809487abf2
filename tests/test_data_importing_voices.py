"""Tests of indextts/data/importing/voices.py: speakers by voice.

Most of them import two tones, with an encoder that returns their amplitudes: a voice is an angle. The last
ones take published networks, and synthetic speech with a trained encoder.
"""

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray

from indextts.commands.data import ImportDataset
from indextts.data import speaker_vectors
from indextts.data.importing.importer import ImportResult, import_dataset
from indextts.data.importing.journal import Clip, Entry, Journal
from indextts.data.importing.voices import VoicesRecord, group_voices, read_rows, rename_voice
from indextts.errors import UserError
from indextts.features.audio import load_audio
from indextts.features.campplus import CAMPPlus, CAMPPlusConfig
from tests.import_sources import json_lines, manifest_lines, rejected, run_import, snapshot
from tests.published_files import randomise
from tools.import_dataset import main

THRESHOLD = 0.1  # of the angles below: 1 - cos(25 degrees)


class AngleEncoder:
    """Encoder whose vector is the amplitude below and above 500 Hz; it fails after `most` clips."""

    def __init__(self, most: int = 1000) -> None:
        self.num_encoded, self.most = 0, most

    def __call__(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.num_encoded == self.most:
            raise KeyboardInterrupt
        self.num_encoded += 1
        magnitudes = np.abs(np.fft.rfft(samples))
        split = round(500 * len(samples) / 16_000)
        amplitudes = np.array([np.linalg.norm(magnitudes[:split]), np.linalg.norm(magnitudes[split:])])
        return (amplitudes / np.linalg.norm(amplitudes)).astype(np.float32)


def write_voice(folder: Path, name: str, degrees: float, duration_s: float = 2.0) -> Path:
    """Write a clip of a voice and its text; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    times = np.arange(round(duration_s * 16_000)) / 16_000
    low, high = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    samples = 0.2 * (low * np.sin(2 * np.pi * 250 * times) + high * np.sin(2 * np.pi * 1000 * times))
    soundfile.write(folder / f"{name}.wav", samples, 16_000)
    (folder / f"{name}.txt").write_text(f"ሰላም {name}", encoding="utf-8")
    return folder


def import_voices(
    source: Path, output_dir: Path, encoder: Callable[..., Any] | None = None, **flags: Any
) -> ImportResult:
    """Import with an encoder; its weights are a file beside the output folder."""
    weights = output_dir.parent / "encoder.bin"
    if not weights.exists():
        weights.write_bytes(b"weights")
    flags = {"speaker_from": "voices", "voice_encoder": weights, "num_workers": 1, **flags}
    command = ImportDataset(source=[source], output_dir=output_dir, **flags)
    return import_dataset(command, lambda _path: encoder or AngleEncoder())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three clips of one voice, two of another and one of a third."""
    for name, degrees in {"a1": 0, "b1": 45, "a2": 3, "c1": 90, "a3": 6, "b2": 47}.items():
        write_voice(tmp_path / "in", name, degrees)
    return tmp_path / "in"


@pytest.fixture
def out(tmp_path: Path, source: Path) -> Path:
    """A dataset with the groups of the source."""
    import_voices(source, tmp_path / "out", voice_threshold=THRESHOLD)
    return tmp_path / "out"


def speakers(output_dir: Path) -> dict[str, str]:
    return {line["id"]: line["speaker"] for line in manifest_lines(output_dir)}


def rename(output_dir: Path, names: dict[str, str]) -> None:
    """Edit voices.json as a user does."""
    path = output_dir / "voices.json"
    content = json.loads(path.read_text())
    content["names"] |= names
    path.write_text(json.dumps(content))


THREE_VOICES = {
    **dict.fromkeys(("a1", "a2", "a3"), "voice_001"),
    **dict.fromkeys(("b1", "b2"), "voice_002"),
    "c1": "voice_003",
}


def test_clips_are_grouped_by_voice_once_and_named_by_size(tmp_path, source):
    out = tmp_path / "out"
    result = import_voices(source, out, voice_threshold=THRESHOLD)
    assert speakers(out) == THREE_VOICES
    assert (result.num_utterances, result.num_speakers, result.num_added) == (6, 3, 6)
    before = snapshot(out)
    result = import_voices(source, out, AngleEncoder(most=0))
    assert snapshot(out) == before
    assert (result.num_added, result.num_changed, result.num_unchanged) == (0, 0, 6)
    # the stored answer is enough
    run_import(source, out, voice_encoder=tmp_path / "encoder.bin")
    assert snapshot(out) == before
    for recording in source.glob("*.wav"):
        os.utime(recording, (1, 1))
    assert import_voices(source, out, AngleEncoder(most=0)).num_unchanged == 6
    (tmp_path / "encoder.bin").write_bytes(b"other weights")
    import_voices(source, out, encoder := AngleEncoder())
    assert encoder.num_encoded == 6
    assert speakers(out) == THREE_VOICES


def test_new_clips_join_the_groups_or_found_one_and_the_names_stay(tmp_path, source, out):
    for number in range(4):
        write_voice(source, f"c{number + 2}", 88 + number / 2)
    write_voice(tmp_path / "more", "a0", 1)
    write_voice(tmp_path / "more", "e0", 67)
    encoder = AngleEncoder()
    import_voices(source, out, encoder)
    import_voices(tmp_path / "more", out, encoder)
    assert encoder.num_encoded == 6
    c = {f"c{number}": "voice_003" for number in range(1, 6)}
    assert speakers(out) == {**THREE_VOICES, **c, "a0": "voice_001", "e0": "voice_002"}
    write_voice(tmp_path / "more", "d0", 68, duration_s=1.9)
    import_voices(tmp_path / "more", out, encoder, voice_threshold=0.05)
    found = speakers(out)
    assert found.pop("e0") == found.pop("d0") == "voice_004"
    assert found == {**THREE_VOICES, **c, "a0": "voice_001"}


def test_groups_can_be_renamed_and_merged(tmp_path, source, out):
    rename(out, {"voice_001": "almaz", "voice_003": "voice_001"})
    write_voice(source, "c2", 90)
    other = write_voice(tmp_path / "other", "x", 45)
    run_import(other, out, speaker="bekele")  # any import applies the names
    wanted = {id: "voice_002" if id[0] == "b" else "almaz" for id in THREE_VOICES}
    assert speakers(out) == {**wanted, "x": "bekele"}
    result = import_voices(source, out)
    assert speakers(out) == {**wanted, "x": "bekele", "c2": "almaz"}
    assert (result.num_added, result.num_changed, result.num_unchanged) == (1, 0, 6)
    rename(out, {"voice_002": "chala"})
    assert import_voices(source, out).num_changed == 2
    names = json.loads((out / "voices.json").read_text())["names"]
    assert names == {"voice_001": "almaz", "voice_002": "chala", "voice_003": "voice_001"}


def test_speakers_cannot_be_chosen_before_the_voices_are_told_apart(tmp_path, source, out):
    before = snapshot(tmp_path)
    for folder, flags in ((out, {}), (tmp_path / "new", {"speaker_from": "voices"})):
        with pytest.raises(UserError, match="--speakers voice_001: --speaker-from voices"):
            run_import(source, folder, speakers=["voice_001"], **flags)
    assert snapshot(tmp_path) == before


def test_a_name_given_while_the_import_writes_is_applied_by_the_next(source, out, monkeypatch):
    write_voice(source, "d1", 67)
    monkeypatch.setattr(os, "sync", lambda: rename_voice(out, "voice_003", "chala"))
    import_voices(source, out)
    names = json.loads((out / "voices.json").read_text())["names"]
    assert names["voice_003"] == "chala"
    assert set(names) == {*THREE_VOICES.values(), *speakers(out).values()}
    import_voices(source, out, AngleEncoder(most=0))
    assert speakers(out)["c1"] == "chala"


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ('{"names": {"voice_001": "voice_002", "voice_002": "voice_001"}}', "voice_001 -> voice_002"),
        ('{"names": {"voice_001": 7}}', "names.voice_001"),
        ('{"names": {"voice_001": "a\\nb"}}', "names.voice_001"),
        ('{"names": ', "voices.json"),
    ],
)
def test_wrong_names_are_refused_before_anything_is_imported(tmp_path, source, content, shown):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/voices.json").write_text(content)
    with pytest.raises(UserError) as caught:
        import_voices(source, tmp_path / "out")
    assert str(caught.value).startswith(f"{tmp_path / 'out/voices.json'}: ")
    assert shown in str(caught.value)
    assert (tmp_path / "out/voices.json").read_text() == content
    assert not list((tmp_path / "out/audio").iterdir())


def test_another_threshold_groups_again_and_keeps_the_names_of_the_largest_shares(source, out, caplog):
    rename(out, {"voice_001": "almaz"})
    encoder = AngleEncoder(most=0)
    result = import_voices(source, out, encoder, voice_threshold=0.35)
    assert "voices.json" in caplog.text
    two_voices = {id: "voice_003" if id == "c1" else "almaz" for id in THREE_VOICES}
    assert speakers(out) == two_voices
    assert (result.num_changed, result.num_unchanged) == (5, 1)  # of both groups: the first was renamed
    import_voices(source, out, encoder)  # the threshold stays
    assert speakers(out) == two_voices
    import_voices(source, out, encoder, voice_threshold=THRESHOLD)
    assert speakers(out) == {**two_voices, "b1": "voice_004", "b2": "voice_004"}


def test_a_short_clip_joins_the_nearest_group_or_is_rejected(tmp_path):
    source, out = write_voice(tmp_path / "in", "far", 45, duration_s=1.0), tmp_path / "out"
    with pytest.raises(UserError) as caught:  # without any voice nothing is usable
        import_voices(source, out)
    assert caught.value.exit_status == 1
    assert not (out / "manifest.jsonl").exists()
    write_voice(source, "near", 8, duration_s=1.0)
    write_voice(source, "a1", 0)
    write_voice(source, "c1", 90)
    for _ in range(2):
        import_voices(source, out, voice_threshold=THRESHOLD)
        assert speakers(out) == {"a1": "voice_001", "c1": "voice_002", "near": "voice_001"}
        assert rejected(out) == [("far.txt", None, "no_speaker")]
    write_voice(source, "b1", 46)
    import_voices(source, out)
    assert speakers(out)["far"] == speakers(out)["b1"] == "voice_003"
    assert rejected(out) == []


def test_a_killed_import_resumes_and_no_clip_without_a_speaker_is_in_the_manifest(tmp_path, source):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        import_voices(source, out, AngleEncoder(most=4), voice_threshold=THRESHOLD)
    with (out / "voice_vectors.jsonl").open("a") as file:
        file.write('{"clip": "cut o')
    run_import(write_voice(tmp_path / "other", "x", 45), out, speaker="bekele")
    assert speakers(out) == {"x": "bekele"}
    import_voices(source, out, encoder := AngleEncoder(), voice_threshold=THRESHOLD)
    assert encoder.num_encoded == 2
    assert speakers(out) == {**THREE_VOICES, "x": "bekele"}


def test_a_speaker_that_the_user_names_later_replaces_the_voices(source, out):
    run_import(source, out, speaker="almaz")
    assert set(speakers(out).values()) == {"almaz"}
    import_voices(source, out, AngleEncoder(most=0))
    assert speakers(out) == THREE_VOICES


def test_the_table_has_each_group_with_clips_to_listen_to(source, out):
    write_voice(source, "a4", 20, duration_s=4.0)
    import_voices(source, out)
    rename(out, {"voice_001": "almaz"})
    first, second, third = found = read_rows(out)
    assert (first.voice, first.speaker, first.clips) == ("voice_001", "almaz", 4)
    assert first.minutes == pytest.approx(10 / 60, abs=0.05)
    samples = (first.sample_1, first.sample_2, first.sample_3)
    assert samples == ("audio/a3.wav", "audio/a2.wav", "audio/a1.wav")
    assert first.farthest == "audio/a4.wav"
    assert (second.voice, second.closest) == ("voice_002", "voice_001")
    assert (third.voice, third.closest) == ("voice_003", "voice_002")
    assert third.distance == pytest.approx(1 - np.cos(np.radians(44)), abs=0.01)
    assert (third.sample_1, third.sample_2, third.farthest) == ("audio/c1.wav", "", "audio/c1.wav")
    table = out / "voices.csv"
    for content in (b"name,clips\nvoice_001,3\n", b"\xff\xfe\x00"):
        table.write_bytes(content)
        with pytest.raises(UserError, match=r"^/.*voices\.csv: "):
            read_rows(out)
    table.unlink()
    import_voices(source, out)
    assert read_rows(out) == found


def test_an_invalid_name_is_refused(out):
    before = snapshot(out)
    for name in ("  ", "a\nb", "a" * 65):
        with pytest.raises(UserError):
            rename_voice(out, "voice_001", name)
    assert snapshot(out) == before


@pytest.mark.shared
def test_voice_tags_of_subtitles_name_their_speakers(tmp_path, shared):
    clips = sorted((shared / "data/amharic_synthetic_speech/wavs").glob("es_f2_*"))[:3]
    pause = np.zeros(16_000, np.float32)
    samples, cues = [pause], []
    for clip, tag in zip(clips, ("<v Almaz>", "", ""), strict=True):
        start_s = sum(map(len, samples)) / 16_000
        samples += [load_audio(clip, 16_000), pause]
        end_s = sum(map(len, samples)) / 16_000 - 1
        cues.append(f"00:{start_s:06.3f} --> 00:{end_s:06.3f}\n{tag}ሰላም ለሁላችሁ ሰላም ነው")
    (tmp_path / "in").mkdir()
    soundfile.write(tmp_path / "in/talk.wav", np.concatenate(samples), 16_000)
    (tmp_path / "in/talk.vtt").write_text("WEBVTT\n\n" + "\n\n".join(cues) + "\n", encoding="utf-8")
    import_voices(tmp_path / "in", tmp_path / "out", voice_threshold=0.9)
    found = [line["speaker"] for line in manifest_lines(tmp_path / "out")]
    assert found == ["Almaz", "voice_001", "voice_001"]


def test_blocks_give_the_groups_of_all_clips_together(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((12, 64))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    voices = np.arange(300) % 12
    vectors = centres[voices] + 0.05 * rng.standard_normal((300, 64))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    clips = tuple(Clip(str(number), "", "", "", 2.0, "am") for number in range(300))
    journal = Journal(tmp_path, {("s", "k"): Entry("s", "k", (), "", clips)})
    monkeypatch.setattr(speaker_vectors, "BLOCK_SIZE", 40)
    of_clip = {clip.id: vector for clip, vector in zip(clips, vectors, strict=True)}
    group_voices(journal, of_clip, VoicesRecord(), "encoder", 0.6)
    found = np.array([clip.voice for clip in journal.entries["s", "k"].clips])
    assert partition(found) == partition(voices)


def partition(labels: NDArray[Any]) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())}


@pytest.mark.long
def test_the_program_groups_with_the_published_network(tmp_path, source):
    """The weights are random: only the plumbing is tested, a vector and a speaker for each clip."""
    weights = tmp_path / "campplus.bin"
    torch.save(randomise(CAMPPlus(CAMPPlusConfig()), seed=0).state_dict(), weights)
    write_voice(source, "brief", 0, duration_s=0.9)  # too short for the network
    argv = ["--source", str(source), "--output-dir", str(tmp_path / "out"), "--speaker-from", "voices"]
    assert main([*argv, "--voice-encoder", str(weights)]) == 0
    _, *lines = json_lines(tmp_path / "out/voice_vectors.jsonl")
    assert sum(line["result"] is not None for line in lines) == 6
    assert speakers(tmp_path / "out").keys() == THREE_VOICES.keys()
    assert rejected(tmp_path / "out") == [("brief.txt", None, "no_speaker")]
    with (tmp_path / "out/voices.csv").open(newline="") as file:
        assert sum(int(line["clips"]) for line in csv.DictReader(file)) == 6


def test_without_the_weights_the_message_names_the_file_and_the_download(tmp_path, source):
    weights = tmp_path / "checkpoints/campplus/campplus_cn_common.bin"
    with pytest.raises(UserError) as caught:
        run_import(source, tmp_path / "out", speaker_from="voices", voice_encoder=weights)
    assert str(caught.value).startswith(f"{weights}: ")
    download = f"tools/download_checkpoints.py --what speech --output-dir {tmp_path / 'checkpoints'}"
    assert download in str(caught.value)
    assert not list((tmp_path / "out/audio").iterdir())
    assert not (tmp_path / "out/imported.jsonl").exists()
