"""Test of benchmarks/speech.py: all networks in their published sizes speak, on a CPU."""

from pathlib import Path

import pytest
import soundfile
import torch

from benchmarks import speech


@pytest.mark.slow
def test_the_published_sizes_speak_3_s_from_a_text(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    threads = torch.get_num_threads()
    try:
        arguments = ["--seconds", "3", "--steps", "2", "--beams", "1", "--device", "cpu"]
        speech.main([*arguments, "--output", str(tmp_path / "a.wav")])
    finally:
        torch.set_num_threads(threads)
    samples, rate_hz = soundfile.read(tmp_path / "a.wav")
    assert rate_hz == 22_050
    assert samples.shape == (258 * 256,)
    assert 0.001 < samples.std() < 0.5
    said = capsys.readouterr().out
    assert "GPT of 866 M parameters" in said
    assert "3.00 s of sound from 150 codes in 2 steps" in said
