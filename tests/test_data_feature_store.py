import hashlib
import json
import pickle
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from indextts.data.feature_store import FeatureStore, StoreInfo, packed, store_path
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter
from indextts.errors import DISK_FULL, UserError
from tests.preprocess_project import files_of
from tests.small_disk import largest_file
from tests.test_runs_owner import count_changes

INFO = StoreInfo("builtin", "backend", "encoders", model_dim=6, num_latents=3)


def key(id: str) -> str:
    return hashlib.sha256(id.encode()).hexdigest()


def encoded(id: str, num_codes: int) -> EncodedUtterance:
    rng = np.random.default_rng(num_codes)
    return EncodedUtterance(
        id=id,
        key=key(id),
        codes=rng.integers(0, 2**16, num_codes),
        condition=rng.normal(size=(3, 6)).astype(np.float32),
        emo_vec=rng.normal(size=6).astype(np.float32),
    )


def write_store(
    folder: Path, utterances: list[EncodedUtterance], clips_per_shard: int = 2, info: StoreInfo = INFO
) -> FeatureStore:
    writer = FeatureStoreWriter(folder, info, clips_per_shard)
    for utterance in utterances:
        writer.add(utterance)
    writer.flush()
    return FeatureStore.open(writer.path)


def opened(folder: Path) -> FeatureStore:
    return FeatureStore.open(store_path(folder, INFO))


def shard(folder: Path, number: int, kind: str = "codes") -> Path:
    [path] = folder.glob(f"{kind}/*/shard_{number:05d}")
    return path


def assert_holds(store: FeatureStore, utterance: EncodedUtterance) -> None:
    np.testing.assert_array_equal(store.codes(utterance.key), utterance.codes)
    np.testing.assert_array_equal(store.condition(utterance.key), utterance.condition)
    np.testing.assert_array_equal(store.emo_vec(utterance.key), utterance.emo_vec)
    assert store.num_codes(utterance.key) == len(utterance.codes)


def test_added_features_are_read_back_with_their_true_length(tmp_path):  # D1
    utterances = [encoded("a", 5), encoded("b", 1), encoded("c", 300), encoded("d", 7), encoded("e", 2)]
    store = write_store(tmp_path / "s", utterances)
    assert store.keys == [utterance.key for utterance in utterances]
    for utterance in utterances:
        assert_holds(store, utterance)
    assert store.codes(key("c")).dtype == np.int64
    assert key("f") not in store
    assert len(list((tmp_path / "s").rglob("shard_*"))) == 6
    assert list((tmp_path / "s").rglob("*.part")) == []


def test_keys_that_begin_or_end_alike_are_distinguished(tmp_path):  # numpy's strings drop trailing zeros
    keys = ["00" * 32, "ab" + "00" * 31, "ab" + "00" * 30 + "01", "00" * 31 + "ab"]
    utterances = [replace(encoded(id, 1 + number), key=id) for number, id in enumerate(keys)]
    store = write_store(tmp_path / "s", utterances)
    for utterance in utterances:
        assert_holds(store, utterance)
    assert store.keys == keys
    absent = "00" * 31 + "01"
    assert absent not in store
    asked = np.frombuffer(bytes.fromhex("".join([*keys[::-1], absent])), np.uint8).reshape(-1, 32)
    assert store.count_codes(asked).tolist() == [4, 3, 2, 1, -1]


def test_a_store_is_pickled_without_its_arrays(tmp_path):
    store = write_store(tmp_path / "s", [encoded("a", 5), encoded("b", 100_000)])
    assert_holds(store, encoded("b", 100_000))
    content = pickle.dumps(store)
    assert len(content) < 10_000
    assert_holds(pickle.loads(content), encoded("a", 5))


def test_a_recording_is_in_a_store_once(tmp_path):
    write_store(tmp_path / "s", [encoded("a", 5)])
    writer = FeatureStoreWriter(tmp_path / "s", INFO)
    assert key("a") in writer
    assert key("b") not in writer
    for utterance in (encoded("a", 6), encoded("b", 7), replace(encoded("c", 9), key=key("b"))):
        writer.add(utterance)
    writer.flush()
    store = opened(tmp_path / "s")
    assert store.keys == [key("a"), key("b")]
    for utterance in (encoded("a", 5), encoded("b", 7)):
        assert_holds(store, utterance)


