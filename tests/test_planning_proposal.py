"""Tests of indextts/planning/proposal.py, for several GPUs and without one."""

from dataclasses import replace

import pytest

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.planning import pace
from indextts.planning.hardware import GpuFacts, MachineFacts
from indextts.planning.memory import CONTEXT_BYTES
from indextts.planning.pairs_size import PairsSize
from indextts.planning.proposal import Proposal, StartFacts, expected_longest
from indextts.runs.schedule import EpochSize
from tests.test_models_gpt_weights import PUBLISHED

CONFIG = replace(PUBLISHED, number_text_tokens=24_000)
BASE_SIZE = 12_000
SPEECH = PairsSize(EpochSize(240_000, 240_000 * 362, 900), 150.0, is_sampled=True)  # clips of 6 s
GPUS = {
    "H200": GpuFacts("NVIDIA H200", 143_771 << 20, (9, 0)),
    "A100": GpuFacts("NVIDIA A100-SXM4-40GB", 40_960 << 20, (8, 0)),
    "L4": GpuFacts("NVIDIA L4", 22_478 << 20, (8, 9)),
    "T4": GpuFacts("Tesla T4", 15_360 << 20, (7, 5)),
    "3060": GpuFacts("NVIDIA GeForce RTX 3060", 12_288 << 20, (8, 6)),
    "4060": GpuFacts("NVIDIA GeForce RTX 4060", 8_188 << 20, (8, 9)),
}


CPU = MachineFacts((), 2, 24 << 30)
REQUIRED = ["--train-manifest=t", "--val-manifest=v", "--tokenizer=m"]


def proposed(gpu: str, *typed: str, cores: int = 16, num_processes: int = 1) -> Proposal:
    machine = MachineFacts((GPUS[gpu],), cores, 64 << 30)
    return proposed_for(machine, *typed, num_processes=num_processes)


def proposed_for(machine: MachineFacts, *typed: str, num_processes: int = 1) -> Proposal:
    command = parse(Train, [*REQUIRED, *typed])
    return StartFacts(command, machine, CONFIG, BASE_SIZE, SPEECH, num_processes).propose()


def pairs_of_step(proposal: Proposal, num_processes: int = 1) -> float:
    """Return the mean number of pairs in a step, by the trainer's count of the batches of an epoch."""
    size = replace(SPEECH.size, longest=expected_longest(SPEECH, CONFIG))
    num_batches = size.num_batches(0, num_processes * proposal.fields["batch_tokens"])
    return size.num_samples / num_batches * float(proposal.fields["grad_accumulation"])


@pytest.mark.parametrize("name", ["H200", "A100", "L4", "T4", "3060"])
def test_the_proposal_fits_the_memory_that_the_gpu_reports(name: str):
    proposal, machine = proposed(name), MachineFacts((GPUS[name],), 16, 64 << 30)
    chosen = parse(Train, [*REQUIRED, *proposal.flags()])
    assert proposal.fits
    need = StartFacts(chosen, machine, CONFIG, BASE_SIZE, SPEECH).memory()
    assert need.peak + CONTEXT_BYTES < GPUS[name].memory_bytes


@pytest.mark.parametrize("name", [name for name in GPUS if name != "4060"])
def test_a_step_is_about_32_pairs_on_any_gpu_that_is_large_enough(name: str):
    assert pairs_of_step(proposed(name, "--step-pairs=32")) == pytest.approx(32, rel=0.05)
    if name != "H200":
        assert pairs_of_step(proposed(name)) == pytest.approx(32, rel=0.05)


def test_a_step_has_64_pairs_where_its_fixed_cost_was_measured_to_be_large(monkeypatch: pytest.MonkeyPatch):
    proposal = proposed("H200")
    assert pairs_of_step(proposal) == pytest.approx(64, rel=0.05)
    reason = proposal.reasons["batch_tokens"]
    assert (reason.id, reason.values["share"]) == ("planning.step_large", "15")
    assert pairs_of_step(proposed("H200", num_processes=2), 2) == pytest.approx(32, rel=0.05)
    few = replace(SPEECH, size=replace(SPEECH.size, num_samples=60_000, num_positions=60_000 * 362))
    command, machine = parse(Train, REQUIRED), MachineFacts((GPUS["H200"],), 16, 64 << 30)
    assert StartFacts(command, machine, CONFIG, BASE_SIZE, few).propose().fields["batch_tokens"] < 15_000
    no_fixed_cost = [replace(row, positions_per_second=100_000) for row in pace.BENCHMARKS]
    monkeypatch.setattr(pace, "BENCHMARKS", no_fixed_cost)
    assert pairs_of_step(proposed("H200")) == pytest.approx(32, rel=0.05)


def test_a_gpu_of_22_gib_splits_the_step_and_the_reason_names_its_memory():
    proposal = proposed("L4")
    assert proposal.fields["grad_accumulation"] > 1
    assert not proposal.fields["grad_checkpointing"]
    reason = proposal.reasons["batch_tokens"]
    assert (reason.id, reason.values["there"], reason.values["place"]) == (
        "planning.step_split",
        "22.0",
        "NVIDIA L4",
    )


