"""Tests of benchmarks/speech.py: all networks at their published sizes run on a CPU."""

from pathlib import Path

import pytest
import soundfile
import torch

from benchmarks import speech

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_the_published_sizes_speak_a_second_from_a_text(tmp_path: Path):
    threads = torch.get_num_threads()
    wav, report = tmp_path / "a.wav", tmp_path / "report.md"
    try:
        flags = [
            "--seconds=1",
            "--steps=2",
            "--beams=1",
            "--device=cpu",
            f"--wav={wav}",
            f"--output={report}",
        ]
        assert speech.main(flags) == 0
    finally:
        torch.set_num_threads(threads)
    samples, rate_hz = soundfile.read(wav)
    assert rate_hz == 22_050
    assert samples.shape == (86 * 256,)
    assert 0.001 < samples.std() < 0.5
    text = report.read_text()
    assert "866 M" in text
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 5
    assert all(float(cell) > 0 for row in rows for cell in row[1:])
