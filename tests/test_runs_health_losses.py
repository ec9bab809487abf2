"""Tests of indextts/runs/health/losses.py."""

from pathlib import Path

import pytest

from indextts.runs.health.losses import jump_at_resume, language_forgotten, plateau, validation_rising
from indextts.runs.health.observed import read_observed
from indextts.runs.schedule import Schedule
from tests.written_run import WrittenRun


@pytest.mark.parametrize("noise", [0.005, 0.03, 0.05])
def test_a_plateau_of_7_000_steps_is_found_despite_noise(tmp_path: Path, noise: float):
    run = WrittenRun(noise=noise, schedule=Schedule(5e-5, 1_000, 22_500))
    run.train_to(4_000)
    for step in range(4_100, 11_001, 100):
        run.train(step, 4.4)
    found = plateau(read_observed(run.write(tmp_path)))
    assert found.level == "problem"
    assert 5_500 <= found.values["steps"] <= 7_800
    assert found.values["last"] == 11_000
    assert f"not fallen for {found.values['steps']:,} steps" in str(found)


@pytest.mark.parametrize("seed", range(8))
def test_a_slow_fall_under_noise_is_not_a_plateau(tmp_path: Path, seed: int):
    run = WrittenRun(noise=0.05)
    run.random.seed(seed)
    for step in range(100, 12_001, 100):
        run.train(step, 5.0 - 0.6 * step / 12_000)
        if step % 1_000 == 0:
            assert plateau(read_observed(run.write(tmp_path))) is None


def test_losses_may_be_flat_in_warm_up_and_at_the_end_of_the_schedule(tmp_path: Path):
    run = WrittenRun(schedule=Schedule(5e-5, 4_000, 20_000))
    run.train_to(800, loss=6.0)
    assert plateau(read_observed(run.write(tmp_path))) is None
    for step in range(900, 15_000, 100):
        run.train(step, 6.0 - 2 * step / 15_000)
    run.train_to(20_000, first=15_000, loss=4.0)
    assert plateau(read_observed(run.write(tmp_path))) is None


def test_an_improving_validation_is_not_a_plateau(tmp_path: Path):
    run = WrittenRun(noise=0.01)
    run.train_to(8_000, loss=4.4)
    assert plateau(read_observed(run.write(tmp_path))) is not None
    for step in range(1_000, 8_001, 1_000):
        run.val(step, 4.6 - 0.03 * step / 1_000)
    assert plateau(read_observed(run.write(tmp_path))) is None


def test_the_speech_loss_is_named_if_only_the_text_loss_falls(tmp_path: Path):
    run = WrittenRun(noise=0.01)
    for step in range(100, 8_001, 100):
        run.train(step, 4.4, text_loss=8.0 - step / 2_000)
    found = plateau(read_observed(run.write(tmp_path)))
    assert found.level == "warning"
    assert "mel_loss) has not fallen" in str(found)


def test_a_rising_validation_is_named_with_the_best_step(tmp_path: Path):
    run = WrittenRun()
    run.train_to(8_000)
    for step, loss in ((0, 5.9), (1_000, 4.9), (2_000, 4.6), (3_000, 4.66), (4_000, 4.7)):
        run.val(step, loss)
    assert validation_rising(read_observed(run.write(tmp_path))) is None  # two could be chance
    run.val(5_000, 4.8)
    assert "4.600 at step 2,000" in str(validation_rising(read_observed(run.write(tmp_path))))
    run.val(6_000, 4.59)
    assert validation_rising(read_observed(run.write(tmp_path))) is None


def test_validations_that_scatter_around_the_best_are_not_rising(tmp_path: Path):
    run = WrittenRun()
    for number, loss in enumerate((4.9, 4.6, 4.62, 4.61, 4.63, 4.60, 4.62)):
        run.val(1_000 * number, loss)
    assert validation_rising(read_observed(run.write(tmp_path))) is None


def test_a_language_whose_loss_rose_by_over_five_percent_since_the_start_is_named(tmp_path: Path):
    run = WrittenRun()
    for step, (am, en) in enumerate([(5.9, 4.0), (5.0, 4.1), (4.5, 4.19)]):
        run.val(1_000 * step, 5.0)
        run.lines[-1] |= {"mel_loss_am": am, "mel_loss_en": en}
    assert language_forgotten(read_observed(run.write(tmp_path))) is None
    run.val(3_000, 5.0)
    run.lines[-1] |= {"mel_loss_am": 4.4, "mel_loss_en": 4.24}
    found = language_forgotten(read_observed(run.write(tmp_path)))
    assert (found.values["language"], found.values["step"]) == ("en", 3_000)
    assert "4.000 at step 0 and is 4.240 at step 3,000, 6.0 %" in str(found)


def resumed_run(after: float) -> WrittenRun:
    run = WrittenRun()
    run.train_to(5_000, loss=4.5)
    run.start(5_000)
    run.train_to(5_600, first=5_100, loss=after)
    return run


def test_a_jump_at_a_resume_is_reported_until_the_losses_recover(tmp_path: Path):
    run = resumed_run(after=5.2)
    found = jump_at_resume(read_observed(run.write(tmp_path)))
    assert found.values["step"] == 5_000
    assert found.values["before"] == pytest.approx(4.5, abs=0.03)
    assert found.values["after"] == pytest.approx(5.2, abs=0.03)
    run.train_to(7_000, first=5_700, loss=4.3)
    assert jump_at_resume(read_observed(run.write(tmp_path))) is None


def test_a_resume_with_the_same_losses_is_not_a_jump(tmp_path: Path):
    assert jump_at_resume(read_observed(resumed_run(after=4.5).write(tmp_path))) is None


def test_a_rise_within_the_noise_is_not_a_jump(tmp_path: Path):
    run = WrittenRun(noise=0.3)
    run.train_to(5_000, loss=4.5)
    run.start(5_000)
    run.train_to(5_200, first=5_100, loss=4.8)
    assert jump_at_resume(read_observed(run.write(tmp_path))) is None


def test_a_new_run_part_does_not_jump(tmp_path: Path):
    run = WrittenRun()
    run.train_to(5_000, loss=4.5)
    run.part = 2
    run.start()
    run.train_to(1_000, loss=6.0)
    assert jump_at_resume(read_observed(run.write(tmp_path))) is None
