"""Tests of indextts/runs/health/checks.py: all checks together, and the disk check."""

import json
from dataclasses import replace
from pathlib import Path

from indextts.runs.directory import read_metrics
from indextts.runs.health.checks import CHECKS, check_health, check_observed, disk_filling
from indextts.runs.health.observed import Observed, read_observed
from tests.written_run import GB, WrittenRun, fill_the_disk, run_with_problems


def test_a_run_with_all_problems_trips_every_check_problems_first(tmp_path: Path):
    run_dir = run_with_problems().write(tmp_path)
    fill_the_disk(run_dir)
    found = check_health(run_dir)
    names = {"disk", "base_rows", "new_rows", "learning_rate", "skipped", "gradients", "resume_jump"}
    names |= {"plateau", "validation_rising", "unknown", "data_wait"}
    assert {finding.check for finding in found} == names
    assert len(found) == len(CHECKS) - 1  # a run of one language cannot forget another
    levels = [finding.level for finding in found]
    assert levels == sorted(levels)
    assert all(str(text) for finding in found for text in finding.texts)


def test_a_healthy_run_trips_no_check_at_any_line(tmp_path: Path):
    run = WrittenRun()
    run.start()
    run.facts(0)
    for step in range(100, 20_001, 100):
        run.train(step)
        if step % 1_000 == 0:
            run.val(step, 4.1 + 2 / (1 + step / 1_000))
            run.facts(step)
        if step == 9_000:
            run.start(step)
            run.facts(step, new_rows_moved=0.0)
        if step % 700 == 0:
            assert check_health(run.write(tmp_path)) == []


def test_empty_missing_and_corrupt_files_have_no_findings(tmp_path: Path):
    assert check_health(tmp_path) == []
    assert check_health(tmp_path / "absent") == []
    for name in ("config.json", "exit.json", "metrics.jsonl"):
        (tmp_path / name).write_text('[1, 2\n{"kind": "train", "part": 1, "step": 1}\n[]\n')
    assert check_health(tmp_path) == []


def test_a_directory_without_schedule_and_facts_is_read(tmp_path: Path):
    run = WrittenRun()
    run.start()
    run.train_to(8_000, loss=4.4)
    run.write(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["schedule"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert [finding.check for finding in check_health(tmp_path)] == ["plateau"]


def test_given_metrics_lines_are_not_read_again(tmp_path: Path):
    run_dir = run_with_problems().write(tmp_path)
    lines = read_metrics(run_dir / "metrics.jsonl")
    expected = check_health(run_dir)
    (run_dir / "metrics.jsonl").unlink()
    assert check_health(run_dir, lines) == expected
    assert check_observed(read_observed(run_dir, lines)) == expected


# ---- disk space


RUN = Observed(lines=[], settings={"keep_checkpoints": 3}, num_checkpoints=1, checkpoint_bytes=10 * GB)


def test_disk_space_for_all_kept_checkpoints_is_enough():
    assert disk_filling(replace(RUN, free_bytes=40 * GB)) is None
    assert disk_filling(replace(RUN, num_checkpoints=4, free_bytes=11 * GB)) is None


def test_low_disk_space_is_a_warning_and_none_for_the_next_save_a_problem():
    found = disk_filling(replace(RUN, free_bytes=39 * GB))
    assert found is not None
    assert found.level == "warning"
    assert "39.0 GB are free; a checkpoint takes 10.0 GB, and up to 4 more" in str(found)
    found = disk_filling(replace(RUN, num_checkpoints=5, free_bytes=9 * GB))
    assert found is not None
    assert found.level == "problem"


def test_a_finished_run_and_a_run_without_checkpoints_need_no_disk_space():
    assert disk_filling(replace(RUN, end_reason="finished")) is None
    assert disk_filling(replace(RUN, checkpoint_bytes=0)) is None
