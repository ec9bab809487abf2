"""Tests of the demo's files for IndexTTS-2.5."""

from pathlib import Path

import yaml

from demo.make_demo import read_lines, train_ranks
from indextts.commands.bases import BASES
from indextts.text.bases import load_tokenizer

DEMO = Path(__file__).resolve().parent.parent / "demo"
ETHIOPIC_LETTERS = range(0x1200, 0x135B)


def test_the_base_tokenizer_of_2_5_fits_its_config_and_has_no_ethiopic_piece():
    folder = DEMO / "checkpoints_2.5"
    tokenizer = load_tokenizer(folder / BASES["2.5"].tokenizer_file)
    config = yaml.safe_load((folder / "config.yaml").read_text("utf-8"))
    assert config["gpt"]["number_text_tokens"] == tokenizer.size
    assert not [piece for piece in tokenizer.pieces if any(ord(char) in ETHIOPIC_LETTERS for char in piece)]
    assert tokenizer.encoding.n_vocab == tokenizer.size
    words = " ".join(read_lines(DEMO / "english.txt")).lower()
    assert len(tokenizer.encoding.encode_ordinary(words)) < len(words) / 2


def test_the_rank_file_of_2_5_is_that_of_the_program():
    ranks = train_ranks(read_lines(DEMO / "english.txt"))
    assert (DEMO / "checkpoints_2.5" / BASES["2.5"].tokenizer_file).read_bytes() == ranks
