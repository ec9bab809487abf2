"""Tests of indextts/training/settings.py: what a new run chooses is logged, stored, and held on a resume."""

import json
import re
from dataclasses import replace

import pytest

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.planning.hardware import GpuFacts, MachineFacts
from indextts.runs.directory import CheckpointMeta, read_metrics
from indextts.runs.schedule import EpochSize
from indextts.training import settings
from indextts.training.settings import _with_val_interval
from tests.tiny_run import TYPED, TinyRun, make_tiny_run

UNTYPED: dict[str, object] = dict.fromkeys(TYPED)
CPU = MachineFacts((), 2, 8 << 30)
BIG_GPU = GpuFacts("Big", 80 << 30, (9, 0))
SMALL_GPU = GpuFacts("Small", (1 << 30) + (3 << 19), (9, 0))  # CUDA, and 1.5 MiB for the tiny model


def on_machine(monkeypatch: pytest.MonkeyPatch, machine: MachineFacts) -> None:
    monkeypatch.setattr(settings, "machine_of", lambda _inputs: machine)


def stored(run: TinyRun) -> dict[str, object]:
    held = CheckpointMeta.read(run.output / "latest.json").settings
    return {name: held[name] for name in sorted(Train.automatic)}


def automatic_flags(log: str) -> set[str]:
    """Return the flags in the log lines of the last start."""
    lines = re.findall(r"Automatic: ((?:--\S+ )*--\S+): \S", log)
    return {flag for line in lines for flag in line.split()}


def test_a_new_run_logs_and_stores_what_it_chose_and_a_resume_elsewhere_holds_it(tiny: TinyRun, monkeypatch):
    on_machine(monkeypatch, replace(CPU, has_native_bfloat16=True))
    assert tiny.train(**UNTYPED, max_steps=2) == 0
    chosen = stored(tiny)
    assert chosen["amp"] is True
    assert chosen["batch_tokens"]
    command = parse(Train, [*tiny.flags(**UNTYPED), *automatic_flags(tiny.log)])
    assert {name: getattr(command, name) for name in Train.automatic} == chosen
    assert len(re.findall("Automatic: ", tiny.log)) == 4

    num_logged = len(tiny.log)
    on_machine(monkeypatch, MachineFacts((BIG_GPU,), 2, 8 << 30))
    assert tiny.train(**UNTYPED, max_steps=3, resume="auto") == 0
    assert stored(tiny) == chosen | {"num_workers": 1}  # the workers are of this machine
    assert automatic_flags(tiny.log[num_logged:]) == {"--num-workers=1"}


def test_what_was_typed_is_neither_chosen_nor_logged(tiny: TinyRun, monkeypatch: pytest.MonkeyPatch):
    on_machine(monkeypatch, replace(CPU, has_native_bfloat16=True))
    typed = {"amp": False, "batch_size": 8, "num_workers": 0}
    assert tiny.train(**UNTYPED | typed, max_steps=1) == 0
    assert automatic_flags(tiny.log) == {"--no-grad-checkpointing"}
    assert stored(tiny) == Train.model_construct().model_dump(include=set(Train.automatic))


def test_this_machine_has_facts_to_choose_from(tiny: TinyRun):
    assert tiny.train(**UNTYPED, max_steps=1) == 0
    step = [line for line in tiny.log.splitlines() if "--batch-tokens=" in line]
    assert len(step) == 1


@pytest.mark.failure(73)
def test_a_resume_on_a_gpu_too_small_is_refused_and_names_what_fits(tiny: TinyRun, monkeypatch):
    on_machine(monkeypatch, MachineFacts((BIG_GPU,), 1, 8 << 30))
    assert tiny.train(**UNTYPED, max_steps=2) == 0
    before = (tiny.output / "latest.pth").read_bytes()

    on_machine(monkeypatch, MachineFacts((SMALL_GPU,), 1, 8 << 30))
    assert tiny.train(**UNTYPED, max_steps=3, resume="auto") == 3
    [refusal] = re.findall(r"Resume failed: .*Small.*", tiny.log)
    assert (tiny.output / "latest.pth").read_bytes() == before
    flags = re.findall(r"--[a-z-]+(?:=\d+)?", refusal)
    assert {flag.partition("=")[0] for flag in flags} >= {"--batch-tokens", "--grad-accumulation"}

    # typed, the named settings resume the run; so do any others that the user insists on
    named = parse(Train, [*tiny.flags(**UNTYPED), *flags])
    fitting = {name: getattr(named, name) for name in named.model_fields_set & Train.automatic}
    assert tiny.train(**UNTYPED | fitting, max_steps=3, resume="auto") == 0
    assert stored(tiny)["batch_tokens"] == fitting["batch_tokens"]


