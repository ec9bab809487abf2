"""Tests of indextts/runs/schedule.py, and of the steps of `requested_schedule`."""

import itertools
import json
import math
from dataclasses import asdict, replace

import pytest

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.runs.restore import requested_schedule
from indextts.runs.schedule import EpochSize, Schedule


@pytest.mark.parametrize(
    ("numbers", "step", "rate"),
    [
        ((5e-5, 4000, 100_000), 100, "1.25e-06"),
        ((5e-5, 4000, 100_000), 4000, "5.00e-05"),
        ((1.0, 100, 10), 10, "1.00e-01"),  # shorter than its warm-up
        ((1.0, 0, 10), 1, "9.80e-01"),
        ((1.0, 10, 100), 55, "5.09e-01"),
        ((1.0, 0, 10), 50, f"{Schedule(1.0, 0, 10).learning_rate(10):.2e}"),  # past the end it stays
    ],
)
def test_the_rate_rises_linearly_and_falls_as_a_cosine(numbers: tuple, step: int, rate: str):
    assert f"{Schedule(*numbers).learning_rate(step):.2e}" == rate


def test_the_rate_falls_to_its_floor_and_a_changed_floor_is_reached_over_a_bridge():
    schedule = Schedule(1.0, 10, 1000, floor=0.08)
    assert schedule.learning_rate(1000) == pytest.approx(0.08, rel=1e-3)
    assert min(map(schedule.learning_rate, range(10, 1001))) > 0.08
    lower = schedule.re_anchored(900, peak=1.0, warmup_steps=10, total_steps=1000)
    assert lower.learning_rate(900) == pytest.approx(schedule.learning_rate(900))
    assert lower.learning_rate(1000) < 0.001


# peak, warm-up and length of the runs that are resumed below, and how far they got
RUNS = [
    pytest.param(Schedule(5e-5, 0, 1000), 400, id="no warm-up"),
    pytest.param(Schedule(5e-5, 200, 1000), 0, id="nothing done"),
    pytest.param(Schedule(5e-5, 200, 1000), 1, id="first step"),
    pytest.param(Schedule(5e-5, 200, 1000), 150, id="in the warm-up"),
    pytest.param(Schedule(5e-5, 200, 1000), 200, id="at the peak"),
    pytest.param(Schedule(5e-5, 200, 1000), 999, id="one step left"),
    pytest.param(Schedule(5e-5, 200, 1000), 1000, id="finished"),
    pytest.param(Schedule(5e-5, 200, 100), 100, id="finished in the warm-up"),
]
NEW_NUMBERS = [
    pytest.param((1e-5, 200, 1000), id="lower"),
    pytest.param((5e-4, 200, 1000), id="higher"),
    pytest.param((5e-5, 2000, 4000), id="longer warm-up"),
    pytest.param((5e-5, 200, 2000), id="longer"),
    pytest.param((5e-5, 200, 1001), id="a step longer"),
    pytest.param((5e-5, 200, 500), id="shorter than what is done"),
    pytest.param((5e-5, 0, 1500), id="no warm-up"),
]


def re_anchored(schedule: Schedule, step: int, numbers: tuple[float, int, int]) -> Schedule:
    peak, warmup_steps, total_steps = numbers
    return schedule.re_anchored(step, peak=peak, warmup_steps=warmup_steps, total_steps=total_steps)


def steepest(peak: float, warmup_steps: int, total_steps: int) -> float:
    """Return the largest change of a plain schedule between two steps."""
    up = peak / max(1, warmup_steps)
    down = peak * math.pi / 2 / max(1, total_steps + 1 - warmup_steps)
    return max(up, down)


@pytest.mark.parametrize(("schedule", "step"), RUNS)
@pytest.mark.parametrize("numbers", NEW_NUMBERS)
def test_changed_numbers_never_make_the_rate_jump(schedule: Schedule, step: int, numbers: tuple):
    new, plain = re_anchored(schedule, step, numbers), Schedule(*numbers)
    if step:
        assert new.learning_rate(step) == pytest.approx(schedule.learning_rate(step), rel=1e-12, abs=1e-20)
    distance = abs(schedule.learning_rate(step) - plain.learning_rate(step)) if step else 0.0
    limit = steepest(*numbers) + distance / max(1, new.bridge_steps)
    rates = [new.learning_rate(s) for s in range(step or 1, max(numbers[2], step) + 10)]
    assert min(rates) >= 0
    assert max(abs(b - a) for a, b in itertools.pairwise(rates)) <= limit * (1 + 1e-9)


