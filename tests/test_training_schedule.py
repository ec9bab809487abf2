"""Tests of indextts/training/schedule.py."""

import pytest

from indextts.training.schedule import Schedule


def test_the_warm_up_is_linear_and_reaches_the_peak_at_its_last_step():
    schedule = Schedule(peak=5e-5, warmup_steps=4000, total_steps=100_000)
    assert f"lr={schedule.learning_rate(100):.2e}" == "lr=1.25e-06"
    assert f"{schedule.learning_rate(4000):.2e}" == "5.00e-05"


def test_the_rate_falls_after_the_warm_up_and_the_last_step_still_learns():
    schedule = Schedule(peak=1.0, warmup_steps=10, total_steps=100)
    rates = [schedule.learning_rate(step) for step in range(10, 101)]
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 0.001
    assert schedule.learning_rate(55) == pytest.approx(0.5, abs=0.02)


def test_the_rate_stays_past_the_end_and_never_rises_again():
    schedule = Schedule(peak=1.0, warmup_steps=0, total_steps=10)
    assert schedule.learning_rate(50) == schedule.learning_rate(10)


def test_a_run_shorter_than_its_warm_up_only_warms_up():
    schedule = Schedule(peak=1.0, warmup_steps=100, total_steps=10)
    assert schedule.learning_rate(10) == 0.1


def test_no_warm_up_starts_at_the_peak_or_just_below():
    assert 0.97 < Schedule(peak=1.0, warmup_steps=0, total_steps=10).learning_rate(1) <= 1.0
