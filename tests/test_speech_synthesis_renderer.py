"""Tests of load_speech in renderer.py; those of text to speech have more refusals."""

import logging

import numpy as np
import soundfile

from indextts.features.audio import load_audio
from indextts.speech.synthesis.renderer import load_speech
from tests.conftest import REPOSITORY

VOICE = sorted((REPOSITORY / "demo/audio").glob("*.opus"))[0]


def write_speech(path, duration_s: float):
    samples = np.resize(load_audio(VOICE, 24_000), int(duration_s * 24_000))
    soundfile.write(path, samples, 24_000)
    return path


def test_the_first_15_s_are_read_at_the_wanted_rate_with_a_warning(tmp_path, caplog):
    path = write_speech(tmp_path / "a.wav", 20)
    with caplog.at_level(logging.WARNING):
        assert load_speech(path, 22_050).shape == (330_750,)
        assert load_speech(path, 16_000).shape == (240_000,)
    assert [(record.levelname, record.args) for record in caplog.records] == [
        ("WARNING", (path, 20.0, 15))
    ] * 2
