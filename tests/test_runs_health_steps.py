"""Tests of indextts/runs/health/steps.py."""

from dataclasses import replace
from pathlib import Path

from indextts.runs.health.observed import read_observed
from indextts.runs.health.steps import gpu_waiting, gradients_exploding, rate_off_schedule, steps_skipped
from indextts.runs.schedule import Schedule
from tests.written_run import WrittenRun


def test_a_rate_off_the_schedule_is_named(tmp_path: Path):
    run = WrittenRun()
    run.start()
    run.train_to(3_000)
    assert rate_off_schedule(read_observed(run.write(tmp_path))) is None
    run.train(3_100, lr=2e-5)
    found = rate_off_schedule(read_observed(run.write(tmp_path)))
    assert found is not None
    assert "step 3,100" in str(found)
    assert "2.00e-05" in str(found)
    assert " 4.8" in str(found)


def test_rates_before_a_resume_are_not_compared_with_the_new_schedule(tmp_path: Path):
    run = WrittenRun()
    run.start()
    run.train_to(3_000)
    run.schedule = run.schedule.re_anchored(3_000, peak=1e-5, warmup_steps=1_000, total_steps=20_000)
    run.start(3_000)
    run.train_to(4_000, first=3_100)
    assert rate_off_schedule(read_observed(run.write(tmp_path))) is None
    later = replace(run, schedule=Schedule(1e-5, 1_000, 20_000))  # the same without its bridge
    assert rate_off_schedule(read_observed(later.write(tmp_path))) is not None


def test_exploding_gradients_are_named_and_one_high_norm_is_not(tmp_path: Path):
    run = WrittenRun()
    run.start()
    run.train_to(3_000)
    run.train(3_100, grad_norm=400.0)
    assert gradients_exploding(read_observed(run.write(tmp_path))) is None
    run.train_to(3_500, first=3_200, grad_norm=80.0)
    found = gradients_exploding(read_observed(run.write(tmp_path)))
    assert found is not None
    assert "80.0" in str(found)


def test_high_norms_at_the_start_are_not_an_explosion(tmp_path: Path):
    run = WrittenRun()
    run.start()
    run.train_to(500, grad_norm=50.0)
    run.train_to(3_000, first=600)
    assert gradients_exploding(read_observed(run.write(tmp_path))) is None


def test_skipped_steps_are_counted_since_the_process_started(tmp_path: Path):
    run = WrittenRun()
    run.start()
    run.train_to(2_000, num_skipped=4)
    run.start(2_000)
    run.train(2_100, num_skipped=4)
    assert steps_skipped(read_observed(run.write(tmp_path))) is None
    run.train(2_200, num_skipped=5, grad_norm=None)
    found = steps_skipped(read_observed(run.write(tmp_path)))
    assert found is not None
    assert found.level == "warning"
    assert "1 of the 200 steps since step 2,000" in str(found)
    run.train(2_300, num_skipped=11)
    found = steps_skipped(read_observed(run.write(tmp_path)))
    assert found is not None
    assert found.level == "problem"


def test_float16_may_skip_some_steps_to_find_its_scale(tmp_path: Path):
    run = WrittenRun(precision="float16")
    run.start()
    run.train(1_000, num_skipped=9)
    assert steps_skipped(read_observed(run.write(tmp_path))) is None
    run.train(1_100, num_skipped=30)
    assert steps_skipped(read_observed(run.write(tmp_path))) is not None


def test_a_waiting_gpu_is_reported_and_a_cpu_is_not(tmp_path: Path):
    run = WrittenRun()
    run.start()
    run.train_to(1_000)
    run.train(1_100, data_wait=0.6)  # once, as when a disk was busy
    assert gpu_waiting(read_observed(run.write(tmp_path))) is None
    run.train_to(1_600, first=1_200, data_wait=0.3)
    found = gpu_waiting(read_observed(run.write(tmp_path, num_workers=1)))
    assert found is not None
    assert "30 % of the time" in str(found)
    assert "now 1" in str(found)
    run.device = "cpu"
    assert gpu_waiting(read_observed(run.write(tmp_path))) is None