@pytest.mark.parametrize("codes", [[], [-1], [2**16]])
@pytest.mark.failure(41, 42)
def test_invalid_codes_are_refused(tmp_path, codes):
    writer = FeatureStoreWriter(tmp_path / "s", INFO)
    with pytest.raises(ValueError, match=r"^'a': "):
        writer.add(replace(encoded("a", 1), codes=np.array(codes, np.int64)))
    assert key("a") not in writer


@pytest.mark.parametrize(
    ("change", "shares_codes"),
    [
        ({"backend": "other"}, False),
        ({"backend_identity": "other"}, False),
        ({"encoders_identity": "other"}, True),
        ({"model_dim": 8}, True),
        ({"latents": "float16"}, True),
    ],
)
def test_features_of_two_checkpoints_are_in_one_store_and_share_codes(tmp_path, change, shares_codes):
    first = write_store(tmp_path / "s", [encoded("a", 5), encoded("b", 6)])
    other = replace(INFO, **change)
    assert other.identity != INFO.identity
    writer = FeatureStoreWriter(tmp_path / "s", other)
    assert key("a") not in writer
    assert (key("a") in writer._codes, key("a") in writer._conditioning) == (shares_codes, False)
    condition = np.ones((other.num_latents, other.model_dim), np.float32)
    writer.add(
        EncodedUtterance("a", key("a"), np.array([7]), condition, np.ones(other.model_dim, np.float32))
    )
    writer.flush()
    second = FeatureStore.open(writer.path)
    assert (second.keys, second.info) == ([key("a")], other)
    assert (second.codes(key("a")).tolist() == encoded("a", 5).codes.tolist()) == shares_codes
    np.testing.assert_array_equal(second.condition(key("a")), condition)
    assert_holds(FeatureStore.open(first.path), encoded("a", 5))
    assert len(list((tmp_path / "s/codes").iterdir())) == (1 if shares_codes else 2)


@pytest.mark.parametrize(("latents", "bits"), [("float16", 11), ("bfloat16", 8)])
def test_16_bit_latents_are_rounded_to_nearest(tmp_path, latents, bits):
    condition = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32) * 10
    info = replace(INFO, latents=latents)
    store = write_store(tmp_path / "s", [replace(encoded("a", 5), condition=condition)], info=info)
    error = np.abs(store.condition(key("a")) - condition) / np.abs(condition)
    assert 2.0 ** -(bits + 4) < error.max() <= 2.0**-bits
    assert store.condition(key("a")).dtype == np.float32
    np.testing.assert_array_equal(store.emo_vec(key("a")), encoded("a", 5).emo_vec)
    again = write_store(
        tmp_path / "again", [replace(encoded("a", 5), condition=store.condition(key("a")))], info=info
    )
    np.testing.assert_array_equal(again.condition(key("a")), store.condition(key("a")))
    [path] = (tmp_path / "s").rglob("condition.npy")
    assert path.stat().st_size - 128 == 2 * condition.size


def test_bfloat16_is_rounded_as_torch_does():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    edges = np.array([0, -0.0, 1, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-45], np.float32)
    values = np.concatenate([values, edges])
    expected = torch.from_numpy(values).bfloat16()
    found = torch.from_numpy(packed(values, "bfloat16").view(np.int16)).view(torch.bfloat16)
    is_nan = np.isnan(values)
    assert torch.equal(found[~is_nan].view(torch.int16), expected[~is_nan].view(torch.int16))
    assert found[is_nan].isnan().all()


def test_latents_that_overflow_float16_are_an_error(tmp_path):
    huge = replace(encoded("a", 5), condition=np.full((3, 6), 70_000, np.float32))
    writer = FeatureStoreWriter(tmp_path / "s", replace(INFO, latents="float16"))
    with pytest.raises(UserError, match=r"'a': .*7e\+04.*--latents bfloat16"):
        writer.add(huge)
    store = write_store(tmp_path / "s", [huge], info=replace(INFO, latents="bfloat16"))
    np.testing.assert_allclose(store.condition(key("a")), 70_000, rtol=2**-8)


