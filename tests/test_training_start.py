"""Tests of indextts/training/start.py: the rows of new pieces."""

import pytest
import torch
from torch import Tensor

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.models.checkpoint import read_weights
from indextts.text.sounds import base_tokens
from indextts.training.resume import resume
from indextts.training.run import Run, load_inputs
from indextts.training.start import start_from_base
from tests.tiny_run import TinyRun, make_tiny_run


def inputs(tiny: TinyRun, **changes: object):
    return load_inputs(parse(Train, tiny.flags(**changes)))


def rows(run: Run) -> Tensor:
    return run.model.text_embedding.weight.detach()


@pytest.mark.parametrize(("model", "letters"), [("2.0", ["SE"]), ("2.5", ["s", "e"])])
def test_rows_of_new_pieces_start_from_their_sound_also_at_a_resume(tmp_path, model: str, letters: list[str]):
    tiny = make_tiny_run(tmp_path / "tiny", model=model)
    by_mean = rows(start_from_base(inputs(tiny)))
    by_sound = rows(start_from_base(inputs(tiny, new_row_init="romanised")))
    pieces, size = tiny.tokenizer.pieces, tiny.base_size
    token, parts = pieces.index("ሰ"), [pieces.index(letter) for letter in letters]
    assert torch.equal(by_sound[token], by_sound[parts].mean(dim=0))
    assert torch.equal(by_sound[:size], by_mean[:size])
    assert not torch.equal(by_sound[token], by_mean[token])

    old_size = tiny.resize_tokenizer(by=-20)
    assert tiny.train(new_row_init="romanised", max_steps=2) == 0
    tiny.resize_tokenizer(by=20)
    latest = tiny.output / "latest.pth"
    learned, resumed = read_weights(latest)["text_embedding.weight"], rows(resume(inputs(tiny), latest))
    assert torch.equal(resumed[:old_size], learned[:old_size])
    with_sound = base_tokens(tiny.tokenizer, size, range(old_size, tiny.tokenizer.size))
    assert len(with_sound) == 20
    for new, parts in with_sound.items():
        assert torch.equal(resumed[new], learned[parts].mean(dim=0))
