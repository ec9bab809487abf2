"""DNSMOS in the check: clips with music are rejected as outliers of a speaker; a killed check resumes."""

import json

import numpy as np
import pytest
import soundfile

from indextts.commands.data import CheckData
from indextts.commands.quality_limits import QualityLimits
from indextts.data.check import check_manifest
from indextts.data.manifest import Utterance, read_utterances, write_utterances
from indextts.data.quality import ratings
from indextts.features import dnsmos
from indextts.features.audio import load_audio
from tests.conftest import REPOSITORY

NUM_CLIPS = 20


def with_song(samples: np.ndarray, rate_hz: int) -> np.ndarray:
    """Return speech over plucked notes that change 3 times a second, as loud as the speech."""
    since_s = np.arange(len(samples)) / rate_hz % 0.33
    step = (np.arange(len(samples)) / rate_hz // 0.33).astype(int)
    note_hz = 220 * 2 ** (np.array([0, 4, 7, 12, 9, 5])[step % 6] / 12)
    notes = sum(np.sin(2 * np.pi * k * note_hz * since_s) / k for k in range(1, 6)) * np.exp(-since_s / 0.15)
    return samples + notes * np.sqrt(np.mean(samples**2) / np.mean(notes**2)) * 0.9


@pytest.fixture
def manifest(tmp_path):
    """A set of 20 clips by one speaker; the last one has music."""
    clips = [u for u in read_utterances(REPOSITORY / "demo/manifest.jsonl") if u.speaker == "espeak_m1"]
    utterances = []
    for number, clip in enumerate(clips[:NUM_CLIPS]):
        samples = load_audio(clip.audio, 16_000)
        path = tmp_path / f"{number}.wav"
        soundfile.write(path, with_song(samples, 16_000) if number == NUM_CLIPS - 1 else samples, 16_000)
        utterances.append(Utterance(str(number), path, clip.text, "one", len(samples) / 16_000))
    write_utterances(tmp_path / "manifest.jsonl", utterances)
    return tmp_path / "manifest.jsonl"


def test_music_is_an_outlier_and_ratings_are_reused_after_a_kill(manifest, monkeypatch):
    folder = manifest.parent / "check"
    rate, rated = dnsmos.rate, []

    def killed_after_5(samples):
        if len(rated) == 5:
            raise KeyboardInterrupt
        rated.append(len(samples))
        return rate(samples)

    monkeypatch.setattr(dnsmos, "rate", killed_after_5)
    with pytest.raises(KeyboardInterrupt):
        check_manifest(manifest, report_dir=folder, command=CheckData())
    monkeypatch.setattr(dnsmos, "rate", lambda samples: rated.append(len(samples)) or rate(samples))
    check_manifest(manifest, report_dir=folder, command=CheckData())
    assert len(rated) == NUM_CLIPS
    check_manifest(manifest, QualityLimits(max_bak_below=3.6), folder, command=CheckData())
    assert len(rated) == NUM_CLIPS

    clips = [json.loads(line) for line in (folder / "clips.jsonl").read_text(encoding="utf-8").splitlines()]
    found = [[flag["reason"] for flag in clip["flags"]] for clip in clips]
    assert "background" in found[-1]
    assert not any("background" in reasons for reasons in found[:-1])
    assert clips[0]["measures"]["bak"] > clips[-1]["measures"]["bak"] + 0.9


def test_a_fast_check_rates_nothing(manifest, monkeypatch):
    monkeypatch.setattr(dnsmos, "rate", lambda samples: pytest.fail("rated"))
    check_manifest(manifest, report_dir=manifest.parent / "check", command=CheckData(quality="fast"))
    line = (manifest.parent / "check/clips.jsonl").read_text(encoding="utf-8").splitlines()[0]
    assert "bak" not in json.loads(line)["measures"]


def test_long_recordings_are_rated_in_windows_and_cost_more():
    speech = load_audio(REPOSITORY / "demo/audio/demo_0055.opus", dnsmos.SAMPLE_RATE_HZ)  # 4.5 s
    twice = np.concatenate([speech, speech])[: dnsmos.WINDOW_SAMPLES]
    assert dnsmos.rate(speech).bak == pytest.approx(dnsmos.rate(twice).bak, abs=0.05)
    later = np.concatenate([speech, speech, np.zeros(5 * dnsmos.SAMPLE_RATE_HZ, np.float32)])
    assert dnsmos.rate(later) != dnsmos.rate(twice)
    assert dnsmos.cost_s(12.1) == 4 * dnsmos.cost_s(3)
    assert dnsmos.cost_s(1000) == dnsmos.MAX_WINDOWS * dnsmos.cost_s(3)
    clips = [Utterance(str(n), REPOSITORY, "", "s", 3.0) for n in range(8)]
    assert ratings.expected_s(clips, 4) == pytest.approx(2 * dnsmos.cost_s(3))


@pytest.mark.parametrize(("scatter", "is_outlier"), [(0.02, True), (0.3, False)])
def test_the_distance_counts_in_deviations_of_the_set(scatter: float, is_outlier: bool):
    utterances = [Utterance(str(n), REPOSITORY, "", "s", 3.0) for n in range(NUM_CLIPS)]
    scores = [3.5 + scatter * (-1) ** n for n in range(NUM_CLIPS - 1)] + [2.5]
    measured = [{"bak": score} for score in scores]
    ratings._add_distances(utterances, measured)
    limit = QualityLimits().max_bak_below
    assert (measured[-1]["bak_below"] > limit) == is_outlier
    assert max(measures["bak_below"] for measures in measured[:-1]) < limit
