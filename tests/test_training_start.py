"""Tests of indextts/training/start.py and record.py, and of health checks that need a real training."""

import json

import pytest
import torch
from torch import Tensor

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.models.checkpoint import read_weights
from indextts.runs.directory import read_metrics
from indextts.runs.health.checks import check_health
from indextts.text.sounds import base_tokens
from indextts.training.optim import TrainedParameters
from indextts.training.record import TextRowFacts
from indextts.training.resume import resume
from indextts.training.run import Run, load_inputs
from indextts.training.start import start_from_base
from tests.tiny_run import BASE_SIZE, TinyRun, make_tiny_run


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


def test_a_run_writes_its_facts_at_the_start_and_at_each_validation_and_is_healthy(tiny: TinyRun):
    assert tiny.train(epochs=2) == 0
    assert tiny.train(epochs=6, resume="auto") == 0
    lines = read_metrics(tiny.output / "metrics.jsonl")
    facts = [line for line in lines if line["kind"] == "facts"]
    assert [line["step"] for line in facts] == [0, 3, 6, 8, 9, 12, 15, 18, 21, 24]
    assert len({line["base_rows"] for line in facts}) == 1
    assert facts[3]["new_rows_moved_lately"] == 0  # a process began at step 8
    moved, seen = ([line[name] for line in facts] for name in ("new_rows_moved", "new_rows_seen"))
    assert 0 == moved[0] < moved[2] < moved[3] < moved[-1]
    assert 0 < seen[1] <= seen[3] <= seen[-1] < 1  # some pieces are in no text
    assert facts[0]["unknown_share"] == 0
    assert {line["num_skipped"] for line in lines if line["kind"] == "train"} == {0}
    assert json.loads((tiny.output / "config.json").read_text())["schedule"]["total_steps"] == 24
    assert [str(finding) for finding in check_health(tiny.output)] == []


def test_rows_without_gradients_and_unknown_tokens_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(TrainedParameters, "collect_gradients", lambda _: None)
    tiny = make_tiny_run(tmp_path / "tiny", text="ሰላም 中文 ለዓለም")
    assert tiny.train(epochs=6) == 0
    found = {finding.check: finding for finding in check_health(tiny.output)}
    assert found["new_rows"].values["moved"] == 0
    assert found["unknown"].level == "problem"


def test_a_changed_base_row_is_reported_in_either_table(tiny: TinyRun):
    tiny.output.mkdir()
    run = start_from_base(load_inputs(parse(Train, tiny.flags())))
    rows = TextRowFacts(run)
    before = rows.read()
    with torch.no_grad():
        run.model.text_embedding.weight[BASE_SIZE] += 1.0  # a new row
    moved = rows.read()
    assert moved["base_rows"] == before["base_rows"]
    assert moved["new_rows_moved"] == 0  # those of the head stand
    assert moved["new_rows_seen"] == 1 / 321
    with torch.no_grad():
        run.model.text_head.bias[BASE_SIZE - 1] += 1e-6
    assert rows.read()["base_rows"] != before["base_rows"]
