"""Tests of the clean-up of clips by the import, --trim and --loudness, with synthetic speech."""

import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyloudnorm
import pytest
import soundfile

from indextts.data.importing.journal import Journal
from indextts.data.manifest import read_utterances
from indextts.errors import UserError
from indextts.features.audio import load_audio
from indextts.features.vad import SAMPLE_RATE_HZ, WINDOW_S, find_speech
from tests.conftest import REPOSITORY
from tests.import_sources import (
    ids,
    json_lines,
    manifest_lines,
    rejected,
    run_import,
    snapshot,
    write_media,
    write_tone,
)

RATE_HZ = 24_000
PEAK = 10 ** (-1 / 20)
STEP = 1 / 32_768


def speech(number: int) -> np.ndarray:
    return load_audio(REPOSITORY / f"demo/audio/demo_{number:04d}.opus", RATE_HZ)


def padded(samples: np.ndarray, before_s: float, after_s: float) -> np.ndarray:
    """Return speech with soft noise before and after it."""
    noise = 1e-4 * np.random.default_rng(0).standard_normal(round((before_s + after_s) * RATE_HZ))
    before = round(before_s * RATE_HZ)
    return np.concatenate([noise[:before], samples, noise[before:]]).astype(np.float32)


def write_clip(folder: Path, name: str, samples: np.ndarray, **format: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    soundfile.write(folder / name, samples, RATE_HZ, **format)
    (folder / name).with_suffix(".txt").write_text(f"ሰላም {name}", encoding="utf-8")
    return folder / name


def imported(source: Path, output_dir: Path, **flags):
    return run_import(source, output_dir, speaker="s", **flags)


def clips(output_dir: Path) -> dict[str, Path]:
    """Return the file of each utterance by id."""
    return {clip.id: clip.audio for clip in read_utterances(output_dir / "manifest.jsonl")}


def loudness(path: Path) -> float:
    samples, rate_hz = soundfile.read(path)
    return pyloudnorm.Meter(rate_hz).integrated_loudness(samples)


def edges(path: Path) -> tuple[float, float]:
    """Return the seconds before the first and after the last speech of a file."""
    samples = load_audio(path, SAMPLE_RATE_HZ)
    spans = find_speech(samples)
    return spans[0].start_s, len(samples) / SAMPLE_RATE_HZ - spans[-1].end_s


def test_silence_at_the_edges_is_shortened_to_the_margin(tmp_path):
    margin_s = 0.15
    pauses = {1: (1.2, 2.0), 2: (0.0, 1.0), 3: (0.7, 0.0), 4: (3.0, 0.5)}
    for number, (before_s, after_s) in pauses.items():
        write_clip(tmp_path / "in", f"{number}.wav", padded(speech(number), before_s, after_s))
    imported(tmp_path / "in", tmp_path / "out", trim=margin_s)
    for number in pauses:
        original = tmp_path / f"in/{number}.wav"
        whole, _ = soundfile.read(original, dtype="int16")
        kept, _ = soundfile.read(clips(tmp_path / "out")[str(number)], dtype="int16")
        start = whole.tobytes().find(kept.tobytes()) // 2  # the samples are those of the original
        assert start >= 0
        removed_s = start / RATE_HZ, (len(whole) - len(kept) - start) / RATE_HZ
        for edge_s, removed in zip(edges(original), removed_s, strict=True):
            assert removed == pytest.approx(max(0.0, edge_s - margin_s), abs=WINDOW_S)


@pytest.mark.shared
def test_a_word_that_is_too_short_for_a_span_of_speech_is_kept(tmp_path, shared):
    path = shared / "data/amharic_synthetic_speech/wavs/es_m3_154.opus"
    samples = load_audio(path, RATE_HZ)
    assert find_speech(load_audio(path, 16_000))[0].start_s > 0.5  # the word is before it
    write_clip(tmp_path / "in", "a.wav", samples)
    imported(tmp_path / "in", tmp_path / "out", trim=0.1)
    assert soundfile.info(clips(tmp_path / "out")["a"]).duration > len(samples) / RATE_HZ - 0.1


def test_each_clip_gets_the_loudness_unless_its_peak_limits_it(tmp_path, caplog):
    caplog.set_level("INFO")
    for number in range(1, 7):
        write_clip(tmp_path / "in", f"{number}.wav", speech(number) * 10 ** (-3 * number / 20))
    click = speech(7) * 0.05
    click[RATE_HZ] = 0.8
    write_clip(tmp_path / "in", "click.wav", click)
    imported(tmp_path / "in", tmp_path / "out", loudness=-23)
    files = clips(tmp_path / "out")
    for number in range(1, 7):
        assert loudness(files[str(number)]) == pytest.approx(-23, abs=0.5)
    samples, _ = soundfile.read(files["click"])
    assert PEAK - 0.01 < np.abs(samples).max() <= PEAK + STEP
    assert loudness(files["click"]) < -25
    assert "7 clips set to the loudness" in caplog.text
    assert "1 clip limited by their peak" in caplog.text


def test_a_clip_without_speech_or_without_need_stays_as_it_is(tmp_path):
    write_clip(tmp_path / "in", "tight.wav", padded(speech(1), 0, 0)[2400:-2400])
    write_tone(tmp_path / "in/tone.wav", duration_s=2)
    (tmp_path / "in/tone.txt").write_text("ሰላም", encoding="utf-8")
    imported(tmp_path / "in", tmp_path / "out", trim=1.0)
    imported(tmp_path / "in", tmp_path / "out2", trim=0.1, loudness=-20)
    assert clips(tmp_path / "out")["tight"].read_bytes() == (tmp_path / "in/tight.wav").read_bytes()
    assert clips(tmp_path / "out2")["tone"].read_bytes() == (tmp_path / "in/tone.wav").read_bytes()
    assert "original" not in manifest_lines(tmp_path / "out")[0]


@pytest.mark.parametrize(("subtype", "expected"), [("PCM_16", "PCM_16"), ("FLOAT", "PCM_24")])
def test_the_output_is_mono_flac_with_the_rate_and_precision_of_the_original(tmp_path, subtype, expected):
    write_clip(tmp_path / "in", "a.wav", np.stack([speech(1), speech(1)], axis=1), subtype=subtype)
    imported(tmp_path / "in", tmp_path / "out", loudness=-23)
    facts = soundfile.info(clips(tmp_path / "out")["a"])
    assert (facts.format, facts.subtype, facts.samplerate, facts.channels) == ("FLAC", expected, RATE_HZ, 1)


def test_decoded_recordings_are_cleaned_too(tmp_path):
    write_media(tmp_path / "in/a.m4a", padded(speech(1), 1.0, 1.0), RATE_HZ)
    (tmp_path / "in/a.txt").write_text("ሰላም", encoding="utf-8")
    imported(tmp_path / "in", tmp_path / "out", trim=0.1)
    assert max(edges(clips(tmp_path / "out")["a"])) < 0.1 + 2 * WINDOW_S


def test_clips_cut_by_subtitles_are_not_changed(tmp_path, caplog):
    write_clip(tmp_path / "in", "talk.flac", padded(speech(1), 1.0, 1.0)).with_suffix(".txt").unlink()
    end_s = 1 + len(speech(1)) / RATE_HZ
    (tmp_path / "in/talk.srt").write_text(
        f"1\n00:00:01,000 --> 00:00:{end_s:06.3f}\nሰላም ለዓለም\n".replace(".", ","), encoding="utf-8"
    )
    imported(tmp_path / "in", tmp_path / "out")
    imported(tmp_path / "in", tmp_path / "out2", trim=0.05, loudness=-30, link=True)
    assert snapshot(tmp_path / "out/audio").keys() == snapshot(tmp_path / "out2/audio").keys()
    [first], [second] = clips(tmp_path / "out").values(), clips(tmp_path / "out2").values()
    assert first.read_bytes() == second.read_bytes()
    assert "1 long recording cut as usual" in caplog.text


def test_a_recording_that_is_corrupt_inside_is_rejected(tmp_path):
    write_clip(tmp_path / "in", "good.wav", speech(1))
    bad = speech(2)
    bad[1000] = np.nan
    write_clip(tmp_path / "in", "bad.wav", bad, subtype="FLOAT")
    imported(tmp_path / "in", tmp_path / "out", trim=0.1)
    assert list(clips(tmp_path / "out")) == ["good"]
    assert rejected(tmp_path / "out") == [("bad.wav", None, "unreadable_audio")]
    assert len(list((tmp_path / "out/audio").iterdir())) == 1


def test_the_second_import_changes_nothing_and_new_values_start_from_the_original(tmp_path):
    for number in (1, 2):
        write_clip(tmp_path / "in", f"{number}.wav", padded(speech(number), 1.0, 1.0))
    before = snapshot(tmp_path / "in")
    out = tmp_path / "p/out"
    assert imported(tmp_path / "in", out, trim=0.3, loudness=-30).num_added == 2
    stored = snapshot(out)
    assert imported(tmp_path / "in", out, trim=0.3, loudness=-30).num_unchanged == 2
    assert snapshot(out) == stored
    assert imported(tmp_path / "in", out, trim=0.3, loudness=-25).num_changed == 2
    assert imported(tmp_path / "in", out, trim=0.1, loudness=-25).num_changed == 2
    imported(tmp_path / "in", tmp_path / "fresh", trim=0.1, loudness=-25)
    for id, path in clips(tmp_path / "fresh").items():
        assert clips(out)[id].read_bytes() == path.read_bytes()
    assert imported(tmp_path / "in", out).num_changed == 2
    assert sorted(path.name for path in (out / "audio").iterdir()) == ["1.wav", "2.wav"]
    assert (out / "audio/1.wav").read_bytes() == (tmp_path / "in/1.wav").read_bytes()
    assert snapshot(tmp_path / "in") == before


def test_the_original_is_recorded_with_its_digest(tmp_path):
    path = write_clip(tmp_path / "in", "a.wav", padded(speech(1), 1.0, 1.0))
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.write(path, "clips/b.wav")
        archive.writestr("clips/b.txt", "ሰላም")
    write_clip(tmp_path / "p/uploads/files", "c.wav", padded(speech(2), 1.0, 1.0))
    out, sources = tmp_path / "p/out", [tmp_path / name for name in ("in", "b.zip", "p/uploads/files")]
    run_import(sources, out, speaker="s", trim=0.1)
    originals = [line["original"] for line in manifest_lines(out)]
    assert originals == [str(path), f"{tmp_path}/b.zip/clips/b.wav", "uploads/files/c.wav"]
    entries = json_lines(out / "imported.jsonl")
    assert [entry["clips"][0]["original"] for entry in entries] == originals
    imported(tmp_path / "in", tmp_path / "plain")
    [plain] = json_lines(tmp_path / "plain/imported.jsonl")
    assert entries[0]["sha256"] == plain["sha256"]
    assert read_utterances(out / "manifest.jsonl")[0].original == str(path)


# --link


def write_folder(folder: Path, numbers: range) -> Path:
    for number in numbers:
        write_tone(folder / f"{number}.wav", 200 + number)
        (folder / f"{number}.txt").write_text(f"ሰላም {number}", encoding="utf-8")
    return folder


def test_linked_recordings_stay_in_their_place(tmp_path, caplog):
    caplog.set_level("INFO")
    source = write_folder(tmp_path / "in", range(3))
    write_media(source / "3.m4a", speech(1), RATE_HZ)
    (source / "3.txt").write_text("ሰላም", encoding="utf-8")
    out = tmp_path / "p/out"
    result = imported(source, out, link=True)
    assert (result.num_utterances, result.num_added) == (4, 4)
    lines = manifest_lines(out)
    assert [line["audio"] for line in lines] == [*(f"{source}/{n}.wav" for n in range(3)), "audio/3.flac"]
    assert [path.name for path in (out / "audio").iterdir()] == ["3.flac"]
    assert "3 clips linked" in caplog.text
    assert "1 clip written" in caplog.text
    before = snapshot(out)
    assert imported(source, out, link=True).num_unchanged == 4
    assert snapshot(out) == before
    shutil.move(tmp_path / "p", tmp_path / "moved")
    assert all(path.is_file() for path in clips(tmp_path / "moved/out").values())


def test_originals_are_never_removed(tmp_path):
    source = write_folder(tmp_path / "in", range(3))
    other = write_folder(tmp_path / "other", range(1))  # the same recording under the same name
    before = snapshot(source)
    out = tmp_path / "out"
    run_import([source, other], out, speaker="s", link=True)
    for number in range(2):
        (source / f"{number}.txt").unlink()
    result = imported(source, out, link=True, prune=True)
    assert (result.num_utterances, result.num_pruned) == (1, 2)
    assert imported(source, out).num_changed == 1  # a copy
    assert (out / "audio/2.wav").read_bytes() == (source / "2.wav").read_bytes()
    assert imported(source, out, link=True).num_changed == 1  # a link again
    assert not list((out / "audio").iterdir())
    shutil.rmtree(out)
    assert snapshot(source).items() >= {(f"{number}.wav", before[f"{number}.wav"]) for number in range(3)}


def test_a_changed_or_lost_original_is_noticed_by_the_next_import(tmp_path, caplog):
    source, out = write_folder(tmp_path / "in", range(4)), tmp_path / "out"
    imported(source, out, link=True)
    write_tone(source / "0.wav", 500, 0.9)
    (source / "1.wav").unlink()
    (source / "2.wav").write_bytes(b"RIFF no audio")
    result = imported(source, out, link=True)
    assert (result.num_utterances, result.num_changed, result.num_unchanged) == (2, 1, 1)
    assert [(line["id"], line["duration"]) for line in manifest_lines(out)] == [("0", 0.9), ("3", 0.5)]
    assert sorted(rejected(out)) == [("1.txt", None, "no_audio"), ("2.wav", None, "unreadable_audio")]
    assert "2 linked recordings" in caplog.text
    write_folder(source, range(4))
    imported(source, out, link=True)
    assert ids(out) == ["0", "1", "2", "3"]


def test_a_killed_import_does_not_bring_lost_originals_back(tmp_path, monkeypatch):
    source, out = write_folder(tmp_path / "e", range(2)), tmp_path / "out"
    imported(source, out, link=True)
    copy = source.rename(tmp_path / "e2")
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", sys.exit)
        with pytest.raises(SystemExit):
            imported(copy, out, link=True)
    result = imported(copy, out, link=True)
    assert (result.num_utterances, result.num_unchanged) == (2, 2)
    assert clips(out) == {"0": copy / "0.wav", "1": copy / "1.wav"}


def test_a_symlink_is_linked_as_the_file_that_it_leads_to_and_a_cleaned_clip_is_written(tmp_path):
    real = write_tone(tmp_path / "real/x.wav")
    source = write_folder(tmp_path / "in", range(1))
    (source / "0.wav").unlink()
    (source / "0.wav").symlink_to(real)
    write_clip(source, "a.wav", padded(speech(1), 1.0, 1.0))
    before = snapshot(source)
    imported(source, tmp_path / "out", link=True, trim=0.1)
    assert clips(tmp_path / "out") == {"0": real, "a": tmp_path / "out/audio/a.flac"}
    assert snapshot(source) == before


def test_an_archive_cannot_be_linked(tmp_path):
    shutil.make_archive(str(tmp_path / "a"), "zip", write_folder(tmp_path / "in", range(1)))
    with pytest.raises(UserError, match=r"a\.zip: .*--link"):
        imported(tmp_path / "a.zip", tmp_path / "out", link=True)
    assert not (tmp_path / "out/manifest.jsonl").exists()
