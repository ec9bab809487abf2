"""Tests of recordings with several channels, and with an offset, on their way into a project."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.features.audio import load_audio, mixing_weights
from indextts.features.decoding import DIFFERENCE, ONE_CHANNEL
from tests import import_cases
from tests.conftest import REPOSITORY
from tests.import_sources import manifest_lines, rejected, run_import, write_media

RATE_HZ = 24_000


def speech(number: int) -> np.ndarray:
    samples = load_audio(REPOSITORY / f"demo/audio/demo_{number:04d}.opus", RATE_HZ)
    return np.resize(samples, 2 * RATE_HZ)


def noise(seed: int, rms: float) -> np.ndarray:
    return rms * np.random.default_rng(seed).standard_normal(2 * RATE_HZ).astype(np.float32)


def padded(samples: np.ndarray, before_s: float) -> np.ndarray:
    """Return speech of 4 s that starts after a silence."""
    silence = np.zeros(4 * RATE_HZ, np.float32)
    start = round(before_s * RATE_HZ)
    silence[start : start + len(samples)] = samples
    return silence


VOICE = speech(1)
LEFT, RIGHT, MEAN, DIFF = [1, 0], [0, 1], [0.5, 0.5], [0.5, -0.5]
TURNS = padded(speech(1), 0), padded(speech(2), 2)
CASES = {
    "equal": ([VOICE, VOICE], MEAN),
    "one is louder": ([VOICE, 0.4 * VOICE], MEAN),
    "opposite": ([VOICE, -VOICE], DIFF),
    "opposite with noise": ([VOICE + noise(1, 0.01), noise(2, 0.01) - VOICE], DIFF),
    "right is dead": ([VOICE, 0 * VOICE], LEFT),
    "left has only hiss": ([noise(1, 0.001), VOICE], RIGHT),
    "right has only an offset": ([VOICE, 0 * VOICE - 0.3], LEFT),
    "right is 10 ms later": ([VOICE, 0.9 * np.roll(VOICE, 240)], LEFT),
    "silence": ([0 * VOICE, 0 * VOICE], MEAN),
    "a sample is no number": ([VOICE, np.append(VOICE[:-1], np.float32("nan"))], MEAN),
    "two speakers at the same time": ([VOICE, speech(2)], None),
    "two speakers in turn": (list(TURNS), None),
    "two speakers in turn, each in both": ([TURNS[0] + 0.3 * TURNS[1], TURNS[1] + 0.3 * TURNS[0]], None),
    "a voice and hum": ([VOICE, 0.05 * np.sin(np.arange(2 * RATE_HZ) / 76).astype(np.float32)], None),
    "three of five are dead": (
        [0 * VOICE, VOICE, 0 * VOICE, 0 * VOICE, -VOICE, 0 * VOICE],
        [0, 0.5, 0, 0, -0.5, 0],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_mix_takes_the_sound_that_channels_have_in_common(name):
    channels, expected = CASES[name]
    samples = np.stack(channels, axis=1)
    whole = mixing_weights([samples], RATE_HZ)
    blocks = mixing_weights(np.array_split(samples, 7), RATE_HZ)
    if expected is None:
        assert whole is None
        assert blocks is None
    else:
        assert whole.tolist() == expected
        assert blocks.tolist() == expected


def write(path: Path, *channels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.stack(channels, axis=1), RATE_HZ)
    path.with_suffix(".txt").write_text(f"ሰላም {path.name}", encoding="utf-8")
    return path


def imported(source: Path, out: Path, **flags: object) -> dict[str, np.ndarray]:
    """Return the mean of the channels of each clip by id."""
    run_import(source, out, speaker="s", **flags)
    lines = manifest_lines(out)
    return {x["id"]: soundfile.read(out / x["audio"], always_2d=True)[0].mean(axis=1) for x in lines}


def test_a_clip_is_stored_with_the_sound_of_its_channels(tmp_path, caplog):
    caplog.set_level("INFO")
    source, out = tmp_path / "in", tmp_path / "out"
    write(source / "opposite.wav", VOICE, -VOICE)
    write(source / "dead.flac", 0 * VOICE, VOICE)
    write(source / "both.wav", VOICE, VOICE)
    write(source / "talk.wav", VOICE, speech(2))
    clips = imported(source, out, link=True)
    assert sorted(clips) == ["both", "dead", "opposite"]
    for samples in clips.values():
        np.testing.assert_allclose(samples, VOICE, atol=2 / 32768)
    assert rejected(out) == [("talk.wav", None, "channels")]
    assert f"1 clip {DIFFERENCE}" in caplog.text
    assert f"1 clip {ONE_CHANNEL}" in caplog.text
    names = [Path(line["audio"]).name for line in manifest_lines(out)]
    assert names == ["both.wav", "dead.flac", "opposite.flac"]
    for channel, expected in {"left": VOICE, "right": speech(2), "mean": (VOICE + speech(2)) / 2}.items():
        chosen = imported(source, out, channel=channel)
        np.testing.assert_allclose(chosen["talk"], expected, atol=2 / 32768)
    assert not rejected(out)


@pytest.mark.parametrize("sign", [-1, 0])
def test_a_decoded_recording_and_its_spans_have_the_sound_of_its_channels(tmp_path, sign):
    path = tmp_path / "in/talk.m4a"
    write_media(path, np.stack([VOICE, sign * VOICE]), RATE_HZ, "alac", layout="stereo")
    tables = {"wav.scp": "talk talk.m4a", "segments": "u1 talk 0.5 1.5", "text": "u1 ሰላም", "utt2spk": "u1 s"}
    import_cases.write(tmp_path / "in", tables)
    [samples] = imported(tmp_path / "in", tmp_path / "out").values()
    np.testing.assert_allclose(samples, VOICE[RATE_HZ // 2 : 3 * RATE_HZ // 2], atol=2 / 32768)


def test_recordings_of_a_manifest_are_read_alike(tmp_path):
    path = write(tmp_path / "a.wav", VOICE, -VOICE)
    np.testing.assert_allclose(load_audio(path, RATE_HZ), VOICE, atol=2 / 32768)
    path = write(tmp_path / "b.wav", VOICE - 0.12)
    np.testing.assert_allclose(load_audio(path, RATE_HZ), VOICE - VOICE.mean(), atol=2 / 32768)
