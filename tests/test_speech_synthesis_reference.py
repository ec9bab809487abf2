import logging

import numpy as np
import pytest
import soundfile

from indextts.errors import UserError
from indextts.speech.synthesis import reference
from indextts.speech.synthesis.reference import load_emotion, load_reference


def write_noise(path, duration_s: float, rate_hz: int = 24_000, level: float = 0.1):
    samples = np.random.default_rng(0).normal(0, level, int(duration_s * rate_hz))
    soundfile.write(path, samples, rate_hz)
    return path


def test_a_reference_is_read_at_the_published_rates(tmp_path):
    path = write_noise(tmp_path / "a.wav", 4)
    assert load_reference(path).shape == (4 * 22_050,)
    assert load_emotion(path).shape == (4 * 16_000,)
    assert load_reference(path).dtype == np.float32


def test_the_first_15_s_of_a_long_recording_are_used_with_a_warning(tmp_path, caplog):
    path = write_noise(tmp_path / "a.wav", 20)
    with caplog.at_level(logging.WARNING):
        assert load_reference(path).shape == (330_750,)
        assert load_emotion(path).shape == (240_000,)
    assert [(record.levelname, record.args) for record in caplog.records] == [
        ("WARNING", (path, 20.0, 15))
    ] * 2


def test_a_short_reference_is_used_with_a_warning(tmp_path, caplog):
    path = write_noise(tmp_path / "a.wav", 1.5)
    load_reference(path)
    assert [(record.levelname, record.args) for record in caplog.records] == [("WARNING", (path, 1.5))]


@pytest.mark.parametrize(("duration_s", "shown"), [(0.5, "0.5 s"), (3600, "3600.0 s")])
def test_a_reference_that_is_too_short_or_too_long_is_refused_unread(
    tmp_path, monkeypatch, duration_s, shown
):
    path = tmp_path / "a.wav"
    soundfile.write(path, np.zeros(int(duration_s * 100), np.int16), 100)
    monkeypatch.setattr(reference, "load_audio", lambda *_: pytest.fail("the file was read"))
    with pytest.raises(UserError, match=rf"a\.wav: .*{shown}"):
        load_reference(path)


@pytest.mark.parametrize("level", [0.0, 1e-4])
def test_a_silent_recording_is_refused(tmp_path, level):
    with pytest.raises(UserError, match=r"a\.wav: .*15 s .*-50 dB"):
        load_reference(write_noise(tmp_path / "a.wav", 4, level=level))


def test_a_word_in_silence_is_accepted(tmp_path):
    samples = np.zeros(24_000 * 5)
    samples[48_000:60_000] = np.random.default_rng(0).normal(0, 0.05, 12_000)
    soundfile.write(tmp_path / "a.wav", samples, 24_000)
    assert len(load_reference(tmp_path / "a.wav")) == 5 * 22_050


def test_a_file_that_is_not_audio_is_refused(tmp_path):
    (tmp_path / "a.wav").write_bytes(b"hello" * 100)
    with pytest.raises(UserError, match=r"a\.wav: "):
        load_reference(tmp_path / "a.wav")
