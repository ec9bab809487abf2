"""Tests of layouts and tables that need more than one import: limits, allowed folders, Kaldi's segments."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.errors import UserError
from indextts.features import decoding
from tests.import_cases import SPEAKERS, TEXTS, imported, rows, tones, write
from tests.import_sources import manifest_lines, rejected, run_import, write_media, write_tone

NAMES = [f"tr_{number}" for number in range(4)]
EXPECTED = list(zip(NAMES, TEXTS, SPEAKERS, strict=False))


def test_a_line_of_200_mb_is_one_rejection_and_takes_little_memory(tmp_path):
    files = tones("wavs/1.wav", "wavs/2.wav") | {"metadata.csv": "1|ሰላም\n9|" + "ሰ" * 100_000}
    with (write(tmp_path / "in", files) / "metadata.csv").open("r+b") as file:
        file.seek(200 * 10**6)  # a sparse file
        file.write("\n2|ደህና\n".encode())
    tracemalloc.start()
    try:
        assert [id for id, _, _ in imported(tmp_path / "in", speaker="s")] == ["1", "2"]
        assert tracemalloc.get_traced_memory()[1] < 60 * 2**20
    finally:
        tracemalloc.stop()
    assert rejected(tmp_path / "out") == [("metadata.csv", 2, "line_too_long")]


def test_recordings_outside_the_allowed_folders_are_not_read(tmp_path):
    lines = [f"{tmp_path}/secret/1.wav|ሰላም", "../secret/1.wav|ሰላም", "2|ሰላም", "3|ሰላም"]
    write(tmp_path, {"secret/1.wav": 0, "in/wavs/2.wav": 0, "in/metadata.csv": lines})
    (tmp_path / "in/wavs/3.wav").symlink_to(tmp_path / "secret/1.wav")
    assert len(imported(tmp_path / "in", speaker="s")) == 4  # without allowed folders, as in the terminal
    run_import(tmp_path / "in", tmp_path / "out2", speaker="s", audio_root=[tmp_path / "in"])
    assert [line["id"] for line in manifest_lines(tmp_path / "out2")] == ["2"]
    assert [row[1:] for row in rejected(tmp_path / "out2")] == [(n, "outside") for n in (1, 2, 4)]


def write_kaldi(folder: Path, paths: list[str]) -> None:
    values = {"wav.scp": paths, "text": TEXTS, "utt2spk": SPEAKERS}
    tables = {name: rows(" ", NAMES, column) for name, column in values.items()}
    write(folder, tones(*(f"wav/{name}.wav" for name in NAMES)) | tables)


def test_a_command_of_wav_scp_is_not_run_and_a_missing_table_named(tmp_path):
    mark = tmp_path / "mark"
    write_kaldi(tmp_path / "in", [f"touch {mark} |", *(f"wav/{name}.wav" for name in NAMES[1:])])
    assert imported(tmp_path / "in") == EXPECTED[1:]
    assert rejected(tmp_path / "out") == [("text", 1, "missing_audio")]
    assert not mark.exists()
    (tmp_path / "in/wav.scp").unlink()
    with pytest.raises(UserError, match=r"Kaldi data folder without wav\.scp; add"):
        imported(tmp_path / "in")


def test_segments_of_kaldi_are_cut_from_their_recordings(tmp_path):
    folder = tmp_path / "in"

    def write_segments(*spans: str) -> None:
        write(folder, {"segments": rows(" talk ", NAMES, spans)})

    write_kaldi(folder, ["unused"] * 4)
    write_tone(folder / "talk.wav", 300, 4)
    write(folder, {"wav.scp": "talk talk.wav"})
    write_segments("0.00 1.00", "1.00 2.50", "3.50 -1", "3.00 5.00")
    assert imported(folder) == EXPECTED[:3]
    assert rejected(tmp_path / "out") == [("text", 4, "bad_time")]
    lines = manifest_lines(tmp_path / "out")
    durations = [soundfile.info(tmp_path / "out" / line["audio"]).duration for line in lines]
    assert durations == pytest.approx([1.0, 1.5, 0.5], abs=0.01)
    write_segments("0.00 0.80", "1.00 2.50", "3.50 3.00", "broken x")
    result = run_import(folder, tmp_path / "out")
    assert (result.num_changed, result.num_unchanged) == (1, 1)
    assert rejected(tmp_path / "out") == [("text", 3, "bad_time"), ("text", 4, "bad_time")]
    [first, *_] = manifest_lines(tmp_path / "out")
    assert soundfile.info(tmp_path / "out" / first["audio"]).duration == pytest.approx(0.8, abs=0.01)


def test_spans_of_one_recording_are_cut_from_one_decoding(tmp_path, monkeypatch):
    folder, decoded = tmp_path / "in", []
    recording = np.arange(4 * 8000, dtype=np.float32) / 40_000  # its value tells the time
    for name in "ab":
        write_media(folder / f"{name}.m4a", recording, 8000, "alac")
    times = [("a", 3.0, 3.5), ("b", 0.5, 1.5), ("a", 1.0, 2.0), ("b", 2.0, 2.5), ("a", 1.5, 2.5)]
    names = [f"u{number}" for number in range(len(times))]
    spans = [f"{name} {audio} {start} {end}" for name, (audio, start, end) in zip(names, times, strict=True)]
    texts, speakers = [f"{name} ሰላም {name}" for name in names], [f"{name} almaz" for name in names]
    write(folder, {"wav.scp": "a a.m4a\nb b.m4a", "segments": spans, "text": texts, "utt2spk": speakers})
    decode = decoding._decode
    monkeypatch.setattr(decoding, "_decode", lambda *paths: decoded.append(paths[0].name) or decode(*paths))
    run_import(folder, tmp_path / "out", num_workers=1)
    assert sorted(decoded) == ["a.m4a", "a.m4a", "b.m4a", "b.m4a"]  # for the length, and for all clips
    lines = {line["id"]: tmp_path / "out" / line["audio"] for line in manifest_lines(tmp_path / "out")}
    for name, (_, start_s, end_s) in zip(names, times, strict=True):
        samples, rate_hz = soundfile.read(lines[name])
        assert len(samples) == (end_s - start_s) * rate_hz
        assert 40_000 * samples[0] == pytest.approx(start_s * rate_hz, abs=2)
