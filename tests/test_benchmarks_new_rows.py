"""Tests of benchmarks/new_rows.py: what the compared rules give."""

from pathlib import Path

import pytest
import torch

from benchmarks.new_rows import RULES, latin_tokens, place_rows
from indextts.models.checkpoint import TEXT_TABLES
from indextts.runs.restore import move_rows
from indextts.text.tokenizer import Tokenizer
from tests.tiny_run import BASE_SIZE, BASE_TOKENIZER, write_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    write_tokenizer(tmp_path / "extended.model", num_appended=400)
    return Tokenizer.load(tmp_path / "extended.model")


def tables() -> dict[str, torch.Tensor]:
    numbers = torch.randn(BASE_SIZE + 1, 64, generator=torch.Generator().manual_seed(0))
    return dict(zip(TEXT_TABLES, (numbers, -numbers, numbers[:, 0].clone()), strict=True))


def test_a_piece_in_latin_letters_is_cut_as_the_base_cuts_it_there(tokenizer: Tokenizer):
    base = Tokenizer.load(BASE_TOKENIZER)
    at_start, inside, numeral = latin_tokens(tokenizer, ["▁ሰላም", "ላም", "፩"])
    assert at_start == base.encode("selam")
    assert "".join(base.pieces[token] for token in inside) == "LAM"
    assert numeral == []


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_touches_the_rows_of_the_base_or_the_last(rule: str, tokenizer: Tokenizer):
    old, row_of = tables(), move_rows(Tokenizer.load(BASE_TOKENIZER).vocabulary, tokenizer.vocabulary)
    new = place_rows(old, row_of, base_size=BASE_SIZE, seed=1, rule=rule, tokenizer=tokenizer)
    for name in TEXT_TABLES:
        assert torch.equal(new[name][:BASE_SIZE], old[name][:BASE_SIZE])
        assert torch.equal(new[name][-1], old[name][-1])
        assert len(new[name]) == tokenizer.size + 1


def test_a_transliterated_row_lies_around_the_mean_of_its_latin_rows(tokenizer: Tokenizer):
    old, row_of = tables(), move_rows(Tokenizer.load(BASE_TOKENIZER).vocabulary, tokenizer.vocabulary)
    new = place_rows(old, row_of, base_size=BASE_SIZE, seed=1, rule="transliteration", tokenizer=tokenizer)
    row = tokenizer.pieces.index("ቋ")
    tokens = [tokenizer.pieces.index(piece) for piece in ("K", "W", "A")]
    for name in TEXT_TABLES:
        noise = new[name][row] - old[name][tokens].mean(dim=0)
        assert float(noise.abs().max()) < (0.1 if noise.dim() else 1e-6)
