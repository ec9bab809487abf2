"""Tests of indextts/data/on_ray/cluster.py: who does not see the recordings judges none."""

from pathlib import Path

import pytest

from indextts.data.on_ray.cluster import require_folders
from indextts.errors import UserError


def test_a_machine_without_the_folder_of_one_recording_is_told_so(tmp_path: Path):
    with pytest.raises(UserError, match=r"absent is not on .*mount the disk there"):
        require_folders([tmp_path / "a.wav", tmp_path / "absent/b.wav"])


def test_a_recording_that_is_missing_in_its_folder_is_for_the_reader_to_judge(tmp_path: Path):
    require_folders([tmp_path / "missing.wav"])
