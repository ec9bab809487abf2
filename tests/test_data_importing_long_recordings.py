"""Tests of cutting long recordings: real clips that were joined."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.features.audio import load_audio
from indextts.features.decoding import find_speech_in_file
from indextts.features.vad import find_speech
from tests.import_sources import manifest_lines, rejected, run_import, write_media

RATE = 24_000


def shown(seconds: float) -> str:
    milliseconds = round(1000 * seconds)
    return f"00:{milliseconds // 60_000:02}:{milliseconds // 1000 % 60:02},{milliseconds % 1000:03}"


def join_clips(
    shared: Path, folder: Path, num_clips: int, seed: int, shift_s: float = 0.0
) -> list[tuple[float, float, str]]:
    """Write talk.flac and talk.srt from real clips; the subtitles are off by up to 0.2 s on either side.

    Returns start, end and text of each clip as it really stands in the recording.
    """
    data = shared / "data/amharic_synthetic_speech"
    with (data / "metadata.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="|", quoting=csv.QUOTE_NONE))[:num_clips]
    random = np.random.default_rng(seed)
    parts, blocks, truth = [np.zeros(RATE, np.float32)], [], []
    position = 1.0
    for number, row in enumerate(rows, start=1):
        samples = load_audio(data / row["file"], RATE)
        pause = np.zeros(int(random.uniform(0.3, 1.2) * RATE), np.float32)
        end = position + len(samples) / RATE
        off = shift_s + random.uniform(-0.2, 0.2, 2)
        blocks.append(f"{number}\n{shown(position + off[0])} --> {shown(end + off[1])}\n{row['text']}\n")
        truth.append((position, end, row["text"]))
        parts += [samples, pause]
        position = end + len(pause) / RATE
    recording = np.concatenate(parts)
    noise = random.normal(0, 1e-4, len(recording))
    folder.mkdir()
    soundfile.write(folder / "talk.flac", recording + noise, RATE)
    (folder / "talk.srt").write_text("\n".join(blocks), encoding="utf-8")
    return truth


@pytest.mark.shared
@pytest.mark.parametrize("shift_s", [0.0, pytest.param(1.2, marks=pytest.mark.long)])
def test_each_cut_of_a_long_recording_contains_only_its_clip(tmp_path, shared, shift_s):
    truth = join_clips(shared, tmp_path / "in", 12, seed=3, shift_s=shift_s)
    result = run_import(tmp_path / "in", tmp_path / "out", speaker="almaz")
    assert (result.num_added, rejected(tmp_path / "out")) == (12, [])
    recording, _ = soundfile.read(tmp_path / "in/talk.flac", dtype="float32")
    for line, (start, end, text) in zip(manifest_lines(tmp_path / "out"), truth, strict=True):
        assert (line["text"], line["recording"], line["speaker"]) == (text, "talk", "almaz")
        samples, rate = soundfile.read(tmp_path / "out" / line["audio"], dtype="float32")
        cut_start = int(line["id"].rpartition("_")[2]) / 1000
        cut_end = cut_start + len(samples) / rate
        assert len(samples) / rate == pytest.approx(line["duration"], abs=1e-3)
        first = round(cut_start * RATE)
        np.testing.assert_allclose(samples[50:-50], recording[first:][: len(samples)][50:-50], atol=0.05)
        # the cut contains all audio of its clip and none of its neighbours
        clip = recording[round(start * RATE) : round(end * RATE)]
        loud = np.flatnonzero(np.abs(clip) > 0.02) / RATE + start
        assert cut_start <= loud[0]
        assert loud[-1] <= cut_end
        assert start - 0.2 < cut_start
        assert cut_end < end + 0.2
    assert run_import(tmp_path / "in", tmp_path / "out").num_unchanged == 12
    path = tmp_path / "in/talk.srt"  # changed subtitles cut the recording again
    path.write_text("\n\n".join(path.read_text(encoding="utf-8").split("\n\n")[1:]), encoding="utf-8")
    result = run_import(tmp_path / "in", tmp_path / "out")
    assert (result.num_utterances, result.num_changed) == (11, 11)
    assert len(list((tmp_path / "out/audio").iterdir())) == 11


@pytest.mark.shared
@pytest.mark.long
def test_a_video_with_subtitles_is_cut_and_a_video_without_sound_is_rejected(tmp_path, shared):
    truth = join_clips(shared, tmp_path / "in", 4, seed=5)
    folder = tmp_path / "in"
    talk, rate_hz = soundfile.read(folder / "talk.flac", dtype="float32")
    write_media(folder / "-i talk:1.mp4", talk, rate_hz, video_s=len(talk) / rate_hz)
    write_media(folder / "mute.mp4", None, rate_hz, video_s=5)
    (folder / "talk.srt").rename(folder / "-i talk:1.srt")
    (folder / "talk.flac").unlink()
    shutil.copy(folder / "-i talk:1.srt", folder / "mute.srt")
    shutil.copy(folder / "-i talk:1.srt", folder / "alone.am.srt")
    (folder / "talk2.mp4").write_bytes(b"\0\0\0 ftypisom" + bytes(1000))
    shutil.copy(folder / "-i talk:1.srt", folder / "talk2.srt")
    run_import(folder, tmp_path / "out", speaker="almaz")
    assert [line["text"] for line in manifest_lines(tmp_path / "out")] == [text for _, _, text in truth]
    assert sorted(rejected(tmp_path / "out")) == [
        ("alone.am.srt", None, "no_audio"),
        ("mute.mp4", None, "no_sound"),
        ("talk2.mp4", None, "unreadable_audio"),
    ]


@pytest.mark.shared
@pytest.mark.long
def test_speech_in_a_file_is_that_of_its_samples_across_the_chunks(tmp_path, shared, monkeypatch):
    join_clips(shared, tmp_path / "in", 8, seed=6)
    whole = find_speech(load_audio(tmp_path / "in/talk.flac", 16_000))
    monkeypatch.setattr("indextts.features.decoding._CHUNK_SAMPLES", 512 * 320)  # 10 s
    in_chunks, duration_s = find_speech_in_file(tmp_path / "in/talk.flac")
    assert duration_s == pytest.approx(soundfile.info(tmp_path / "in/talk.flac").duration, abs=0.01)
    assert len(in_chunks) == len(whole)
    for span, expected in zip(in_chunks, whole, strict=True):
        assert (span.start_s, span.end_s) == pytest.approx((expected.start_s, expected.end_s), abs=0.1)
