from dataclasses import replace

from indextts.runs.health.checks import disk_filling
from indextts.runs.health.observed import Observed
from tests.written_run import GB

RUN = Observed(lines=[], settings={"keep_checkpoints": 3}, num_checkpoints=1, checkpoint_bytes=10 * GB)


def test_room_for_all_that_is_kept_is_enough():
    assert disk_filling(replace(RUN, free_bytes=40 * GB)) is None
    assert disk_filling(replace(RUN, num_checkpoints=4, free_bytes=11 * GB)) is None


def test_too_little_room_is_a_warning_and_none_for_the_next_save_a_problem():
    found = disk_filling(replace(RUN, free_bytes=39 * GB))
    assert found is not None
    assert found.level == "warning"
    assert "39.0 GB are free; a checkpoint takes 10.0 GB, and up to 4 more" in str(found)
    found = disk_filling(replace(RUN, num_checkpoints=5, free_bytes=9 * GB))
    assert found is not None
    assert found.level == "problem"


def test_a_finished_run_and_one_without_a_checkpoint_need_no_room():
    assert disk_filling(replace(RUN, end_reason="finished")) is None
    assert disk_filling(replace(RUN, checkpoint_bytes=0)) is None
