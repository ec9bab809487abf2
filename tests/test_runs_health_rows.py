"""Tests of indextts/runs/health/rows.py."""

from pathlib import Path

from indextts.runs.health.observed import read_observed
from indextts.runs.health.rows import base_rows_changed, new_rows_unchanged, unknown_pieces
from tests.written_run import WrittenRun


def test_base_rows_that_change_are_named_with_the_step(tmp_path: Path):
    run = WrittenRun()
    run.start()
    for step in (0, 1_000, 2_000):
        run.facts(step)
    assert base_rows_changed(read_observed(run.write(tmp_path))) is None
    run.start(2_000)
    run.facts(2_000, base_rows="another")
    run.facts(3_000, base_rows="another")
    found = base_rows_changed(read_observed(run.write(tmp_path)))
    assert found is not None
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
        run.start()
        run.facts(0)
        run.train_to(1_000)
        run.facts(1_000, new_rows_moved=moved)  # the rates of 1,000 steps of warm-up add up to 0.025
        found = new_rows_unchanged(read_observed(run.write(tmp_path)))
        assert found is not None
        assert "in 1,000 steps whose learning rates add up to 2.5e-02" in str(found)


def test_new_rows_on_a_random_walk_count_as_changing(tmp_path: Path):
    run = WrittenRun()
    run.start()
    run.facts(20_000, new_rows_moved=3e-5 * 20_000**0.5)  # each step in another direction
    assert new_rows_unchanged(read_observed(run.write(tmp_path))) is None


def test_new_rows_need_not_change_before_the_first_steps(tmp_path: Path):
    run = WrittenRun()
    run.start(5_000)
    run.facts(5_000, new_rows_moved=0.0)
    run.facts(5_010, new_rows_moved=0.0)
    assert new_rows_unchanged(read_observed(run.write(tmp_path))) is None


def test_unknown_tokens_are_a_warning_and_many_of_them_a_problem(tmp_path: Path):
    levels = {}
    for share in (0.0, 0.004, 0.02, 0.25):
        run = WrittenRun()
        run.facts(0, unknown_share=share)
        found = unknown_pieces(read_observed(run.write(tmp_path)))
        levels[share] = found and (found.level, found.values["percent"])
    assert levels == {0.0: None, 0.004: None, 0.02: ("warning", 2.0), 0.25: ("problem", 25.0)}
