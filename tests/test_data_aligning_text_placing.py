"""Tests of cutting a text into sentences, and of placing them in the output of a recognizer.

The recognizer hears what the test says, with errors.
"""

from pathlib import Path

import numpy as np
import pytest

from indextts.commands.normalizer_options import DEFAULT_OPTIONS
from indextts.data.aligning.text_placing import (
    Heard,
    place_sentences,
    read_sentences,
    split_sentences,
    word_ends,
)

NUM_COLUMNS = 60
RATE = 25  # positions per second
STEP = 4  # positions of a letter


def texts(count: int, seed: int = 0, length: int = 25) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(1, NUM_COLUMNS, length) for _ in range(count)]


def sound(spoken: list[np.ndarray], errors: float = 0.1, pause: int = 10):
    """Return costs and heard letters for sentences with pauses between them, and their first positions."""
    rng = np.random.default_rng(1)
    path: list[int] = []
    starts = []
    for letters in spoken:
        path += [0] * pause
        starts.append(len(path))
        for letter in letters.tolist():
            heard = int(rng.integers(1, NUM_COLUMNS)) if rng.random() < errors else letter
            path += [heard, *[0] * (STEP - 1)]
    path += [0] * pause
    costs = np.full((len(path), NUM_COLUMNS), 8, np.float16)
    costs[np.arange(len(path)), path] = 0
    columns = np.array(path)
    positions = np.flatnonzero(columns)
    return costs, Heard(columns[positions], positions), starts


def place(sentences, spoken, **how):
    costs, heard, starts = sound(spoken, **how)
    return place_sentences(sentences, costs, heard, RATE), starts


def missing(found, sentences) -> list[int]:
    return sorted({*range(len(sentences))} - {each.sentence for each in found})


def test_sentences_out_of_order_are_missing():
    spoken = texts(40)
    order = [*range(10), 15, 10, 11, 12, 13, 14, *range(16, 30), 31, 30, *range(32, 40)]
    found, _ = place([spoken[number] for number in order], spoken)
    first, second = (order[number] for number in missing(found, order))
    assert (first, second in (30, 31)) == (15, True)


def test_lines_that_are_not_spoken_are_missing_and_take_no_place():
    spoken = texts(30)
    extra = texts(3, seed=9)
    written = [*spoken[:10], *extra, *spoken[10:]]
    found, _ = place(written, spoken)
    assert missing(found, written) == [10, 11, 12]


def test_speech_without_a_line_does_not_disturb_its_neighbours():
    spoken = texts(30)
    found, starts = place([*spoken[:10], *spoken[13:]], spoken)
    assert [each.sentence for each in found] == list(range(27))
    assert abs(found[10].start - starts[13]) <= STEP


def test_a_refrain_is_found_each_time_between_its_neighbours():
    verses, [refrain] = texts(20), texts(1, seed=5, length=10)
    spoken = [each for verse in verses for each in (verse, refrain)]
    found, starts = place(spoken, spoken)
    assert [each.sentence for each in found] == list(range(40))
    assert np.abs(np.array([each.start for each in found]) - starts).max() <= STEP


@pytest.mark.parametrize("length", [25, 400])
def test_a_line_with_another_text_is_not_kept(length):
    spoken = texts(30)
    other = [*spoken[:12], texts(1, seed=3, length=length)[0], *spoken[13:]]
    found, _ = place(other, spoken)
    assert 12 in missing(found, other)


def test_nothing_is_found_without_sound_or_letters():
    costs, heard, _ = sound([])
    assert place_sentences([*texts(2), np.zeros(0, np.int64)], costs, heard, RATE) == []


# --- sentences


def sentences(path: Path, text: str):
    path.write_text(text, encoding="utf-8")
    return read_sentences(path, DEFAULT_OPTIONS)


def test_names_before_the_lines_of_a_text_are_no_words(tmp_path):
    found, _ = sentences(tmp_path / "a.txt", "ABEBE: ሰላም ነው\nALMAZ: ደህና ነኝ\nABEBE: እሺ ነው\n")
    assert [sentence.text for sentence in found] == ["ሰላም ነው", "ደህና ነኝ", "እሺ ነው"]


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("ልጁ ወደ ቤት ሄደ። እናቱ ምግብ ሰጠችው።", ["ልጁ ወደ ቤት ሄደ።", "እናቱ ምግብ ሰጠችው።"]),
        ("ሰላም ነው፡፡ደህና ነኝ፡፡", ["ሰላም ነው፡፡", "ደህና ነኝ፡፡"]),
        ("እሱም «ና እዚህ።» አለ።", ["እሱም «ና እዚህ።»", "አለ።"]),
        ("በ2017 ዓ.ም. 3.5 ኪሎ ገዛ", ["በ2017 ዓ.ም. 3.5 ኪሎ ገዛ"]),
        ("He came. She left.", ["He came.", "She left."]),
    ],
)
def test_lines_are_cut_after_the_marks_of_sentences(line, parts):
    assert split_sentences(line) == parts


def test_short_sentences_are_joined_within_their_line(tmp_path):
    text = "አዎ። ልጁ ወደ ቤት ዛሬ ሄደ። እሺ።\n\nዛሬ ፀሐይ በጣም ሞቃታማ ናት።\nአሜን።\n...\n"
    found, rejections = sentences(tmp_path / "a.txt", text)
    assert [(each.line, each.text) for each in found] == [
        (1, "አዎ። ልጁ ወደ ቤት ዛሬ ሄደ። እሺ።"),
        (3, "ዛሬ ፀሐይ በጣም ሞቃታማ ናት።"),
        (4, "አሜን።"),
    ]
    assert not rejections


def test_words_that_are_read_together_are_not_cut(tmp_path):
    [sentence], _ = sentences(tmp_path / "a.txt", "ዋጋው 25 ብር ነው ብሎ ነገረኝ።")
    ends = word_ends(sentence, DEFAULT_OPTIONS)
    assert [word for word, _ in ends] == sentence.text.split()
    assert ends[0][1] == len("ዋጋው")
    assert ends[-1][1] == len(sentence.letters)