@pytest.mark.parametrize("num_processes", [2, 4])
def test_the_step_has_the_same_size_on_several_gpus(num_processes: int):
    proposal = proposed("L4", num_processes=num_processes)
    pairs = pairs_of_step(proposal, num_processes)
    assert pairs == pytest.approx(32, rel=0.05)
    fields = proposal.fields
    reason = proposal.reasons["batch_tokens"]
    assert reason.id == "planning.step_shared"
    assert reason.values["accumulation"] == str(fields["grad_accumulation"])
    assert reason.values["processes"] == str(num_processes)
    assert reason.values["pairs"] == f"{pairs:.0f}"


@pytest.mark.parametrize(
    ("machine", "typed", "expected"),
    [
        # a large GPU computes the step in one micro-batch, and checkpointing is on where memory requires it
        ("A100", [], {"grad_accumulation": 1, "grad_checkpointing": False, "num_workers": 2}),
        ("L4", [], {"grad_checkpointing": False, "amp": True}),
        ("T4", [], {"grad_checkpointing": True, "amp": True}),
        ("3060", [], {"grad_checkpointing": True}),
        ("H200", ["--batch-size=32"], {"grad_checkpointing": False}),
        ("3060", ["--batch-size=32"], {"grad_checkpointing": True}),
        # a CPU trains with all cores, in bfloat16 where it is native
        (CPU, [], {"amp": False, "num_workers": 0}),
        (replace(CPU, has_native_bfloat16=True), [], {"amp": True}),
        # a typed batch size is the step, unless a step is typed
        ("H200", ["--no-amp", "--batch-size=8", "--num-workers=0"], {"grad_accumulation": None}),
        ("H200", ["--batch-size=8", "--step-pairs=32"], {"grad_accumulation": 4, "batch_tokens": None}),
        ("H200", ["--batch-tokens=0", "--step-pairs=32"], {"grad_accumulation": 4}),
        # a typed token budget is accumulated up to the step: batches of about 8 pairs
        ("H200", ["--batch-tokens=4096"], {"grad_accumulation": 4, "batch_tokens": None}),
        (
            "H200",
            ["--grad-accumulation=4"],
            {"batch_tokens": proposed("H200", "--step-pairs=8").fields["batch_tokens"]},
        ),
    ],
    ids=str,
)
def test_each_setting_follows_from_the_machine_and_what_was_typed(
    machine: str | MachineFacts, typed: list[str], expected: dict[str, object]
):
    found = proposed(machine, *typed) if isinstance(machine, str) else proposed_for(machine, *typed)
    assert {name: found.fields.get(name) for name in expected} == expected


def test_a_gpu_that_is_too_small_is_reported_and_gets_the_offer_of_lora_where_it_fits():
    proposal = proposed("4060")
    assert not proposal.fits
    assert proposal.reasons["batch_tokens"].id == "planning.too_small_but_for_lora"
    assert "lora_rank" not in proposal.fields  # it changes the result: only the user may choose it
    offered = proposed("4060", f"--lora-rank={proposal.reasons['batch_tokens'].values['rank']}")
    assert offered.fits
    assert pairs_of_step(offered) == pytest.approx(32, rel=0.05)
    tiny = proposed_for(MachineFacts((GpuFacts("NVIDIA GTX 1050", 2 << 30, (6, 1)),), 16, 64 << 30))
    assert not tiny.fits
    assert tiny.reasons["batch_tokens"].id == "planning.too_small"


# ---- what was typed is kept, and the rest follows


@pytest.mark.parametrize(
    "typed",
    [
        ["--no-amp", "--batch-size=8", "--num-workers=0"],
        ["--batch-tokens=0", "--batch-size=1"],
        ["--batch-tokens=4096", "--grad-accumulation=3", "--grad-checkpointing"],
        ["--amp", "--compile", "--num-workers=4", "--step-pairs=64"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("gpu", ["H200", "3060"])
def test_a_typed_setting_is_not_chosen(gpu: str, typed: list[str]):
    command = parse(Train, [*REQUIRED, *typed])
    proposal = proposed(gpu, *typed)
    assert not proposal.fields.keys() & command.model_fields_set
    chosen = command.model_copy(update=proposal.fields)
    assert {name: getattr(chosen, name) for name in command.model_fields_set} == {
        name: getattr(command, name) for name in command.model_fields_set
    }


def test_every_chosen_field_has_a_reason():
    for gpu in GPUS:
        proposal = proposed(gpu)
        named = [name for names, reason in proposal.by_reason() for name in names if str(reason)]
        assert sorted(named) == sorted(proposal.fields)
        assert proposal.fields.keys() < Train.automatic
        flags = parse(Train, [*REQUIRED, *proposal.flags()])
        assert {name: getattr(flags, name) for name in proposal.fields} == proposal.fields
        # the trainer refuses a budget of fewer than three of the longest pair; not all pairs were read
        assert proposal.fields["batch_tokens"] >= 3 * SPEECH.size.longest
