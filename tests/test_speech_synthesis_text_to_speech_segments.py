from pathlib import Path

import numpy as np
import pytest

from indextts.speech.synthesis.text_to_speech import join_segments, split_text
from indextts.text.normalize import normalize
from indextts.text.tokenizer import Tokenizer
from tests.conftest import REPOSITORY
from tests.tokenizers import trained_model

SENTENCES = (REPOSITORY / "demo/sentences.txt").read_text(encoding="utf-8").split("\n")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(trained_model(tuple(map(normalize, SENTENCES)), vocab_size=300), Path("bpe.model"))


def letters(text: str) -> str:
    return "".join(character for character in text if character.isalnum())


def test_a_short_text_is_one_segment(tokenizer):
    assert split_text("ሰላም ነው። እንዴት ነህ?", tokenizer) == ["ሰላም ነው. እንዴት ነህ?"]


def test_a_long_text_is_split_at_sentence_ends_including_ethiopic_stops(tokenizer):
    text = "ሰላም ነው። እንዴት ነህ? ደህና ነኝ! እግዚአብሔር ይመስገን።"
    longest = len(tokenizer.encode("እግዚአብሔር ይመስገን."))
    segments = split_text(text, tokenizer, max_tokens=longest)
    assert " ".join(segments) == "ሰላም ነው. እንዴት ነህ? ደህና ነኝ! እግዚአብሔር ይመስገን."
    assert segments[-1] == "እግዚአብሔር ይመስገን."


def test_a_segment_holds_as_many_sentences_as_fit(tokenizer):
    text = "አበበ በሶ በላ። " * 12
    one = len(tokenizer.encode("አበበ በሶ በላ."))
    segments = split_text(text, tokenizer, max_tokens=5 * one)
    assert [segment.count(".") for segment in segments] == [5, 5, 2]


@pytest.mark.parametrize("max_tokens", [8, 20, 120])
def test_no_text_is_lost_and_no_segment_is_too_long(tokenizer, max_tokens):
    text = " ".join(SENTENCES[:40]) + " " + "ሀ፣ ለ-መ " * 30
    segments = split_text(text, tokenizer, max_tokens)
    assert letters("".join(segments)) == letters(tokenizer.normalize(text))
    assert all(0 < len(tokenizer.encode(segment)) <= max_tokens for segment in segments)
    assert all(segment == segment.strip() for segment in segments)


def test_a_long_sentence_is_split_after_commas_rather_than_between_words(tokenizer):
    text = "አበበ በሶ በላ፣ ጫላ ጩቤ ጨበጠ፣ ከበደ ውሃ ጠጣ።"
    limit = max(len(tokenizer.encode(part)) for part in tokenizer.normalize(text).split(", ")) + 1
    assert split_text(text, tokenizer, limit) == ["አበበ በሶ በላ,", "ጫላ ጩቤ ጨበጠ,", "ከበደ ውሃ ጠጣ."]


def test_a_word_longer_than_a_segment_is_split(tokenizer):
    segments = split_text("በ" * 500, tokenizer, max_tokens=10)
    assert "".join(segments) == "በ" * 500
    assert max(len(tokenizer.encode(segment)) for segment in segments) <= 10


def test_segments_are_joined_with_a_fifth_of_a_second_of_silence():
    first, second = np.ones(100, np.float32), np.full(50, 0.5, np.float32)
    joined = join_segments([first, np.zeros(0, np.float32), second], 22_050)
    np.testing.assert_array_equal(joined, np.concatenate([first, np.zeros(4410, np.float32), second]))
    np.testing.assert_array_equal(join_segments([first], 22_050), first)
    assert join_segments([], 22_050).shape == (0,)
