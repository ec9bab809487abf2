"""Tests of indextts/data/epoch_mix.py: shares of files in an epoch, their order, and a run with them."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.data.epoch_mix import EpochMix
from indextts.data.manifest import read_pairs, write_pairs
from indextts.planning.pairs_size import read_epoch
from indextts.runs.directory import read_metrics
from indextts.runs.schedule import EpochSize
from indextts.training.order import BatchPlan, mixed_order
from indextts.training.run import load_inputs
from tests.tiny_run import TinyRun, describe_restore, make_tiny_run

NEW, OLD = 15, 7


def mix(sizes: tuple[int, ...] = (100, 47), shares: tuple[float, ...] = (0.85, 0.15)) -> EpochMix:
    found = EpochMix.of(sizes, shares)
    assert found is not None
    return found


def test_an_epoch_takes_the_first_file_once_and_the_others_by_their_shares():
    assert mix().counts == (100, 18)
    assert mix(shares=(1, 1)).counts == (100, 100)
    assert mix((10, 9000), (1, 0.001)).counts == (10, 1)  # never none
    assert EpochMix.of((100, 47), (None, None)) is None


def test_all_samples_of_a_file_are_seen_equally_often():
    these = mix()
    seen: Counter[int] = Counter()
    for epoch in range(13):
        order = mixed_order(these, seed=3, epoch=epoch).tolist()
        assert len(order) == these.num_samples
        assert sorted(each for each in order if each < 100) == list(range(100))
        seen.update(order)
        old = [seen[100 + each] for each in range(47)]
        assert max(old) - min(old) <= 1
    assert sum(old) == 13 * 18


def test_the_order_is_a_function_of_seed_and_epoch_and_passes_differ():
    these = mix((5, 40), (0.1, 0.8))  # an epoch is a pass over both
    first, second = (mixed_order(these, 3, epoch).tolist() for epoch in (0, 1))
    assert first == mixed_order(these, 3, 0).tolist()
    assert sorted(first) == sorted(second) == list(range(45))
    assert first != second
    assert first != mixed_order(these, 4, 0).tolist()


@pytest.mark.parametrize("batch_tokens", [0, 900])
def test_a_run_that_continues_within_an_epoch_takes_the_rest_of_its_samples(batch_tokens: int):
    lengths = np.random.default_rng(0).integers(50, 300, 147)

    def batches(epoch: int, samples_done: int) -> list[int]:
        plan = BatchPlan(lengths, 7, 4, batch_tokens, epoch, samples_done, mix())
        found: list[int] = []
        for batch, is_last in zip(plan, plan.epoch_end_flags(), strict=False):
            found += batch
            if is_last:
                return found
        raise AssertionError

    for done in (0, 1, 50, 117):
        assert batches(2, done) == mixed_order(mix(), 7, 2).tolist()[done:]


def test_the_size_of_an_epoch_is_that_of_its_share():
    assert mix().size(np.array([10] * 100 + [20] * 47)) == EpochSize(118, 100 * 10 + 18 * 20, 20)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """Return a run of three epochs with 15 + 3 pairs, and validation in two languages."""
    run = make_tiny_run(tmp_path_factory.mktemp("mix") / "tiny")
    for split, number in (("train", NEW), ("val", 3)):
        pairs = read_pairs(run.folder / f"{split}_pairs.jsonl")
        write_pairs(run.folder / f"new_{split}.jsonl", pairs[:number])
        write_pairs(run.folder / f"old_{split}.jsonl", pairs[number:])
    assert run.train(**files(run)) == 0
    return run


def files(run: TinyRun, shares: tuple[float, float] = (0.85, 0.15)) -> dict[str, object]:
    new, old = run.folder / "new", run.folder / "old"
    return {
        "train_manifest": [f"{new}_train.jsonl@{shares[0]}", f"{old}_train.jsonl@en@{shares[1]}"],
        "val_manifest": [f"{new}_val.jsonl", f"{old}_val.jsonl@en"],
    }


def test_the_run_counts_epochs_by_its_first_file(tiny: TinyRun):
    assert "new_train.jsonl@0.85: an epoch takes 15 pairs of 15, 1 passes" in tiny.log
    assert "old_train.jsonl@en@0.15: an epoch takes 3 pairs of 7, 0.429 passes" in tiny.log
    lines = [line for line in read_metrics(tiny.output / "metrics.jsonl") if line["kind"] == "val"]
    assert (lines[-1]["step"], lines[-1]["epoch"]) == (9, 2)


@pytest.mark.long
def test_validation_reports_each_language_at_the_end_of_its_line(tiny: TinyRun):
    last = [line for line in read_metrics(tiny.output / "metrics.jsonl") if line["kind"] == "val"][-1]
    low, high = sorted([last["mel_loss_am"], last["mel_loss_en"]])
    assert low < last["mel_loss"] < high
    assert {f"text_loss_{code}" for code in ("am", "en")} <= last.keys()
    [line] = [line for line in tiny.log.splitlines() if "[Val] epoch=2 step=9 " in line]
    assert line.endswith(f" mel_loss_am={last['mel_loss_am']:.4f} mel_loss_en={last['mel_loss_en']:.4f}")
    assert f"mel_loss={last['mel_loss']:.4f} mel_top1={last['mel_top1']:.4f} mel_loss_am=" in line


@pytest.mark.long
def test_texts_are_read_by_the_rules_of_the_language_of_their_file(tmp_path: Path):
    run = make_tiny_run(tmp_path / "tiny", text="1999")
    path = run.folder / "train_pairs.jsonl"
    ids = {
        typed: load_inputs(parse(Train, run.flags(train_manifest=typed))).train_set[0].text_ids.tolist()
        for typed in (path, f"{path}@am", f"{path}@en")
    }
    assert ids[path] == ids[f"{path}@am"] != ids[f"{path}@en"]


@pytest.mark.long
def test_the_page_and_the_trainer_count_alike(tiny: TinyRun):
    command = parse(Train, tiny.flags(**files(tiny)))
    train_set = load_inputs(command).train_set
    found = read_epoch(command.train_files, command.tokenizer, command.config, command.output_dir)
    assert found.pairs.size.num_samples == train_set.size.num_samples
    assert found.data_order(7) == train_set.digest(7)


@pytest.mark.parametrize(("shares", "is_same"), [((0.85, 0.15), True), ((17, 3), True), ((0.85, 0.3), False)])
def test_other_shares_are_another_order(tiny: TinyRun, shares: tuple[float, float], is_same: bool):
    argv = tiny.flags(**files(tiny, shares), resume="auto", epochs=4)
    plan = describe_restore(parse(Train, argv))
    assert ("epoch restarts" in plan) != is_same
    assert ("old_train.jsonl@en@" in plan) != is_same
