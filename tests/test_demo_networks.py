"""Tests of the programs that train the built-in features and the demo's base."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from demo.network_alignment import aligned_phones
from demo.network_training import Networks, Sample, train, validate
from demo.phrases import read_phones, speak_phrases, vocabularies
from demo.train_networks import Scales, packed
from indextts.data.manifest import read_utterances
from indextts.features.builtin import WEIGHTS
from indextts.features.builtin_networks import FRAMES_PER_CODE, NUM_BANDS, NUM_PARAMETERS, VOICE_SIZE

pytestmark = pytest.mark.long


def test_phrases_are_spoken_with_the_times_of_their_phones(tmp_path: Path):
    vocabulary = vocabularies(["sw", "am"])
    manifest = speak_phrases(tmp_path, vocabulary, ["sw", "am"], 4, seed=1)
    phones = read_phones(manifest)
    for utterance in read_utterances(manifest):
        starts = [start for start, _ in phones[utterance.id]]
        assert len(starts) >= len(utterance.text.split())
        assert starts == sorted(starts)
        assert starts[-1] <= utterance.duration_s * 24_000 + 24_000
    assert speak_phrases(tmp_path, {}, [], 0, seed=1) == manifest  # it is kept


def test_phones_of_a_text_are_found_in_a_recording():
    """Three sounds are three states; each lasts 4 to 8 positions."""
    rng = np.random.default_rng(0)
    sounds = rng.normal(size=(4, 16)).astype(np.float16)  # the first is a pause

    def clip() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        spoken = rng.permuted(np.repeat([1, 2, 3], 6))
        labels = np.concatenate(
            [[0] * 9, *(np.repeat(number, rng.integers(4, 9)) for number in spoken), [0] * 9]
        )
        return (sounds[labels] + rng.normal(0, 0.1, (len(labels), 16))).astype(np.float16), labels, spoken

    clips = [clip() for _ in range(12)]
    synthetic = [(states, labels) for states, labels, _ in clips[:4]]
    recordings = [(states, spoken) for states, _, spoken in clips[4:]]
    silence = (sounds[np.zeros(100, int)], recordings[0][1])
    found = aligned_phones(synthetic, [*recordings, silence], num_phones=4, seed=0, steps=300)
    right = [np.mean(labels == guess) for (_, labels, _), guess in zip(clips[4:], found, strict=False)]
    assert min(right) > 0.9
    assert set(found[-1]) == {-1}


def random_sample(seed: int, num_codes: int) -> Sample:
    rng = np.random.default_rng(seed)
    parameters = rng.normal(size=(FRAMES_PER_CODE * num_codes, NUM_PARAMETERS))
    parameters[:, -2] = parameters[:, -2] > 0
    return Sample(
        "synthetic",
        rng.normal(size=(FRAMES_PER_CODE * num_codes, NUM_BANDS)).astype(np.float16),
        parameters.astype(np.float16),
        rng.normal(size=(num_codes, 128)).astype(np.float16),
        rng.integers(-1, 2, 2 * num_codes),
        rng.normal(size=VOICE_SIZE).astype(np.float32),
        float(rng.normal(5)),
    )


@pytest.mark.slow
def test_a_training_gives_the_content_of_the_shipped_file(capsys: pytest.CaptureFixture[str]):
    torch.manual_seed(0)
    networks = Networks(num_phones=2)
    samples = [random_sample(seed, 50) for seed in range(4)]
    saved: list[int] = []
    train(networks, samples, minutes=0.05, seed=0, save=saved.append)
    validate(networks, samples)
    assert saved[-1] > 0
    assert "right=" in capsys.readouterr().out
    scales = Scales({}, *(torch.zeros(size) for size in ((2, 128), (67,), (67,))))
    content = packed(networks, scales, samples, [np.ones((40, NUM_BANDS), np.float16)])
    shipped = {name: tensor.shape for name, tensor in load_file(WEIGHTS).items()}
    assert {name: tensor.shape for name, tensor in content.items()} == shipped
