import time
from collections.abc import Iterator

import pytest
import torch

from indextts.training import metrics
from indextts.training.metrics import SpeedMeter


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


def test_waiting_for_data_is_counted_and_everything_else_is_not(clock: Clock):
    pace = SpeedMeter(torch.device("cpu"))
    groups = clock.slow(3, 0.05)
    assert [pace.next_group(groups) for _ in range(3)] == [0, 1, 2]
    clock.sleep(0.45)  # work
    with pace.paused():
        clock.sleep(0.3)
    pace.add(30)
    speed = pace.read()
    assert speed.data_wait == pytest.approx(0.15 / 0.6)
    assert speed.tokens_per_second == pytest.approx(30 / 0.6)


def test_each_reading_begins_anew(clock: Clock):
    pace = SpeedMeter(torch.device("cpu"))
    pace.next_group(clock.slow(1, 0.05))
    assert pace.read().data_wait == 1
    clock.sleep(0.01)
    speed = pace.read()
    assert (speed.data_wait, speed.tokens_per_second) == (0, 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_card_that_is_busy_has_not_waited():
    device = torch.device("cuda")
    pace = SpeedMeter(device)
    large = torch.rand(8192, 8192, device=device)
    torch.cuda.synchronize()
    for _ in range(100):
        large @ large
    pace.mark_submitted()
    pace.next_group(group for group in [0] if time.sleep(0.01) is None)
    assert pace.read().data_wait == 0
