"""Tests of a feature store whose writer is killed or finds the disk full at any time."""

import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from indextts.data.feature_store import FeatureStore, store_path
from indextts.errors import DISK_FULL, UserError
from tests.conftest import REPOSITORY
from tests.feature_store_program import CLIPS_PER_SHARD, INFO, append
from tests.test_runs_owner import count_changes


@pytest.fixture
def folder_in_memory(tmp_path: Path):
    """Folder on a memory file system if possible, since the tests sync hundreds of times."""
    if not Path("/dev/shm").is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def append_6(folder: Path) -> None:
    append(folder, 6)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def committed(folder: Path) -> list[str]:
    """Return the keys of a store, which may not exist yet, after verifying every byte of it."""
    path = store_path(folder, INFO)
    if not path.exists():
        return []
    store = FeatureStore.open(path)
    assert list(store.corrupt_files()) == []
    assert len(set(store.keys)) == len(store.keys) == len(store._conditioning)
    assert len(set(store._codes.keys)) == len(store._codes)
    return store.keys


def test_the_next_writer_continues_after_a_kill_before_any_change_of_the_disk(folder_in_memory):
    reference = folder_in_memory / "reference"
    append(reference, 6)
    total, die_at = None, 0
    while total is None:
        die_at += 1
        folder = folder_in_memory / str(die_at)
        total = count_changes(append_6, folder, die_at)
        before = committed(folder)
        assert before == committed(reference)[: len(before)]
        append(folder, 6)
        assert files_of(folder) == files_of(reference), f"died before change {die_at}"
        shutil.rmtree(folder)
    assert die_at - 1 == total
    assert total > 20  # 4 shards: their files, digests, renames and folders


@pytest.mark.slow
def test_a_store_is_complete_without_duplicates_after_several_kills(tmp_path):
    count, seed = 60, 5
    program = start(tmp_path / "reference", count, tmp_path / "log")
    began = time.monotonic()
    assert program.wait() == 0
    duration_s = time.monotonic() - began
    reference = files_of(tmp_path / "reference")
    rng = random.Random(seed)
    num_kills = num_finished = num_hit = 0
    while num_kills < 6 or not num_hit:  # until a kill leaves a shard in progress
        folder, log = tmp_path / f"run{num_finished}", tmp_path / f"log{num_finished}"
        kills_before, before, is_done = num_kills, [], False
        while not is_done:
            program = start(folder, count, log)
            time.sleep(rng.uniform(0, duration_s))
            program.send_signal(signal.SIGKILL)
            is_done = program.wait() == 0
            num_kills += not is_done
            num_hit += any(folder.rglob("*.part"))
            now = committed(folder)
            assert now[: len(before)] == before
            before = now
        num_finished += 1
        assert files_of(folder) == reference
        num_encoded = len(log.read_text().splitlines())
        assert num_encoded <= count + (num_kills - kills_before) * CLIPS_PER_SHARD


def start(folder: Path, count: int, log: Path) -> subprocess.Popen:
    """Start the program and wait until it writes."""
    arguments = [str(folder), str(count), str(log)]
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.feature_store_program", *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    with program.stdout as output:
        assert output.readline() == b"ready\n"
    return program


def test_a_write_that_fails_at_any_byte_is_a_one_line_error_and_loses_nothing(folder_in_memory):
    append(folder_in_memory / "reference", 8)
    folder = folder_in_memory / "s"
    append(folder, 4)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    for number in range(20):
        resource.setrlimit(resource.RLIMIT_FSIZE, (number * largest // 20, hard))
        try:
            with pytest.raises(UserError, match=str(folder)) as caught:
                append(folder, 8)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "\n" not in str(caught.value)
        assert caught.value.exit_status == DISK_FULL
        assert committed(folder) == committed(folder_in_memory / "reference")[:4]
        assert not list(folder.rglob("*.part"))
    append(folder, 8)
    assert files_of(folder).keys() == files_of(folder_in_memory / "reference").keys()
    assert committed(folder) == committed(folder_in_memory / "reference")


@pytest.fixture
def small_disk(tmp_path: Path):
    """A disk of 600 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no disk can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_committed_shards_survive_a_full_disk_and_the_writer_continues_later(tmp_path, small_disk):
    folder, filler = small_disk / "s", small_disk / "filler"
    append(tmp_path / "reference", 40)
    filler.write_bytes(bytes(450_000))
    kept = []
    for _ in range(2):
        with pytest.raises(UserError, match=str(folder)) as caught:
            append(folder, 40)
        assert caught.value.exit_status == DISK_FULL
        assert committed(folder)[: len(kept)] == kept
        kept = committed(folder)
        assert 0 < len(kept) < 40
    filler.unlink()
    append(folder, 40)
    assert files_of(folder) == files_of(tmp_path / "reference")
