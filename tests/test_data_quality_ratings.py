"""DNSMOS in the check: clips with music are rejected as outliers of a speaker; a killed check resumes."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.commands.data import CheckData
from indextts.commands.quality_limits import QualityLimits
from indextts.data.check import check
from indextts.data.manifest import Utterance, read_utterances, write_utterances
from indextts.data.quality import ratings
from indextts.data.quality.clips import Clip, Sound
from indextts.data.quality.measures import measure_text
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


def check_fully(manifest: Path, **settings: object) -> list[dict]:
    """Check with DNSMOS; return the records of clips.jsonl."""
    folder = manifest.parent / "check"
    check(CheckData.model_validate({"train_manifest": manifest, "report_dir": folder, **settings}))
    lines = (folder / "clips.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.long
def test_music_is_an_outlier(manifest):
    clips = check_fully(manifest, max_bak_below=3.6)
    found = [[flag["reason"] for flag in clip["flags"]] for clip in clips]
    assert "background" in found[-1]
    assert not any("background" in reasons for reasons in found[:-1])
    assert clips[0]["measures"]["bak"] > clips[-1]["measures"]["bak"] + 0.9


def test_ratings_are_reused_after_a_kill_and_a_fast_check_needs_none(manifest, monkeypatch):
    rated: list[int] = []
    limit = 5

    def rate(samples: np.ndarray) -> list[float]:
        if len(rated) == limit:
            raise KeyboardInterrupt
        rated.append(len(samples))
        return [3.0 if len(samples) == sizes[-1] else 2.9, 1.0 if len(samples) in sizes[-2:] else 4.0, 3.0]

    utterances = read_utterances(manifest)[:8]
    write_utterances(manifest, utterances)
    sizes = sorted(soundfile.info(each.audio).frames for each in utterances)
    monkeypatch.setattr(dnsmos, "rate", rate)
    assert "bak" not in check_fully(manifest, quality="fast")[0]["measures"]
    assert rated == []
    with pytest.raises(KeyboardInterrupt):
        check_fully(manifest)
    limit = 8
    check_fully(manifest)
    assert len(rated) == 8
    clips = sorted(check_fully(manifest), key=lambda clip: clip["measures"]["duration_s"])
    assert [clip["measures"]["bak"] for clip in clips] == [4.0] * 6 + [1.0] * 2
    is_loud = ["loud_background" in (flag["reason"] for flag in clip["flags"]) for clip in clips]
    assert is_loud == [False] * 7 + [True]  # a low SIG takes the meaning from BAK


@pytest.mark.parametrize(("scatter", "is_outlier"), [(0.02, True), (0.3, False)])
def test_the_distance_counts_in_deviations_of_the_set(scatter: float, is_outlier: bool):
    utterance, text = Utterance("u", REPOSITORY, "", "s", 3.0), measure_text("")
    scores = [3.5 + scatter * (-1) ** n for n in range(NUM_CLIPS - 1)] + [2.5]
    clips = [Clip(utterance, Sound(None), text, {"bak": score}) for score in scores]
    ratings.add_distances(clips)
    limit = QualityLimits().max_bak_below
    assert (clips[-1].measures["bak_below"] > limit) == is_outlier
    assert max(clip.measures["bak_below"] for clip in clips[:-1]) < limit
