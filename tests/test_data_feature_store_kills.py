"""Tests of a feature store whose writer is killed or finds the disk full at any time."""

import hashlib
import resource
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from indextts.data.feature_store import FeatureStore, StoreInfo, store_path
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter
from indextts.errors import DISK_FULL, UserError
from tests.preprocess_project import files_of
from tests.test_runs_owner import count_changes

INFO = StoreInfo("builtin", "backend", "encoders", model_dim=64, num_latents=16, latents="float16")
CLIPS_PER_SHARD = 4


def encoded(number: int) -> EncodedUtterance:
    rng = np.random.default_rng(number)
    return EncodedUtterance(
        id=f"u{number}",
        key=hashlib.sha256(str(number).encode()).hexdigest(),
        codes=rng.integers(0, 8192, 50 + number % 60),
        condition=rng.standard_normal((16, 64), np.float32),
        emo_vec=rng.standard_normal(64, np.float32),
    )


def append(folder: Path, count: int) -> None:
    """Add missing features of `count` utterances, as preprocessing does."""
    writer = FeatureStoreWriter(folder, INFO, CLIPS_PER_SHARD)
    for number in range(count):
        utterance = encoded(number)
        if utterance.key not in writer:
            writer.add(utterance)
    writer.flush()


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
