"""Tests of cutting a text file into sentences."""

from pathlib import Path

import pytest

from indextts.commands.normalizer_options import DEFAULT_OPTIONS
from indextts.data.importing.text_sentences import read_sentences, split_sentences, word_ends


def sentences(path: Path, text: str):
    path.write_text(text, encoding="utf-8")
    return read_sentences(path, DEFAULT_OPTIONS)


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("ልጁ ወደ ቤት ሄደ። እናቱ ምግብ ሰጠችው።", ["ልጁ ወደ ቤት ሄደ።", "እናቱ ምግብ ሰጠችው።"]),
        ("ስምህ ማን ነው? አበበ እባላለሁ!", ["ስምህ ማን ነው?", "አበበ እባላለሁ!"]),
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


def test_a_binary_file_is_rejected(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(bytes(range(256)) * 20)
    found, [rejection] = read_sentences(path, DEFAULT_OPTIONS)
    assert (found, rejection.code, rejection.where.line) == ([], "not_text", 1)


def test_words_that_are_read_together_are_not_cut(tmp_path):
    [sentence], _ = sentences(tmp_path / "a.txt", "ዋጋው 25 ብር ነው ብሎ ነገረኝ።")
    ends = word_ends(sentence, DEFAULT_OPTIONS)
    assert [word for word, _ in ends] == sentence.text.split()
    assert ends[0][1] == len("ዋጋው")
    assert ends[-1][1] == len(sentence.letters)
