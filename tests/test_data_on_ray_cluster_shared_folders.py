"""Tests of indextts/data/on_ray/cluster.py: who does not see the recordings judges none."""

from pathlib import Path

import pytest

from indextts.data.on_ray.cluster import require_folders
from indextts.errors import UserError


def test_a_machine_without_a_recordings_folder_is_an_error(tmp_path: Path):
    with pytest.raises(UserError, match=r"absent: "):
        require_folders([tmp_path / "a.wav", tmp_path / "absent/b.wav"])


def test_a_missing_recording_in_an_existing_folder_is_accepted(tmp_path: Path):
    require_folders([tmp_path / "missing.wav"])
