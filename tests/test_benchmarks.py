"""Tests of benchmarks/: frame, workload, training step, and the GPU round on a CPU."""

import copy
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from benchmarks import frame, gpu_round, train_step
from benchmarks.frame import Benchmark, publish, table
from benchmarks.reference import MEL_WEIGHT, TEXT_WEIGHT, ReferenceTrainer
from benchmarks.steps import Stepper
from benchmarks.workload import (
    build_model,
    config_of,
    groups_of,
    make_samples,
    num_positions,
    packed_batch,
    padded_batch,
    useful_operations,
)
from indextts.models.gpt.attention import BLOCKS
from indextts.training.losses import batch_sums
from tests.conftest import REPOSITORY
from tests.processor import needs_bfloat16_attention

pytestmark = pytest.mark.long

CPU, FLOAT32 = torch.device("cpu"), torch.float32


@pytest.fixture(autouse=True)
def _keep_settings():
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    yield
    torch.set_rng_state(state)
    torch.set_num_threads(threads)


class Example(Benchmark):
    program: ClassVar[str] = "benchmarks.example"
    repeats: int = 1
    folder: Path | None = None


def test_a_report_names_machine_commit_and_command_and_goes_to_the_results_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(frame, "RESULTS", tmp_path)
    command = Example(repeats=3, folder=tmp_path / "work")
    publish(command, "A title", table(["a", "b"], [["1", "2"]]))
    text = (tmp_path / "example.md").read_text(encoding="utf-8")
    assert text == capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0] == "# A title"
    assert all(each in lines[2] for each in (frame.git_commit(), frame.processor_name(), torch.__version__))
    assert lines[4] == "`python -m benchmarks.example --repeats=3`"
    assert lines[-3:] == ["| a | b |", "|---|---|", "| 1 | 2 |"]


def test_every_result_is_listed_and_every_command_of_the_list_exists():
    text = (REPOSITORY / "benchmarks/README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"\(results/([\w.]+)\)", text))
    assert listed == {path.name for path in (REPOSITORY / "benchmarks/results").iterdir()}
    for name in set(re.findall(r"-m benchmarks\.(\w+)", text)) - {"NAME"}:
        assert (REPOSITORY / f"benchmarks/{name}.py").is_file(), name


# At five times this learning rate the curve itself is unstable: rounding grows to 5e-4 within the 40 steps.
def test_padded_training_follows_the_reference_for_40_steps():
    config = config_of("tiny", dropout=0.0)
    model = build_model(config, CPU).train()
    reference = ReferenceTrainer(copy.deepcopy(model), num_frozen=0, dtype=FLOAT32, learning_rate=2e-4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, weight_decay=0.01)
    samples = make_samples(config, 160, longest_s=4.0)
    groups = groups_of([replace(sample, codes=sample.codes % 4) for sample in samples], 4)  # to be learned
    curve, reference_curve, packed_start = [], [], None
    for group in groups:
        batch = padded_batch(group)
        reference_curve.append(reference.step(batch)[:2])
        if packed_start is None:
            with torch.no_grad():
                packed_start = batch_sums(model, packed_batch(group, config), BLOCKS, 7).means().mel_loss
        sums = batch_sums(model, batch, BLOCKS, 7)
        text_loss, mel_loss = sums.text_nats / batch.num_text, sums.mel_nats / batch.num_mel
        (TEXT_WEIGHT * text_loss + MEL_WEIGHT * mel_loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        curve.append((text_loss.item(), mel_loss.item()))
    assert len(curve) == 40
    torch.testing.assert_close(torch.tensor(curve), torch.tensor(reference_curve), rtol=0, atol=1e-4)
    assert reference_curve[-1][1] < reference_curve[0][1] - 0.1, "nothing was learned"
    assert abs(packed_start - reference_curve[0][1]) > 1e-4, "all lengths were equal"


def test_every_variant_computes_the_loss_of_the_same_parameters_and_leaves_them():
    config = config_of("tiny", dropout=0.0)
    model = build_model(config, CPU).train()
    before = copy.deepcopy(model.state_dict())
    groups = groups_of(make_samples(config, 3), 3)
    losses = {v.name: float(Stepper(v, model, groups).step(0)) for v in train_step.ladder(FLOAT32)}
    padded = [losses[name] for name in list(losses)[:3]]
    packed = [losses[name] for name in list(losses)[3:6]]
    assert max(padded) - min(padded) < 1e-5
    assert max(packed) - min(packed) < 1e-5
    assert losses["bfloat16"] == pytest.approx(packed[0], abs=1e-2)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_report_has_a_row_for_each_variant(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    output = tmp_path / "report.md"
    flags = ["--size=tiny", "--batch=2", "--passes=1", "--device=cpu", f"--output={output}"]
    assert train_step.main([*flags, "--only=reference", "--only=fused AdamW"]) == 0
    report = output.read_text()
    assert report == capsys.readouterr().out
    rows = [line.split(" | ") for line in report.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows] == ["| variant", "| reference", "| fused AdamW"]
    assert all(float(row[4]) > 0 for row in rows[1:])


COMPILING = {"compile", "cached"}  # minutes on a CPU


def test_operations_are_near_three_billion_a_token_at_the_published_size():
    config = config_of("published", dropout=0.1)
    shape = config_of("tiny", dropout=0.1)
    samples = make_samples(shape, 50)  # the lengths of a tiny config's samples are those of any
    tokens = sum(num_positions(sample, config) for sample in samples)
    assert useful_operations(samples, config) / tokens == pytest.approx(3.0e9, rel=0.05)


@pytest.mark.slow
@needs_bfloat16_attention
def test_all_parts_of_the_gpu_round_run_on_the_cpu_and_give_one_report(tmp_path: Path):
    rows = tmp_path / "rows.jsonl"
    common = ["--rows", str(rows), "--device", "cpu", "--size", "tiny", "--steps", "1"]
    for part in gpu_round.PARTS:
        if part not in COMPILING:
            assert gpu_round.main(["--part", part, *common]) == 0
    written = [json.loads(line) for line in rows.read_text().splitlines()]
    assert {row["part"] for row in written} == set(gpu_round.PARTS) - COMPILING
    assert not [row for row in written if "failed" in row]
    output = tmp_path / "table.md"
    assert gpu_round.main(["--part", "table", *common, f"--output={output}"]) == 0
    report = output.read_text()
    assert all(row["what"] in report for row in written)


def test_the_script_of_the_gpu_round_runs_every_part_and_is_bash():
    script = REPOSITORY / "benchmarks/gpu_round.sh"
    assert subprocess.run(["bash", "-n", script]).returncode == 0
    (parts,) = re.findall(r'^parts="(.*)"$', script.read_text(), flags=re.MULTILINE)
    assert set(dict(part.split(":") for part in parts.split())) == set(gpu_round.PARTS)
