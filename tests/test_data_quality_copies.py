"""Copies of a recording: found with another gain, start and rate; other sentences are no copies."""

import numpy as np
import pytest
import soundfile
import soxr

from indextts.data.manifest import read_utterances
from indextts.data.quality.copies import fingerprint, groups_of_copies, parse_fingerprint
from tests.conftest import REPOSITORY

RATE_HZ = 16_000


@pytest.fixture(scope="module")
def clips() -> list[np.ndarray]:
    utterances = read_utterances(REPOSITORY / "demo/manifest.jsonl")[:60]
    return [soxr.resample(soundfile.read(u.audio, dtype="float32")[0], 24_000, RATE_HZ) for u in utterances]


def groups(*clips: np.ndarray) -> list[int | None]:
    return groups_of_copies([fingerprint(clip) for clip in clips], [str(n) for n in range(len(clips))])


def test_different_sentences_are_no_copies(clips):
    assert groups(*clips) == list(range(60))


@pytest.mark.parametrize(
    "copy",
    [
        lambda clip: 0.3 * clip,
        lambda clip: np.round(0.05 * clip * 32767) / 32767,
        lambda clip: clip[3_001:],
        lambda clip: np.pad(clip, (1_234, 777)),
        lambda clip: soxr.resample(soxr.resample(clip, RATE_HZ, 44_100), 44_100, RATE_HZ),
        lambda clip: clip + np.random.default_rng(0).normal(0, 0.001, len(clip)),
    ],
    ids=["quiet", "coarse", "late", "padded", "resampled", "hissing"],
)
def test_changed_copies_are_found(clips, copy):
    copies = [copy(clip).astype(np.float32) for clip in clips[:20]]
    assert groups(*clips, *copies)[60:] == list(range(20))


def test_clips_without_peaks_are_copies_only_if_their_samples_are_equal():
    nothing = fingerprint(np.zeros(8_000, np.float32))
    assert len(nothing.bits) == 0
    assert groups_of_copies([nothing, nothing, None, nothing], ["a", "b", None, "a"]) == [0, 1, None, 0]


def test_a_fingerprint_can_be_stored(clips):
    found = fingerprint(clips[0])
    stored = parse_fingerprint(str(found))
    assert (stored.times_ms.tolist(), stored.bits.tolist()) == (found.times_ms.tolist(), found.bits.tolist())
