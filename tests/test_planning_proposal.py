"""Tests of indextts/planning/proposal.py, for several GPUs and without one."""

from dataclasses import replace

import pytest

from indextts.commands.train import Train
from indextts.planning.hardware import GpuFacts, MachineFacts
from indextts.planning.memory import CONTEXT_BYTES, gpu_memory, model_size
from indextts.planning.pairs_size import PairsSize
from indextts.planning.proposal import STEP_SHARED, STEP_SPLIT, TOO_SMALL, Proposal, propose
from indextts.runs.schedule import EpochSize
from indextts.text.tokenizer import TextMeasure
from tests.test_models_gpt_weights import PUBLISHED

CONFIG = replace(PUBLISHED, number_text_tokens=24_000)
SIZE = model_size(CONFIG, base_size=12_000)
STATE = SIZE.state_bytes("float32", 0.0)
NO_TEXTS = TextMeasure(0, 0, 0, 0, (), {}, ())  # type: ignore[arg-type]
SPEECH = PairsSize(EpochSize(240_000, 240_000 * 362, 900), 150.0, True, 0, NO_TEXTS)  # clips of 6 s
GPUS = {
    "H200": GpuFacts("NVIDIA H200", 143_771 << 20, (9, 0)),
    "A100": GpuFacts("NVIDIA A100-SXM4-40GB", 40_960 << 20, (8, 0)),
    "L4": GpuFacts("NVIDIA L4", 22_478 << 20, (8, 9)),
    "T4": GpuFacts("Tesla T4", 15_360 << 20, (7, 5)),
    "3060": GpuFacts("NVIDIA GeForce RTX 3060", 12_288 << 20, (8, 6)),
    "4060": GpuFacts("NVIDIA GeForce RTX 4060", 8_188 << 20, (8, 9)),
}


def proposed(gpu: str, cores: int = 16) -> Proposal:
    return propose(MachineFacts((GPUS[gpu],), cores, 64 << 30), CONFIG, SIZE, SPEECH, STATE)


@pytest.mark.parametrize("name", ["H200", "A100", "L4", "T4", "3060"])
def test_the_proposal_fits_the_memory_that_the_gpu_reports(name: str):
    proposal = proposed(name)
    fields = proposal.fields
    need = gpu_memory(
        CONFIG,
        SIZE,
        positions=fields["batch_tokens"],
        is_half=fields["amp"],
        recomputes=fields["grad_checkpointing"],
        is_padded=False,
        accumulates=fields["grad_accumulation"] > 1,
        state_bytes=STATE,
    )
    assert proposal.fits
    assert need.peak + CONTEXT_BYTES < GPUS[name].memory_bytes


@pytest.mark.parametrize("name", GPUS)
def test_a_step_is_about_32_pairs_on_any_gpu(name: str):
    fields = proposed(name).fields
    pairs = fields["batch_tokens"] * fields["grad_accumulation"] / SPEECH.mean
    assert 30 <= pairs <= 37


def test_a_gpu_of_22_gib_splits_the_step_and_the_reason_names_its_memory():
    proposal = proposed("L4")
    assert proposal.fields["grad_accumulation"] > 1
    assert not proposal.fields["grad_checkpointing"]
    reason = proposal.reasons["batch_tokens"]
    assert (reason.id, reason.values["there"], reason.values["place"]) == (STEP_SPLIT, "22.0", "NVIDIA L4")


@pytest.mark.parametrize("num_processes", [2, 4])
def test_the_step_has_the_same_size_on_several_gpus(num_processes: int):
    machine = MachineFacts((GPUS["L4"],), 16, 64 << 30)
    proposal = propose(machine, CONFIG, SIZE, SPEECH, STATE, num_processes)
    fields = proposal.fields
    pairs = num_processes * fields["batch_tokens"] * fields["grad_accumulation"] / SPEECH.mean
    assert 30 <= pairs <= 37
    reason = proposal.reasons["batch_tokens"]
    assert reason.id == STEP_SHARED
    assert reason.values["accumulation"] == str(fields["grad_accumulation"])
    assert reason.values["processes"] == str(num_processes)
    assert reason.values["pairs"] == f"{pairs:.0f}"


def test_a_large_gpu_computes_the_step_in_one_micro_batch():
    assert proposed("A100").fields["grad_accumulation"] == 1
    assert "33 pairs" in str(proposed("H200").reasons["batch_tokens"])


def test_a_gpu_without_native_bfloat16_gets_float16_with_a_reason():
    proposal = proposed("T4")
    assert proposal.fields["amp"] is True
    assert "float16" in str(proposal.reasons["amp"])
    assert "compute capability 8.9" in str(proposed("L4").reasons["amp"])


def test_an_unknown_capability_stays_in_float32():
    gpu = replace(GPUS["A100"], compute_capability=None)
    proposal = propose(MachineFacts((gpu,), 16, 64 << 30), CONFIG, SIZE, SPEECH, STATE)
    assert proposal.fields["amp"] is False
    assert "float32" in str(proposal.reasons["amp"])


def test_gradient_checkpointing_is_on_only_where_memory_requires_it():
    assert [proposed(name).fields["grad_checkpointing"] for name in ("A100", "L4", "T4", "3060")] == [
        False,
        False,
        True,
        True,
    ]


def test_a_gpu_that_is_too_small_is_reported():
    proposal = proposed("4060")
    assert not proposal.fits
    assert proposal.reasons["batch_tokens"].id == TOO_SMALL


def test_workers_leave_a_core_for_the_trainer():
    assert [proposed("A100", cores).fields["num_workers"] for cores in (1, 2, 16)] == [0, 1, 2]


def test_a_machine_without_a_gpu_trains_with_all_cores():
    fields = propose(
        MachineFacts((), 2, 24 << 30, has_native_bfloat16=False), CONFIG, SIZE, SPEECH, STATE
    ).fields
    assert (fields["amp"], fields["num_workers"]) == (False, 0)
    assert fields["grad_accumulation"] > 1


def test_every_proposed_field_is_a_valid_field_of_the_trainer():
    for name in GPUS:
        fields = proposed(name).fields
        assert fields.keys() <= Train.model_fields.keys()
        # the trainer refuses a budget of fewer than three of the longest pair; not all pairs were read
        assert fields["batch_tokens"] >= 3 * SPEECH.size.longest
