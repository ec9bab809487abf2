from pathlib import Path

import pytest

from indextts.text.bases import load_tokenizer
from indextts.text.extend import extend_file
from indextts.text.sounds import base_tokens, romanise
from tests.conftest import REPOSITORY

DEMO = REPOSITORY / "demo"
RANKS = DEMO / "checkpoints/multilingual_zh_ja_yue_char_del.tiktoken"


def test_a_text_is_written_in_latin_letters():
    texts = {"▁ሰላም": "▁selam", " ጠጅ": " tej", "እግዚአብሔር": "igziabher", "привет": "privet", "ế's": "e's"}
    assert {text: romanise(text) for text in texts} == texts


@pytest.mark.parametrize(
    ("path", "pieces"),
    [
        (RANKS, {"ሰ": ["se"], "ላ": ["la"], " ምን": [" m", "n"], " እን": [" i", "n"], "<e1 88>": None}),
        (
            REPOSITORY / "tests/base_2.0/bpe.model",
            {"ሰ": ["SE"], "▁ሃ": ["▁HA"], "ሃ": ["H", "A"], "ፎች": ["F", "O", "CH"]},
        ),
    ],
)
def test_a_new_piece_sounds_like_pieces_of_the_base_with_its_word_mark(
    tmp_path: Path, path: Path, pieces: dict[str, list[str] | None]
):
    base = load_tokenizer(path)
    sentences = (DEMO / "sentences.txt").read_text("utf-8").splitlines()
    extended = extend_file(path, sentences, tmp_path / "am", base.size + 600).extended
    found = base_tokens(extended, base.size, range(base.size, extended.size))
    assert max(token for parts in found.values() for token in parts) < base.size
    for piece, expected in pieces.items():
        parts = found.get(extended.pieces.index(piece))
        assert (parts and [base.pieces[token] for token in parts]) == expected
