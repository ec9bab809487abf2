"""Tests of benchmarks/learns_to_speak.py: its texts, and how the recognizer hears the codes of the demo."""

from pathlib import Path

import pytest
import torch

from benchmarks.learns_to_speak import (
    NUM_HELD_OUT,
    SAMPLE_RATE_HZ,
    TEXTS,
    amharic_phrases,
    error,
    through_the_codes,
)
from indextts.data.manifest import read_utterances
from indextts.features.audio import load_audio
from indextts.features.recognizers.loading import load_recognizer
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.long

NUM_CLIPS = 12


def test_no_held_out_sentence_is_trained_on():
    sentences = TEXTS.read_text("utf-8").splitlines()
    trained = [text for _, text in amharic_phrases(600)]
    assert len(trained) == 600
    assert set(sentences[:-NUM_HELD_OUT]) <= set(trained)
    assert not set(sentences[-NUM_HELD_OUT:]) & set(trained)


@pytest.mark.slow
def test_the_demos_codes_are_understood_and_mixed_codes_are_not(recognizer_folder: Path):
    recognizer = load_recognizer(recognizer_folder, torch.device("cpu"), "am")
    held_out = read_utterances(REPOSITORY / "demo/manifest.jsonl")[-NUM_HELD_OUT:][:NUM_CLIPS]
    clips = [load_audio(utterance.audio, SAMPLE_RATE_HZ) for utterance in held_out]
    recorded = error(recognizer, held_out, clips)
    ceiling = error(recognizer, held_out, list(map(through_the_codes, clips)))
    mixed = error(recognizer, held_out, [through_the_codes(clip, is_reversed=True) for clip in clips])
    assert recorded < 0.3
    assert recorded <= ceiling < 0.5
    assert mixed > 1.5 * ceiling
