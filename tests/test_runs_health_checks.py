from dataclasses import replace
from pathlib import Path

import pytest

from indextts.runs.health.checks import (
    CHECKS,
    base_rows_changed,
    check_health,
    disk_filling,
    gpu_waiting,
    gradients_exploding,
    new_rows_unchanged,
    steps_skipped,
    unknown_pieces,
)
from indextts.runs.health.losses import jump_at_resume, language_forgotten, plateau, validation_rising
from indextts.runs.health.observed import Observed, read_observed
from indextts.runs.schedule import Schedule
from tests.written_run import GB, WrittenRun, fill_the_disk, run_with_problems


def test_a_run_with_all_problems_trips_every_check_problems_first(tmp_path: Path):
    run_dir = run_with_problems().write(tmp_path)
    fill_the_disk(run_dir)
    found = check_health(run_dir)
    names = {"disk", "saves", "base_rows", "new_rows", "skipped", "gradients", "resume_jump"}
    names |= {"plateau", "validation_rising", "unknown", "data_wait"}
    assert {finding.check for finding in found} == names
    assert len(found) == len(CHECKS) - 1  # a run of one language cannot forget another
    levels = [finding.level for finding in found]
    assert levels == sorted(levels)
    assert all(str(text) for finding in found for text in finding.texts)


def test_a_healthy_run_trips_no_check_at_any_line(tmp_path: Path):
    run = WrittenRun()
    run.facts(0)
    for step in range(100, 20_001, 100):
        run.train(step)
        if step % 1_000 == 0:
            run.val(step, 4.1 + 2 / (1 + step / 1_000))
            run.facts(step)
        if step == 9_000:
            run.start(step)
            run.facts(step, new_rows_moved_lately=0.0)
        if step % 700 == 0:
            assert check_health(run.write(tmp_path)) == []


def test_empty_missing_and_corrupt_files_have_no_findings(tmp_path: Path):
    assert check_health(tmp_path) == []
    assert check_health(tmp_path / "absent") == []
    for name in ("config.json", "exit.json", "metrics.jsonl"):
        (tmp_path / name).write_text('[1, 2\n{"kind": "train", "part": 1, "step": 1}\n[]\n')
    assert check_health(tmp_path) == []


# ---- disk space


def test_failed_saves_are_a_problem_until_one_succeeds(tmp_path: Path):
    run = WrittenRun()
    run.start()
    run.train(100)
    run.failed_save(100, failures=57)
    assert [finding.check for finding in check_health(run.write(tmp_path))] == ["saves"]
    (tmp_path / "model_step100.pth").touch()
    assert check_health(tmp_path) == []


RUN = Observed(lines=[], settings={"keep_checkpoints": 3}, num_checkpoints=1, checkpoint_bytes=10 * GB)


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({"free_bytes": 40 * GB}, None),
        ({"num_checkpoints": 4, "free_bytes": 11 * GB}, None),
        ({"free_bytes": 39 * GB}, "warning"),
        ({"num_checkpoints": 5, "free_bytes": 9 * GB}, "problem"),  # not enough for the next save
        ({"end_reason": "finished"}, None),
        ({"checkpoint_bytes": 0}, None),
    ],
)
def test_disk_space_is_needed_for_the_checkpoints_to_come(changes: dict, level: str | None):
    found = disk_filling(replace(RUN, **changes))
    assert (found and found.level) == level
    if level == "warning":
        assert "39.0 GB are free; a checkpoint takes 10.0 GB, and up to 4 more" in str(found)


# ---- text rows


def test_base_rows_that_change_are_named_with_the_step(tmp_path: Path):
    run = WrittenRun()
    for step in (0, 1_000, 2_000):
        run.facts(step)
    assert base_rows_changed(read_observed(run.write(tmp_path))) is None
    run.start(2_000)
    run.facts(2_000, base_rows="another")
    run.facts(3_000, base_rows="another")
    found = base_rows_changed(read_observed(run.write(tmp_path)))
    assert "9f86d081884c7d65 at step 0" in str(found)
    assert "another since step 2,000" in str(found)