@pytest.mark.parametrize(("schedule", "step"), RUNS)
@pytest.mark.parametrize("numbers", NEW_NUMBERS)
def test_after_the_bridge_the_new_curve_applies_to_the_last_half_of_the_steps(
    schedule: Schedule, step: int, numbers: tuple
):
    new, plain = re_anchored(schedule, step, numbers), Schedule(*numbers)
    end = max(step + 1, step + (numbers[2] - step) // 2)
    for later in range(end, end + 3000, 7):
        assert new.learning_rate(later) == plain.learning_rate(later)


def test_equal_numbers_keep_the_schedule_even_on_a_bridge():
    schedule = Schedule(5e-5, 200, 1000)
    assert re_anchored(schedule, 400, (5e-5, 200, 1000)) is schedule
    on_bridge = re_anchored(schedule, 400, (1e-5, 200, 1000))
    assert re_anchored(on_bridge, 450, (1e-5, 200, 1000)) is on_bridge


def test_a_run_on_a_bridge_can_be_changed_again():
    first = re_anchored(Schedule(5e-5, 200, 1000), 400, (1e-5, 200, 1000))
    rate = first.learning_rate(450)
    assert 1e-5 < rate < 5e-5
    second = re_anchored(first, 450, (3e-5, 200, 3000))
    assert second.learning_rate(450) == pytest.approx(rate, rel=1e-12)
    assert second.anchor_step == 450


def test_the_rate_of_a_finished_run_that_is_doubled_rises_to_half_its_peak():
    finished = Schedule(5e-5, 1000, 10_000)
    extended = re_anchored(finished, 10_000, (5e-5, 1000, 20_000))
    rates = [extended.learning_rate(step) for step in range(10_000, 20_001)]
    assert rates[0] < 1e-11
    assert rates[:1000] == sorted(rates[:1000])
    assert rates[1000] == Schedule(5e-5, 1000, 20_000).learning_rate(11_000) > 2e-5
    assert rates[1000:] == sorted(rates[1000:], reverse=True)


def test_a_rewarmed_run_rises_from_its_rate_to_the_new_peak_and_falls_to_almost_zero():
    finished = Schedule(5e-5, 1000, 10_000)
    rewarmed = replace(finished, total_steps=11_000).rewarmed(10_000, finished.learning_rate(10_000), 2e-5)
    rates = {step: rewarmed.learning_rate(step) for step in range(10_000, 11_001)}
    assert rates[10_000] == finished.learning_rate(10_000)
    assert rates[10_500] == pytest.approx(1e-5, rel=1e-6)
    assert rates[11_000] == 2e-5  # the warm-up fills what is left
    short = replace(rewarmed, warmup_steps=100)
    assert short.learning_rate(10_100) == 2e-5 == short.highest_after(10_000)[1]
    assert short.highest_after(10_000)[0] == 10_100
    falling = [short.learning_rate(step) for step in range(10_100, 11_001)]
    assert falling == sorted(falling, reverse=True)
    assert 0 < falling[-1] < 1e-10
    lower = short.re_anchored(10_500, peak=1e-5, warmup_steps=100, total_steps=11_000)
    assert lower.learning_rate(10_500) == pytest.approx(short.learning_rate(10_500))
    assert lower.learning_rate(10_900) == pytest.approx(short.learning_rate(10_900) / 2)
    longer = short.re_anchored(10_500, peak=2e-5, warmup_steps=100, total_steps=12_000)
    assert longer.highest_after(11_000)[1] > 1e-5


def test_the_highest_future_rate_is_that_of_the_highest_step():
    for schedule, after in (
        (Schedule(5e-5, 200, 1000), 0),
        (Schedule(5e-5, 200, 1000), 600),
        (Schedule(5e-5, 200, 50), 20),
        (Schedule(5e-5, 0, 1000).re_anchored(1000, peak=5e-5, warmup_steps=0, total_steps=1100), 1000),
        (Schedule(5e-5, 0, 1000).re_anchored(700, peak=1e-5, warmup_steps=0, total_steps=1000), 700),
    ):
        rates = {step: schedule.learning_rate(step) for step in range(after + 1, schedule.total_steps + 1)}
        step, rate = schedule.highest_after(after)
        assert rate == rates[step] == max(rates.values())


@pytest.mark.parametrize(("before", "step"), [(Schedule(5e-5, 1000, 5000), 300), (Schedule(1e-5, 0, 100), 0)])
def test_in_the_warm_up_and_before_the_first_step_new_numbers_need_no_bridge(before: Schedule, step: int):
    assert re_anchored(before, step, (5e-5, 1000, 9000)) == Schedule(5e-5, 1000, 9000)


def test_a_schedule_survives_json_to_the_last_bit():
    schedule = re_anchored(Schedule(5e-5 / 3, 200, 1000), 777, (1e-5 / 7, 200, 3000))
    again = Schedule(**json.loads(json.dumps(asdict(schedule))))
    assert again == schedule
    assert [again.learning_rate(s) for s in range(3001)] == [schedule.learning_rate(s) for s in range(3001)]


def counted(step: int = 0, epoch: int = 0, samples_done: int = 0, **changes: int) -> int:
    numbers = {"batch_size": 4, "batch_tokens": 0, "grad_accumulation": 2, "epochs": 3, "max_steps": 0}
    command = parse(Train, ["--train-manifest=t", "--val-manifest=v", "--tokenizer=m"])
    command = command.model_copy(update={**numbers, **changes})
    size, place = EpochSize(41, 41_000, 1400), {"step": step, "epoch": epoch, "samples_done": samples_done}
    return requested_schedule(command, size, **place).total_steps


def test_the_steps_of_a_run_are_the_same_seen_from_any_of_its_steps():
    order = [8, 8, 8, 8, 8, 1]  # samples of the steps of an epoch of 41
    step = 0
    for epoch in range(3):
        for position in range(len(order)):
            done = sum(order[:position])
            assert counted(step=step, epoch=epoch, samples_done=done) == 18
            step += 1
    assert counted(step=18, epoch=3) == 18


def test_another_batch_size_changes_only_future_steps():
    assert counted(step=3, epoch=0, samples_done=24, batch_size=17, grad_accumulation=1) == 3 + 1 + 2 * 3


def test_epochs_and_a_step_limit_decide_the_number_of_steps():
    assert counted(step=18, epoch=3, epochs=5) == 30
    assert counted(max_steps=7) == 7
    assert counted(max_steps=100) == 18
    assert counted(step=18, epoch=3, epochs=2) < 18


def test_a_budget_counts_positions():
    assert counted(batch_tokens=11_400) == 3 * 3  # 41,000 in batches of 10,000, two of them a step
    assert counted(batch_tokens=11_400, step=6, epoch=2) == 9
    assert counted(batch_tokens=11_400, step=8, epoch=2, samples_done=20) == 8 + 2
    assert counted(batch_tokens=10**6) == 3
