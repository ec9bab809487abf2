import json
from pathlib import Path

from indextts.runs.directory import read_metrics
from indextts.runs.health.checks import CHECKS, check_health, check_observed
from indextts.runs.health.observed import read_observed
from tests.written_run import WrittenRun, fill_the_disk, sick_run


def test_a_run_with_which_all_is_wrong_trips_every_check_problems_first(tmp_path: Path):
    run_dir = sick_run().write(tmp_path)
    fill_the_disk(run_dir)
    found = check_health(run_dir)
    names = {"disk", "base_rows", "new_rows", "learning_rate", "skipped", "gradients", "resume_jump"}
    names |= {"plateau", "validation_rising", "unknown", "data_wait"}
    assert {finding.check for finding in found} == names
    assert len(found) == len(CHECKS)
    levels = [finding.level for finding in found]
    assert levels == sorted(levels)
    for finding in found:
        for template in (finding.what, finding.evidence, finding.advice):
            assert template.format(**finding.values)


def test_a_run_that_goes_well_trips_no_check_at_any_of_its_lines(tmp_path: Path):
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


def test_an_empty_or_absent_directory_and_damaged_files_have_no_findings(tmp_path: Path):
    assert check_health(tmp_path) == []
    assert check_health(tmp_path / "absent") == []
    for name in ("config.json", "exit.json", "metrics.jsonl"):
        (tmp_path / name).write_text('[1, 2\n{"kind": "train", "part": 1, "step": 1}\n[]\n')
    assert check_health(tmp_path) == []


def test_an_older_directory_without_a_schedule_or_facts_is_read_as_far_as_it_goes(tmp_path: Path):
    run = WrittenRun()
    run.start()
    run.train_to(8_000, loss=4.4)
    run.write(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["schedule"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert [finding.check for finding in check_health(tmp_path)] == ["plateau"]


def test_lines_that_were_read_already_are_not_read_again(tmp_path: Path):
    run_dir = sick_run().write(tmp_path)
    lines = read_metrics(run_dir / "metrics.jsonl")
    expected = check_health(run_dir)
    (run_dir / "metrics.jsonl").unlink()
    assert check_health(run_dir, lines) == expected
    assert check_observed(read_observed(run_dir, lines)) == expected
