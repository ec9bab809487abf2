"""Tests of indextts/planning/preflight.py: each check reports its problem with a solution."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from indextts.commands.launching import Launch
from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.data.manifest import read_pairs, write_pairs
from indextts.planning import estimate as disk
from indextts.planning.hardware import GpuFacts, MachineFacts
from indextts.planning.preflight import Preflight, run_preflight
from indextts.runs.restore_rows import RestoreRow
from indextts.system.processes import this_process
from indextts.webui.training.training_outlook import plan_rows
from tests.conftest import REPOSITORY
from tests.tiny_run import BASE_TOKENIZER, TYPED, TinyRun, make_tiny_run, write_tokenizer

CPU = MachineFacts((), 2, 8 << 30)


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return make_tiny_run(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    run = make_tiny_run(tmp_path_factory.mktemp("trained"))
    assert run.train(max_steps=2) == 0
    (run.output / ".lock").write_text("")  # the pid of this process, which stays alive
    return run


@pytest.fixture
def run(shared_run: TinyRun, tmp_path: Path) -> TinyRun:
    """The files of a run, for this test only."""
    return TinyRun(shutil.copytree(shared_run.folder, tmp_path / "run"))


@pytest.fixture
def stopped(trained: TinyRun, tmp_path: Path) -> TinyRun:
    """A run stopped at step 2, for this test only."""
    return TinyRun(shutil.copytree(trained.folder, tmp_path / "run"))


def preflight_of(run: TinyRun, **changes: object) -> Preflight:
    return run_preflight(parse(Train, run.flags(**changes)), CPU)


def messages_of(result: Preflight) -> dict[str, str]:
    return {problem.about: str(problem.message) for problem in result.problems}


def test_a_run_that_can_start_has_an_estimate_and_no_problems(run: TinyRun):
    result = preflight_of(run)
    assert messages_of(result) == {}
    assert result.estimate.total_steps == 12
    assert result.resumed is None


@pytest.mark.failure(71)
def test_the_plan_of_a_new_run_warns_of_a_warm_up_longer_than_the_run(run: TinyRun):
    def rows(warmup_steps: int) -> list[RestoreRow]:
        flags = run.flags(warmup_steps=warmup_steps)
        return plan_rows(parse(Train, flags), preflight_of(run, warmup_steps=warmup_steps))

    assert rows(13)[:-1] == rows(12)
    assert rows(13)[-1].kind == "changed"
    assert "13" in str(rows(13)[-1])
    assert "12" in str(rows(13)[-1])


@pytest.mark.parametrize("setting", ["warmup_steps", "val_interval", "save_interval"])
def test_a_new_run_in_which_a_setting_never_takes_effect_is_blocked_with_a_better_value(
    run: TinyRun, setting: str
):
    [message] = messages_of(preflight_of(run, **{setting: 13})).values()
    assert "12 steps" in message
    assert " 2 or fewer" in message


def test_a_disk_that_is_too_small_blocks(run: TinyRun, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(disk, "free_bytes", lambda folder: 10**9)
    message = messages_of(preflight_of(run))["disk"]
    assert str(run.output) in message
    assert "1.00 GB" in message


UTTERANCE = '{"id": "a", "audio": "a.wav", "text": "x", "speaker": "s", "duration": 1}\n'


@pytest.mark.parametrize(
    ("changes", "about", "words"),
    [
        ({"train_manifest": "utterances.jsonl"}, "pairs", ["jsonl:1:", "tools/build_gpt_prompt_pairs.py"]),
        ({"val_manifest": "utterances.jsonl"}, "pairs", ["jsonl:1:", "tools/build_gpt_prompt_pairs.py"]),
        ({"train_manifest": "x.jsonl"}, "pairs", ["tab 5"]),
        ({"tokenizer": "x.model"}, "tokenizer", ["tab 3"]),
        ({"tokenizer": BASE_TOKENIZER}, "tokenizer", [f"--tokenizer {BASE_TOKENIZER}"]),  # knows no Amharic
        ({"resume": "auto"}, "resume", ["run"]),
        ({"resume": "x.pth"}, "resume", ["Resume checkpoint not found"]),
        ({"batch_tokens": 10}, "settings", ["--batch-tokens 10"]),
    ],
    ids=str,
)
def test_what_cannot_start_is_reported_with_its_solution(
    run: TinyRun, changes: dict[str, object], about: str, words: list[str]
):
    (run.folder / "utterances.jsonl").write_text(UTTERANCE)
    if str(next(iter(changes.values()))).endswith((".jsonl", "x.model", ".pth")):
        changes = {name: run.folder / str(value) for name, value in changes.items()}
    message = messages_of(preflight_of(run, **changes))[about]
    assert [word for word in words if word not in message] == []


def test_a_problem_of_a_file_is_reported_once(run: TinyRun):
    (run.folder / "tokenizer.model").write_bytes(b"no model")
    messages = [str(problem.message) for problem in preflight_of(run).problems]
    assert len(messages) == len(set(messages)) == 1


def test_pairs_that_are_all_too_long_block(run: TinyRun):
    [path] = parse(Train, run.flags()).train_manifest
    write_pairs(path, [replace(pair, target_num_codes=31) for pair in read_pairs(path)])
    assert str(path) in messages_of(preflight_of(run))["pairs"]
    write_pairs(path, [replace(pair, target_num_codes=30) for pair in read_pairs(path)])
    assert messages_of(preflight_of(run)) == {}


def test_a_tokenizer_of_another_base_blocks(run: TinyRun):
    other = run.folder / "base/bpe.model"
    write_tokenizer(other, num_appended=330)  # more pieces than the run's own
    message = messages_of(preflight_of(run))["tokenizer"]
    assert str(other) in message
    assert "tools/extend_bpe.py" in message


def test_a_missing_base_blocks_a_new_run_but_not_a_resume(stopped: TinyRun):
    (stopped.folder / "base/gpt.pth").unlink()
    assert "gpt.pth" in messages_of(preflight_of(stopped, output_dir=stopped.folder / "new"))["base"]
    assert messages_of(preflight_of(stopped, resume="auto", max_steps=9)) == {}


def test_a_run_directory_in_use_blocks(run: TinyRun):
    run.output.mkdir()
    lock = run.output / ".lock"
    lock.write_text(json.dumps(asdict(this_process())))
    assert str(run.output) in messages_of(preflight_of(run))["folder"]
    lock.write_text(json.dumps(asdict(replace(this_process(), start_ticks=1))))
    assert messages_of(preflight_of(run)) == {}


def test_a_new_run_in_a_folder_with_checkpoints_blocks(stopped: TinyRun):
    assert str(stopped.output) in messages_of(preflight_of(stopped))["resume"]
    result = preflight_of(stopped, resume="auto", max_steps=9)
    assert messages_of(result) == {}
    assert result.resumed.checkpoint.step == 2


def test_a_truncated_checkpoint_blocks_without_being_read(stopped: TinyRun):
    path = stopped.output / "model_step2.pth"
    assert messages_of(preflight_of(stopped, resume=path, max_steps=9)) == {}
    os.truncate(path, path.stat().st_size - 1)
    assert "model_step2.pth" in messages_of(preflight_of(stopped, resume=path))["resume"]


@pytest.mark.parametrize(("changes", "number"), [({"max_steps": 2}, "2"), ({"max_steps": 1}, "1")])
def test_a_resume_with_nothing_left_to_do_blocks(stopped: TinyRun, changes: dict[str, int], number: str):
    result = preflight_of(stopped, resume="auto", **changes)
    assert number in messages_of(result)["resume"]
    assert result.estimate is not None
    assert messages_of(preflight_of(stopped, resume="auto", max_steps=3)) == {}


GPU = GpuFacts("NVIDIA L4", 22_478 << 20, (8, 9))
TWO_GPUS = MachineFacts((GPU, replace(GPU, number=1)), 8, 32 << 30)


@pytest.mark.parametrize(
    ("machine", "launch", "problem"),
    [
        (TWO_GPUS, Launch(processes=2), None),
        (TWO_GPUS, Launch(gpus="1"), None),
        (TWO_GPUS, Launch(processes=3), "3 processes"),
        (TWO_GPUS, Launch(gpus="0,7"), "GPU 7"),
        (CPU, Launch(processes=2), None),
        (CPU, Launch(processes=3), "2 cores"),
        (CPU, Launch(gpus="0"), "NVIDIA GPU"),
    ],
)
def test_more_processes_than_gpus_block(
    run: TinyRun, machine: MachineFacts, launch: Launch, problem: str | None
):
    result = run_preflight(parse(Train, run.flags()), machine, launch=launch)
    if problem is None:
        assert messages_of(result) == {}
        assert result.estimate.facts.num_processes == launch.processes
    else:
        assert problem in messages_of(result)["launch"]
        assert result.estimate is None


@pytest.mark.failure(73)
def test_a_gpu_too_small_for_the_run_to_resume_blocks_and_what_fits_does_not(stopped: TinyRun):
    def problems(extra: int, **changes: object) -> dict[str, str]:
        untyped = dict.fromkeys(TYPED)
        command = parse(Train, stopped.flags(resume="auto", max_steps=9, **untyped | changes))
        gpu = GpuFacts("Tiny", (1 << 30) + extra, (8, 9))  # CUDA takes 1 GiB
        return messages_of(run_preflight(command, MachineFacts((gpu,), 2, 8 << 30)))

    extra = max(size for size in range(1 << 17, 1 << 22, 1 << 17) if problems(size))
    held = problems(extra)
    assert held.keys() == {"resume"}
    assert re.search(r"Tiny.* --\S+", held["resume"])
    flags = dict(re.findall(r"--([a-z-]+)=(\d+)", held["resume"]))
    assert problems(extra, **{name.replace("-", "_"): value for name, value in flags.items()}) == {}
    assert problems(extra, batch_size=3) == {}  # the user's own choice, which the trainer splits if it must


def test_preflight_of_a_resume_loads_neither_torch_nor_gradio(stopped: TinyRun):
    program = (
        "import sys\n"
        "from indextts.commands.terminal import parse\n"
        "from indextts.commands.train import Train\n"
        "from indextts.planning.preflight import run_preflight\n"
        "from indextts.planning.hardware import find_machine\n"
        "command = parse(Train)\n"
        "found = run_preflight(command, find_machine())\n"
        "assert found.estimate and found.resumed\n"
        "assert not {'torch', 'gradio', 'transformers'} & set(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    answer = subprocess.run(
        [sys.executable, "-c", program, *stopped.flags(resume="auto", max_steps=9)],
        cwd=REPOSITORY,
        env=environment,
        check=False,
    )
    assert answer.returncode == 0
