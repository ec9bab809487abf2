"""Tests of benchmarks/profile_step.py: every operator is counted once, under the heading it belongs to."""

from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import profile_step
from benchmarks.profile_step import HEADINGS, OPTIMIZER, OTHER, by_heading, heading_of
from benchmarks.workload import config_of


@pytest.fixture(autouse=True)
def _keep_settings():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


@pytest.mark.parametrize(
    ("operator", "heading"),
    [
        ("aten::mm", "matrix products"),
        ("aten::addmm_", "matrix products"),
        ("aten::bmm", "attention"),
        ("aten::_softmax", "attention"),
        ("aten::_log_softmax", "losses"),
        ("aten::gelu_backward", "GELU, sums and products, value by value"),
        ("aten::ge", "drawing of dropout"),
        ("aten::add_", "GELU, sums and products, value by value"),
        ("aten::_fused_adamw_", OPTIMIZER),
        ("aten::copy_", "copies and memory"),
        ("AddmmBackward0", OTHER),
    ],
)
def test_an_operator_has_the_heading_of_what_it_does(operator: str, heading: str):
    assert heading_of(operator) == heading


def test_what_an_optimizer_calls_is_the_optimizers_and_the_sum_is_that_of_all_operators():
    weight = torch.nn.Parameter(torch.ones(200, 200))
    optimizer = torch.optim.AdamW([weight], lr=0.1, foreach=False)
    (weight @ weight).sum().backward()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        optimizer.step()
        weight.detach() @ weight.detach()
    seconds = by_heading(found.events())
    assert seconds["matrix products"] > 0
    assert seconds[OPTIMIZER] > 0
    assert seconds["GELU, sums and products, value by value"] == 0  # AdamW's own mul_, sqrt, addcdiv_
    total = sum(event.self_cpu_time_total for event in found.events()) / 1e6
    assert sum(seconds.values()) == pytest.approx(total)


def test_the_peak_is_what_the_shapes_say(monkeypatch: pytest.MonkeyPatch):
    clock = iter([0.0, 2.0, 10.0, 11.0])
    monkeypatch.setattr(profile_step.time, "process_time", lambda: next(clock))
    config = config_of("tiny", dropout=0.0)
    assert profile_step.matrix_peak(config, torch.float32, rows=8, turns=2) == 2 * 8 * 64 * 256 / 1.0


def test_the_report_has_both_steps_and_the_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    output = tmp_path / "profile.md"
    assert profile_step.main(["--size=tiny", "--batch=2", "--passes=1", f"--output={output}"]) == 0
    assert output.read_text() == capsys.readouterr().out
    rows = [line.strip("| ").split(" | ") for line in output.read_text().splitlines() if line[:2] == "| "]
    shares = {row[0]: row for row in rows if row[0] in {*HEADINGS, OTHER}}
    assert list(shares) == [*HEADINGS, OTHER]
    for column in (2, 4):
        assert sum(float(row[column].rstrip("%")) for row in shares.values()) == pytest.approx(100, abs=1)
    rates = {row[0]: float(row[1]) for row in rows if row[0].startswith("a second")}
    assert len(rates) == 3
    assert all(rate > 0 for rate in rates.values())
