"""Tests of benchmarks/fertility.py."""

from pathlib import Path

import pytest

from benchmarks.fertility import BASE, describe, measure_reserved, measure_size, read_corpus
from indextts.errors import UserError
from indextts.text.bases import load_tokenizer
from tests.byte_ranks import write_ranks
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.long

SENTENCES = (REPOSITORY / "demo/sentences.txt").read_text("utf-8").splitlines()


def test_a_corpus_is_lines_or_the_column_text_of_a_table(tmp_path: Path):
    lines, table = tmp_path / "lines.txt", tmp_path / "table.tsv"
    lines.write_text("\n".join([*SENTENCES[:12], "", " "]), "utf-8")
    table.write_text("\n".join(["source\ttext", *(f"s\t{text}" for text in SENTENCES[:12])]), "utf-8")
    assert read_corpus(lines) == read_corpus(table) == SENTENCES[:12]


def test_a_corpus_that_is_unreadable_or_too_small_is_refused(tmp_path: Path):
    (tmp_path / "few.txt").write_text("ሰላም\n", "utf-8")
    (tmp_path / "binary.txt").write_bytes(b"\xff\x00")
    for name in ("few.txt", "binary.txt", "absent.txt"):
        with pytest.raises(UserError, match=name):
            read_corpus(tmp_path / name)


def test_more_pieces_give_fewer_tokens_and_more_rare_pieces(tmp_path: Path):
    learned, held_out = SENTENCES[10:], SENTENCES[:10]
    small, large = (measure_size(BASE, size, learned, held_out, tmp_path / "m.model") for size in (350, 600))
    assert (small.num_appended, large.num_appended) == (350, 600)
    assert large.tokens_per_word < small.tokens_per_word
    assert large.num_rare > small.num_rare
    assert small.num_unknown_ethiopic == small.num_problems == 0
    lines = describe(load_tokenizer(BASE), learned, held_out, [small, large])
    assert lines[-1].startswith(f"| 600 | {large.tokens_per_word:.2f} |")


def test_reserved_pieces_of_a_rank_file_are_measured_like_appended_ones(tmp_path: Path):
    base, learned, held_out = write_ranks(tmp_path), SENTENCES[10:], SENTENCES[:10]
    appended = measure_size(base, 100, learned, held_out, tmp_path / "m.model")
    reserved = measure_reserved(base, learned, held_out, tmp_path / "m.model")
    assert appended.num_appended == 100
    assert appended.tokens_per_word > reserved.tokens_per_word > 1
    [line] = describe(load_tokenizer(base), learned, held_out, [reserved])[-1:]
    assert line.startswith(f"| {reserved.num_appended:,} reserved | {reserved.tokens_per_word:.2f} |")
