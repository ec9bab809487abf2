"""Tests of indextts/planning/hardware.py: both versions of the kernel's files, as they look."""

from pathlib import Path

from indextts.planning.hardware import container_limit, container_use

NO_LIMIT = 9223372036854771712  # as version 1 says it


def test_without_control_groups_nothing_is_known(tmp_path: Path):
    assert container_limit(tmp_path) is None
    assert container_use(tmp_path) is None


def test_version_2_says_limit_and_use(tmp_path: Path):
    (tmp_path / "memory.max").write_text("max\n")
    assert container_limit(tmp_path) is None
    (tmp_path / "memory.max").write_text("8589934592\n")
    (tmp_path / "memory.current").write_text("3000000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 1000000\n")
    assert container_limit(tmp_path) == 8 << 30
    assert container_use(tmp_path) == 2_000_000


def test_version_1_says_limit_and_use(tmp_path: Path):
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text(f"{NO_LIMIT}\n")
    (folder / "memory.usage_in_bytes").write_text("3000000\n")
    (folder / "memory.stat").write_text("inactive_file 7\ntotal_inactive_file 1000000\n")
    assert container_limit(tmp_path) == NO_LIMIT
    assert container_use(tmp_path) == 2_000_000
