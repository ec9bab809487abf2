"""Tests of indextts/training/metrics.py: speed, time lost waiting for data, and start-up times."""

import logging
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from indextts.training import metrics
from indextts.training.metrics import SpeedMeter, StartupTimes
from tests.small_disk import needs_namespaces, run_with_disk


class Clock:
    """A clock that moves only when a test sleeps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def perf_counter(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def slow(self, number: int, seconds: float) -> Iterator[int]:
        for each in range(number):
            self.sleep(seconds)
            yield each


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(metrics, "time", clock)
    return clock


def test_only_waiting_for_data_counts_as_data_wait(clock: Clock):
    meter = SpeedMeter(torch.device("cpu"))
    groups = clock.slow(3, 0.05)
    assert [meter.next_group(groups) for _ in range(3)] == [0, 1, 2]
    clock.sleep(0.45)  # work
    with meter.paused():
        clock.sleep(0.3)
    meter.add(10, [3.0, 1.0])
    meter.add(20, [4.0, 4.0])
    assert meter.read() == pytest.approx(
        {"data_wait": 0.15 / 0.6, "tokens_per_second": 30 / 0.6, "imbalance": 7 / 6}
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_busy_gpu_has_not_waited():
    device = torch.device("cuda")
    meter = SpeedMeter(device)
    large = torch.rand(8192, 8192, device=device)
    torch.cuda.synchronize()
    for _ in range(100):
        large @ large
    meter.mark_submitted()
    meter.next_group(group for group in [0] if time.sleep(0.01) is None)
    assert meter.read()["data_wait"] == 0


def test_the_log_line_has_all_parts_in_order_and_their_sum(caplog: pytest.LogCaptureFixture):
    times = StartupTimes("imports")
    times.mark("pairs")
    time.sleep(0.1)
    times.mark("weights")
    with caplog.at_level(logging.INFO):
        times.log(7)
    (record,) = caplog.records
    found = re.fullmatch(
        r"Ready for step 7 after ([\d.]+) s: imports ([\d.]+), pairs ([\d.]+), weights ([\d.]+)",
        record.getMessage(),
    )
    total, *parts = map(float, found.groups())
    assert total == pytest.approx(sum(parts), abs=0.05 * (len(parts) + 1))
    assert parts[2] >= 0.1


FILL_THE_DISK = """
import logging, sys
from pathlib import Path
from indextts.training.losses import LossMeans
from indextts.training.metrics import MetricsLog
logging.basicConfig()
metrics = MetricsLog(Path(sys.argv[1]), part=1, step=0, epoch=0, total_steps=9)
for step in range(1, 2000):
    metrics.train(step, 0, LossMeans(1.0, 1.0, 0.5, 1.0), {"lr": 1e-3})
    if metrics.failing:
        break
metrics.close()
print("closed after step", step)
"""


@needs_namespaces
def test_a_full_disk_under_tensorboard_is_one_warning_without_a_traceback(tmp_path: Path):
    logs = tmp_path / "run/logs"
    logs.mkdir(parents=True)
    argv = [sys.executable, "-c", FILL_THE_DISK, str(logs.parent)]
    ran = run_with_disk(logs, 16_384, argv, tmp_path / "copy")
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[-1]) < 1999
    assert ran.stderr.count("Cannot write the metrics") == 1
    assert "Traceback" not in ran.stderr
