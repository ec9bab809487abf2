import time
from collections.abc import Iterator

import pytest
import torch

from indextts.training.metrics import SpeedMeter


def slow(number: int, seconds: float) -> Iterator[int]:
    for each in range(number):
        time.sleep(seconds)
        yield each


def test_waiting_for_data_is_counted_and_everything_else_is_not():
    pace = SpeedMeter(torch.device("cpu"))
    groups = slow(3, 0.05)
    assert [pace.next_group(groups) for _ in range(3)] == [0, 1, 2]
    time.sleep(0.15)  # work
    with pace.paused():
        time.sleep(0.3)
    pace.add(30)
    speed = pace.read()
    # sleeping takes at least as long as asked for, on a busy computer longer
    assert 0.1 < speed.data_wait < 0.9
    assert speed.tokens_per_second <= 30 / 0.3


def test_each_reading_begins_anew():
    pace = SpeedMeter(torch.device("cpu"))
    pace.next_group(slow(1, 0.05))
    assert pace.read().data_wait > 0.5
    time.sleep(0.01)
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
    pace.next_group(slow(1, 0.01))
    assert pace.read().data_wait == 0