def test_a_resume_on_the_same_gpu_is_not_refused(tiny: TinyRun, monkeypatch: pytest.MonkeyPatch):
    on_machine(monkeypatch, MachineFacts((BIG_GPU,), 1, 8 << 30))
    assert tiny.train(**UNTYPED, max_steps=2) == 0
    on_machine(monkeypatch, MachineFacts((replace(SMALL_GPU, name="cpu"),), 1, 8 << 30))  # as the checkpoint
    assert tiny.train(**UNTYPED, max_steps=3, resume="auto") == 0


HOURS_200 = EpochSize(120_000, 120_000 * 362, 800)


def command(*flags: str) -> Train:
    return parse(Train, ["--train-manifest=t", "--val-manifest=v", "--tokenizer=m", *flags])


def interval_of(given: Train, validation: EpochSize, world_size: int = 1) -> int:
    return _with_val_interval(given, HOURS_200, validation, world_size).val_interval


@pytest.mark.parametrize("num_val", [500, 6000, 40_000])
@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--batch-size=64"],
        ["--grad-accumulation=4", "--ema-decay=0.999"],
        ["--batch-tokens=16384"],
        ["--max-val-batches=50"],
    ],
    ids=lambda flags: " ".join(flags) or "defaults",
)
def test_forward_passes_of_validations_are_at_most_a_twentieth_of_the_operations(
    num_val: int, flags: list[str]
):
    given = command(*flags)
    validation = EpochSize(num_val, num_val * 362, 800)
    chosen = interval_of(given, validation)
    assert chosen >= 1000
    steps_of_epoch = HOURS_200.num_batches(given.batch_size, given.batch_tokens) / given.grad_accumulation
    trained = 3 * 362 * 120_000 / steps_of_epoch * chosen  # forward and backward, in forwards
    pairs = min(num_val, given.max_val_batches * 2 * given.batch_size or num_val)
    validated = pairs * 362 * (2 if given.ema_decay else 1)
    assert validated <= trained / 20 * 1.001
    if chosen > 1000:  # and not rarer than it must be
        assert validated > trained / 20 * 0.99


def test_a_run_stores_the_interval_it_chose_and_a_resume_keeps_it(tmp_path, monkeypatch):
    run = make_tiny_run(tmp_path / "tiny")
    monkeypatch.setattr(settings, "MAX_VALIDATION_SHARE", 0.0004)
    assert run.train(val_interval=None, max_steps=2) == 0
    chosen = json.loads((run.output / "config.json").read_text())["command"]["val_interval"]
    assert chosen > 1000
    assert f"Validating every {chosen} steps instead of every 1000" in run.log
    monkeypatch.undo()
    assert run.train(val_interval=None, max_steps=4, resume="auto") == 0
    assert json.loads((run.output / "config.json").read_text())["command"]["val_interval"] == chosen
    lines = [line for line in read_metrics(run.output / "metrics.jsonl") if line["kind"] == "val"]
    assert [line["step"] for line in lines] == [0, 2, 4]


@pytest.mark.parametrize(
    ("each", "whole"),
    [
        (["--batch-size=8"], ["--batch-size=32"]),
        (["--batch-tokens=4096"], ["--batch-tokens=16384"]),
        (["--batch-size=8", "--max-val-batches=50"], ["--batch-size=32", "--max-val-batches=50"]),
    ],
    ids=str,
)
def test_several_processes_validate_as_often_as_one_with_all_their_batches(each: list[str], whole: list[str]):
    validation = EpochSize(6000, 6000 * 362, 800)
    assert interval_of(command(*each), validation, world_size=4) == interval_of(command(*whole), validation)
