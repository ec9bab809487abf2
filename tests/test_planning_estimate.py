"""Tests of indextts/planning/estimate.py, pace.py and pairs_size.py: estimates match the later training."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.data.manifest import read_pairs, write_pairs
from indextts.data.pair_index import load_index
from indextts.errors import UserError
from indextts.models.gpt.config import load_config
from indextts.planning import pairs_size
from indextts.planning.estimate import SPARE_BYTES, Estimate, disk_need, estimate, start_facts
from indextts.planning.hardware import GpuFacts, MachineFacts
from indextts.planning.pace import BENCHMARKS, SOURCE, Pace, find_pace
from indextts.planning.pairs_size import measure_pairs, measure_texts
from indextts.planning.restore_plan import plan_from_meta
from indextts.runs.directory import read_metrics
from indextts.system.messages import Message
from indextts.text.tokenizer import Tokenizer
from tests.conftest import REPOSITORY
from tests.test_models_gpt_weights import PUBLISHED
from tests.tiny_run import TinyRun, load_pairs, make_tiny_run

CPU = MachineFacts((), 2, 8 << 30)
H200 = MachineFacts((GpuFacts("NVIDIA H200", 143_771 << 20, (9, 0)),), 16, 128 << 30)


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return make_tiny_run(tmp_path_factory.mktemp("shared"))


@pytest.fixture
def run(shared_run: TinyRun, tmp_path: Path) -> TinyRun:
    """The files of a run, for this test alone."""
    return TinyRun(shutil.copytree(shared_run.folder, tmp_path / "run"))


def command_of(run: TinyRun, **changes: object) -> Train:
    return parse(Train, run.flags(**changes))


def total_steps(run: TinyRun) -> int:
    """Return what the trainer says its last step will be."""
    starts = [line for line in read_metrics(run.output / "metrics.jsonl") if line["kind"] == "start"]
    return int(starts[-1]["total_steps"])


# ---- pairs


def test_an_epoch_is_counted_as_the_trainer_counts_it(run: TinyRun):
    command = command_of(run)
    for pair in (pairs := read_pairs(command.train_manifest[0])):
        assert pair.target_num_codes  # 20 in the manifest, other numbers in this test's store
    measured = measure_pairs(command.train_manifest, command.tokenizer, command.config)
    config, tokenizer = load_config(command.config), Tokenizer.load(command.tokenizer)
    trainers = load_pairs(command.train_manifest, tokenizer, config)
    codes_said = sum(pair.target_num_codes for pair in pairs)
    codes_stored = sum(store.num_codes(p.target_key) for p in pairs for store in trainers.stores.values())
    assert measured.size.num_samples == trainers.size.num_samples == 22
    assert measured.size.num_positions - codes_said == trainers.size.num_positions - codes_stored
    assert not measured.is_sampled


def test_a_large_file_is_sampled_and_marked_as_such(run: TinyRun, monkeypatch: pytest.MonkeyPatch):
    command = command_of(run)
    [path] = command.train_manifest
    pairs = read_pairs(path)
    write_pairs(path, [replace(pair, id=f"{pair.id}_{n}") for n in range(50) for pair in pairs])
    whole = measure_pairs([path], command.tokenizer, command.config)
    monkeypatch.setattr(pairs_size, "MAX_SAMPLED_PAIRS", 100)
    monkeypatch.setattr(pairs_size, "MAX_TOKENIZED_PAIRS", 100)
    pairs_size._read_epoch.cache_clear()
    sampled = measure_pairs([path], command.tokenizer, command.config)
    assert (whole.is_sampled, sampled.is_sampled) == (False, True)
    assert sampled.size.num_samples == whole.size.num_samples == 1100
    assert sampled.size.num_positions == pytest.approx(whole.size.num_positions, rel=0.05)


def test_an_index_makes_the_size_of_a_large_file_exact(run: TinyRun, monkeypatch: pytest.MonkeyPatch):
    command = command_of(run)
    [path] = command.train_manifest
    whole = measure_pairs([path], command.tokenizer, command.config)
    monkeypatch.setattr(pairs_size, "MAX_SAMPLED_PAIRS", 4)
    monkeypatch.setattr(pairs_size, "MAX_TOKENIZED_PAIRS", 4)
    pairs_size._read_epoch.cache_clear()
    assert measure_pairs([path], command.tokenizer, command.config).is_sampled
    load_index(path, Tokenizer.load(command.tokenizer))
    indexed = measure_pairs([path], command.tokenizer, command.config)
    texts = measure_texts([path], command.tokenizer, command.config)
    assert not indexed.is_sampled
    assert indexed == whole
    assert texts.num_texts == 4


def test_a_manifest_that_changed_is_measured_again(run: TinyRun):
    command = command_of(run)
    [path] = command.train_manifest
    assert measure_pairs([path], command.tokenizer, command.config).size.num_samples == 22
    write_pairs(path, read_pairs(path)[:5])
    assert measure_pairs([path], command.tokenizer, command.config).size.num_samples == 5


# ---- steps


@pytest.mark.parametrize(
    "changes", [{}, {"batch_size": 4, "epochs": 2}, {"batch_tokens": 200, "grad_accumulation": 1}]
)
def test_the_steps_are_those_that_the_trainer_plans(run: TinyRun, changes: dict[str, object]):
    for path in (run.folder / "train_pairs.jsonl", run.folder / "val_pairs.jsonl"):
        with_the_codes_of_the_store(run, path)
    command = command_of(run, **changes)
    expected = estimate(command, CPU)
    assert run.train(**changes, val_interval=100, save_interval=100) == 0
    assert expected.total_steps == expected.steps_left == total_steps(run)
    assert expected.total_steps == expected.steps_per_epoch * command.epochs


def with_the_codes_of_the_store(run: TinyRun, path: Path) -> None:
    command = command_of(run)
    config, tokenizer = load_config(command.config), Tokenizer.load(command.tokenizer)
    [store] = load_pairs([path], tokenizer, config).stores.values()
    write_pairs(path, [replace(p, target_num_codes=store.num_codes(p.target_key)) for p in read_pairs(path)])


def test_ranks_share_a_step(run: TinyRun):
    """Two with two micro-steps have the steps of one with four."""
    two = estimate(command_of(run, grad_accumulation=2), CPU, num_processes=2)
    one = estimate(command_of(run, grad_accumulation=4), CPU)
    assert (two.steps_per_epoch, two.total_steps) == (one.steps_per_epoch, one.total_steps) == (2, 6)
    assert two.positions_per_step == one.positions_per_step
    assert two.facts.settings.grad_accumulation == 2
    # on its own GPU, each rank needs as much as a single process
    alone = estimate(command_of(run, grad_accumulation=2), H200)
    assert estimate(command_of(run, grad_accumulation=2), H200, num_processes=2).memory == alone.memory


def test_a_resume_runs_the_remaining_steps(run: TinyRun):
    assert run.train(max_steps=4) == 0
    command = command_of(run, resume="auto", max_steps=0)
    rest = estimate(command, CPU, plan_from_meta(command))
    assert (rest.first_step, rest.total_steps, rest.steps_left) == (4, 12, 8)


def test_the_budget_of_each_rank_must_fit_the_longest_pair(run: TinyRun):
    longest = estimate(command_of(run), CPU).facts.pairs.size.longest
    with pytest.raises(UserError, match=rf"--batch-tokens {2 * longest}"):
        estimate(command_of(run, batch_tokens=2 * longest), CPU, num_processes=2)


# ---- pace


def paced(run: TinyRun, machine: MachineFacts = CPU, **changes: object) -> Estimate:
    command = command_of(run, **changes)
    others = [run.folder / "other/training_output"]
    return estimate(command, machine, plan_from_meta(command) if command.resume else None, others)


def test_the_pace_of_a_first_run_is_unknown(run: TinyRun):
    first = paced(run)
    assert first.pace is None
    assert first.seconds is None


def test_the_pace_comes_from_this_run_or_else_from_another(run: TinyRun):
    assert run.train(max_steps=4, allow_cpu="") == 0
    own = paced(run, resume="auto", max_steps=0)
    assert own.pace.source == Message("planning.this_run", {"device": Message("planning.this_processor")})
    rates = [line["tokens_per_second"] for line in read_metrics(run.output / "metrics.jsonl") if "lr" in line]
    seconds = own.steps_left * own.positions_per_step / own.pace.positions_per_second
    assert own.seconds == pytest.approx(seconds)
    # positions are more than the tokens of the losses
    assert min(rates) < own.pace.positions_per_second < 2 * max(rates)
    shutil.move(run.output, run.folder / "other/training_output")
    other = paced(run)
    assert (other.pace.source.id, other.pace.source.values["project"]) == ("planning.other_run", "other")


def test_a_pace_in_other_conditions_is_ignored(run: TinyRun):
    assert run.train(max_steps=2, allow_cpu="") == 0
    assert paced(run).pace is not None
    assert paced(run, H200).pace is None
    for changes in ({"grad_checkpointing": ""}, {"padding": "reference"}, {"compile": ""}):
        assert paced(run, **changes).pace is None, changes
    command = command_of(run)
    assert estimate(command, CPU, num_processes=2).pace is None
    record = json.loads((run.output / "config.json").read_bytes())
    record["environment"]["processes"] = 2
    (run.output / "config.json").write_text(json.dumps(record))
    assert estimate(command, CPU, num_processes=2).pace is not None
    assert paced(run).pace is None


def test_benchmarks_apply_to_the_same_gpu_and_the_published_size_only(run: TinyRun):
    facts = replace(start_facts(command_of(run, amp=""), H200), config=PUBLISHED)

    def found(**changes: Any) -> Pace | None:
        conditions = replace(facts, **changes).conditions
        values = {"prefix_length": 34, "micro_positions": 15_000, "mean_positions": 362.0}
        return find_pace(conditions, run.output, (), **values)

    pace = found()
    assert pace.positions_per_second == 116_162
    assert SOURCE in str(pace.source)
    l4 = MachineFacts((GpuFacts("NVIDIA L4", 22_478 << 20, (8, 9)),), 8, 32 << 30)
    assert found(machine=l4) is None
    assert found(config=replace(PUBLISHED, layers=12)) is None
    assert found(machine=CPU) is None
    assert found(num_processes=8) is None


def test_the_benchmarks_match_the_published_table():
    lines = (REPOSITORY / SOURCE).read_text(encoding="utf-8").splitlines()
    for row in BENCHMARKS:
        [line] = [line for line in lines if f"| {row.positions_per_second:,} |" in line]
        assert f"{row.positions} tokens" in line
        assert row.conditions.precision in line
        assert ("checkpointing" in line) == row.conditions.grad_checkpointing
        assert ("| padded," in line) == (row.conditions.padding == "reference")


# ---- disk


def test_the_disk_need_counts_pruning_and_present_checkpoints(run: TinyRun):
    command = command_of(run, keep_checkpoints=2)
    facts = start_facts(command, CPU)
    new = disk_need(facts, steps=12)
    assert new.num_at_most == 4
    assert new.needed_bytes == 4 * facts.size.checkpoint_bytes("float32", 0.0) + SPARE_BYTES
    assert run.train(keep_checkpoints=2, max_steps=8) == 0
    again = disk_need(facts, steps=4)
    num_files = len(list(run.output.glob("model_step*.pth")))
    assert again.needed_bytes == (4 - num_files) * new.checkpoint_bytes + SPARE_BYTES


def test_a_short_run_needs_only_the_checkpoints_it_saves(run: TinyRun):
    command = command_of(run, keep_checkpoints=50, save_interval=1000, val_interval=1000)
    facts = start_facts(command, CPU)
    assert disk_need(facts, steps=12).num_at_most == 2
    assert disk_need(facts, steps=0).needed_bytes == 0


def test_without_a_gpu_the_memory_is_the_hosts(run: TinyRun):
    here = estimate(command_of(run), CPU)
    assert (here.available_memory, here.fits_memory) == (8 << 30, True)
    there = estimate(command_of(run, amp=""), H200)
    assert (there.available_memory, there.facts.precision) == (H200.gpus[0].memory_bytes, "bfloat16")
