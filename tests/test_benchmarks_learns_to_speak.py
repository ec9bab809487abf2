"""Tests of benchmarks/learns_to_speak.py: its texts, and how the recognizer hears the codes of the demo."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from benchmarks.learns_to_speak import (
    NUM_HELD_OUT,
    SAMPLE_RATE_HZ,
    TEXTS,
    amharic_phrases,
    error,
    phrases,
    random_letters,
    through_the_codes,
)
from indextts.data.manifest import read_utterances
from indextts.features.audio import load_audio
from indextts.features.recognizers.loading import load_recognizer
from indextts.text.ethiopic import amharic_letters
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.long

NUM_CLIPS = 12


def test_no_held_out_sentence_is_trained_on():
    sentences = TEXTS.read_text("utf-8").splitlines()
    trained = [text for _, text in amharic_phrases(600)]
    assert len(trained) == 600
    assert set(sentences[:-NUM_HELD_OUT]) <= set(trained)
    assert not set(sentences[-NUM_HELD_OUT:]) & set(trained)


def test_an_invented_word_joins_the_halves_of_two_words():
    known = {"x": ["abcd", "efgh"]}
    assert {text for _, line in phrases(known, 50, invented=1.0) for text in line.split()} == {
        "abcd",
        "efgh",
        "abgh",
        "efcd",
    }
    assert {text for _, line in phrases(known, 50, invented=0.0) for text in line.split()} == set(known["x"])


def test_words_of_random_letters_have_the_letters_of_the_known_words_and_those_of_the_alphabet():
    known = {"am": ["ሰላም", "ነው"]}
    found = [text for _, line in phrases(known, 300, 1.0, random_letters) for text in line.split()]
    counts = Counter("".join(found))
    assert set(counts) == set(amharic_letters())  # which has the letters of the known words
    assert sum(counts[letter] for letter in "ሰላምነው") > 0.4 * counts.total()
    assert {len(word) for word in found} == {2, 3, 4, 5, 6}


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