def test_another_part_may_have_other_base_rows(tmp_path: Path):
    run = WrittenRun()
    run.facts(0)
    run.part = 2
    run.facts(0, base_rows="another")
    assert base_rows_changed(read_observed(run.write(tmp_path))) is None


def test_new_rows_that_do_not_or_barely_change_are_reported(tmp_path: Path):
    for moved in (0.0, 1e-8):
        run = WrittenRun()
        run.facts(0)
        run.train_to(1_000)
        run.facts(1_000, new_rows_moved_lately=moved)  # the rates of 1,000 steps of warm-up add up to 0.025
        found = new_rows_unchanged(read_observed(run.write(tmp_path)))
        assert "in 1,000 steps whose learning rates add up to 2.5e-02" in str(found)


def test_new_rows_on_a_random_walk_count_as_changing(tmp_path: Path):
    run = WrittenRun()
    run.facts(20_000, new_rows_moved_lately=3e-5 * 20_000**0.5)  # each step in another direction
    assert new_rows_unchanged(read_observed(run.write(tmp_path))) is None


def test_unknown_tokens_are_a_warning_and_many_of_them_a_problem(tmp_path: Path):
    levels = {}
    for share in (0.0, 0.004, 0.02, 0.25):
        run = WrittenRun()
        run.facts(0, unknown_share=share)
        found = unknown_pieces(read_observed(run.write(tmp_path)))
        levels[share] = found and (found.level, found.values["percent"])
    assert levels == {0.0: None, 0.004: None, 0.02: ("warning", 2.0), 0.25: ("problem", 25.0)}


# ---- steps


def test_exploding_gradients_are_named_and_one_high_norm_is_not(tmp_path: Path):
    run = WrittenRun()
    run.train_to(3_000)
    run.train(3_100, grad_norm=400.0)
    assert gradients_exploding(read_observed(run.write(tmp_path))) is None
    run.train_to(3_500, first=3_200, grad_norm=80.0)
    assert "80.0" in str(gradients_exploding(read_observed(run.write(tmp_path))))


def test_high_norms_at_the_start_are_not_an_explosion(tmp_path: Path):
    run = WrittenRun()
    run.train_to(500, grad_norm=50.0)
    run.train_to(3_000, first=600)
    assert gradients_exploding(read_observed(run.write(tmp_path))) is None


def test_skipped_steps_are_counted_since_the_process_started(tmp_path: Path):
    run = WrittenRun()
    run.train_to(2_000, num_skipped=4)
    run.start(2_000)
    run.train(2_100, num_skipped=4)
    assert steps_skipped(read_observed(run.write(tmp_path))) is None
    run.train(2_200, num_skipped=5, grad_norm=None)
    found = steps_skipped(read_observed(run.write(tmp_path)))
    assert found.level == "warning"
    assert "1 of the 200 steps since step 2,000" in str(found)
    run.train(2_300, num_skipped=11)
    found = steps_skipped(read_observed(run.write(tmp_path)))
    assert found.level == "problem"


def test_float16_may_skip_some_steps_to_find_its_scale(tmp_path: Path):
    run = WrittenRun(precision="float16")
    run.train(1_000, num_skipped=9)
    assert steps_skipped(read_observed(run.write(tmp_path))) is None
    run.train(1_100, num_skipped=30)
    assert steps_skipped(read_observed(run.write(tmp_path))) is not None


def test_a_waiting_gpu_is_reported_and_a_cpu_is_not(tmp_path: Path):
    run = WrittenRun()
    run.train_to(1_000)
    run.train(1_100, data_wait=0.6)  # once, as when a disk was busy
    assert gpu_waiting(read_observed(run.write(tmp_path))) is None
    run.train_to(1_600, first=1_200, data_wait=0.3)
    found = gpu_waiting(read_observed(run.write(tmp_path, num_workers=1)))
    assert "30 % of the time" in str(found)
    assert "now 1" in str(found)
    run.device = "cpu"
    assert gpu_waiting(read_observed(run.write(tmp_path))) is None


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