@pytest.mark.parametrize("name", ["codes.npy", "condition.npy", "emo_vec.npy"])
@pytest.mark.parametrize("damage", ["cut", "longer", "missing", "empty", "other"])
@pytest.mark.failure(35)
def test_the_error_names_a_corrupt_array(tmp_path, name, damage):
    write_store(tmp_path / "s", [encoded("a", 5)])
    [path] = (tmp_path / "s").rglob(name)
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "other":
        np.save(path, np.zeros(3))
    else:
        path.write_bytes({"cut": content[:-2], "longer": content + b"\0\0", "empty": b""}[damage])
    store = opened(tmp_path / "s")
    read = {"codes.npy": store.codes, "condition.npy": store.condition, "emo_vec.npy": store.emo_vec}[name]
    with pytest.raises(UserError, match=f"{name}: "):
        read(key("a"))
    assert list(store.corrupt_files()) == [path]


@pytest.mark.parametrize("name", ["codes.npy", "index.npy"])
def test_a_flipped_bit_in_codes_or_lengths_is_detected(tmp_path, name):
    write_store(tmp_path / "s", [encoded("a", 5), encoded("b", 5)])
    path = shard(tmp_path / "s", 0) / name
    if name == "codes.npy":
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    else:
        index = np.load(path)
        index["num_rows"] = [4, 6]  # with the same sum
        np.save(path, index)
    store = opened(tmp_path / "s")
    with pytest.raises(UserError, match=rf"{name}: .*digest"):
        store.codes(key("a"))
    assert list(store.corrupt_files()) == [path]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"\x93NUMPY", "array"])
def test_the_error_names_a_corrupt_index(tmp_path, content):
    write_store(tmp_path / "s", [encoded("a", 5)])
    path = shard(tmp_path / "s", 0, "conditioning") / "index.npy"
    if content == "array":
        np.save(path, np.zeros(3))
    else:
        path.write_bytes(content)
    with pytest.raises(UserError, match=r"shard_00000/index\.npy: "):
        opened(tmp_path / "s")


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"format_version": 1}', b'{"format_version": 2}', "another's"]
)
def test_the_error_names_a_corrupt_or_foreign_store_file(tmp_path, content):
    path = write_store(tmp_path / "s", [encoded("a", 5)]).path
    if content == "another's":
        path.write_text(json.dumps(json.loads(path.read_text()) | {"encoders_identity": "other"}))
    else:
        path.write_bytes(content)
    with pytest.raises(UserError, match=rf"{path.name}: "):
        FeatureStore.open(path)


def test_missing_stores_and_recordings_are_errors(tmp_path):
    with pytest.raises(UserError, match=r"\.json: "):
        FeatureStore.open(tmp_path / "s.json")
    with pytest.raises(UserError, match=str(tmp_path)):
        FeatureStore.open(tmp_path)
    store = write_store(tmp_path / "s", [encoded("a", 5)])
    with pytest.raises(UserError, match=key("b")[:16]):
        store.codes(key("b"))


def append(folder: Path, count: int) -> None:
    """Add missing features of `count` utterances, as preprocessing does."""
    writer = FeatureStoreWriter(folder, INFO, clips_per_shard=4)
    for number in range(count):
        utterance = encoded(str(number), 50 + number)
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
        total = count_changes(lambda folder: append(folder, 6), folder, die_at)
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
    largest = max(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    for number in range(20):
        with largest_file(number * largest // 20), pytest.raises(UserError, match=str(folder)) as caught:
            append(folder, 8)
        assert "\n" not in str(caught.value)
        assert caught.value.exit_status == DISK_FULL
        assert committed(folder) == committed(folder_in_memory / "reference")[:4]
        assert not list(folder.rglob("*.part"))
    append(folder, 8)
    assert files_of(folder).keys() == files_of(folder_in_memory / "reference").keys()
    assert committed(folder) == committed(folder_in_memory / "reference")
