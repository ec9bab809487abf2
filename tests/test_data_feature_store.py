import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from indextts.data.feature_store import FeatureStore, StoreInfo
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter, locked
from indextts.errors import FOLDER_IN_USE, UserError

INFO = StoreInfo("builtin", "backend", "encoders", model_dim=6, num_latents=3)


def encoded(id: str, num_codes: int) -> EncodedUtterance:
    rng = np.random.default_rng(num_codes)
    return EncodedUtterance(
        id=id,
        audio_sha256=f"sha of {id}",
        codes=rng.integers(0, 2**16, num_codes),
        condition=rng.normal(size=(3, 6)).astype(np.float32),
        emo_vec=rng.normal(size=6).astype(np.float32),
    )


def write_store(folder: Path, utterances: list[EncodedUtterance], clips_per_shard: int = 2) -> FeatureStore:
    folder.mkdir(exist_ok=True)
    writer = FeatureStoreWriter(folder, INFO, clips_per_shard)
    for utterance in utterances:
        writer.add(utterance)
    writer.flush()
    return FeatureStore.open(folder)


def assert_holds(store: FeatureStore, utterance: EncodedUtterance) -> None:
    np.testing.assert_array_equal(store.codes(utterance.id), utterance.codes)
    np.testing.assert_array_equal(store.condition(utterance.id), utterance.condition)
    np.testing.assert_array_equal(store.emo_vec(utterance.id), utterance.emo_vec)
    assert store.num_codes(utterance.id) == len(utterance.codes)
    assert store.audio_sha256(utterance.id) == utterance.audio_sha256


def test_what_was_added_is_read_back_with_its_true_length(tmp_path):  # D1
    utterances = [encoded("ሀ/../b", 5), encoded("b", 1), encoded("c", 300), encoded("d", 7), encoded("e", 2)]
    store = write_store(tmp_path / "s", utterances)
    assert store.ids == [utterance.id for utterance in utterances]
    for utterance in utterances:
        assert_holds(store, utterance)
    assert store.codes("c").dtype == np.int64
    assert "a" not in store
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == [
        "shard_00000",
        "shard_00001",
        "shard_00002",
        "store.json",
    ]


def test_arrays_are_copies_that_the_reader_may_change(tmp_path):
    store = write_store(tmp_path / "s", [encoded("a", 5)])
    store.codes("a")[:] = 0
    store.condition("a")[:] = 0
    store.emo_vec("a")[:] = 0
    assert_holds(store, encoded("a", 5))


def test_a_store_goes_to_worker_processes_without_its_arrays(tmp_path):
    store = write_store(tmp_path / "s", [encoded("a", 5), encoded("b", 100_000)])
    assert_holds(store, encoded("b", 100_000))
    content = pickle.dumps(store)
    assert len(content) < 10_000
    assert_holds(pickle.loads(content), encoded("a", 5))


def test_no_file_stays_open_however_many_shards_are_read(tmp_path):
    utterances = [encoded(f"u{number}", 1 + number) for number in range(40)]
    store = write_store(tmp_path / "s", utterances, clips_per_shard=1)
    num_open = len(list(Path("/proc/self/fd").iterdir()))
    for utterance in utterances:
        assert_holds(store, utterance)
    assert len(list(Path("/proc/self/fd").iterdir())) == num_open


def test_a_writer_goes_on_where_the_last_one_stopped(tmp_path):
    write_store(tmp_path / "s", [encoded("a", 5), encoded("b", 6), encoded("c", 7)])
    store = write_store(tmp_path / "s", [encoded("d", 8)])
    assert store.ids == ["a", "b", "c", "d"]
    for utterance in (encoded("a", 5), encoded("d", 8)):
        assert_holds(store, utterance)


def test_an_unfinished_shard_does_not_count_and_is_swept(tmp_path):
    write_store(tmp_path / "s", [encoded("a", 5)])
    unfinished = tmp_path / "s/shard_00001.part"
    shutil.copytree(tmp_path / "s/shard_00000", unfinished)
    assert FeatureStore.open(tmp_path / "s").ids == ["a"]
    FeatureStoreWriter(tmp_path / "s", INFO)
    assert not unfinished.exists()


def test_an_id_is_in_a_store_once(tmp_path):
    write_store(tmp_path / "s", [encoded("a", 5)])
    writer = FeatureStoreWriter(tmp_path / "s", INFO)
    assert "a" in writer
    with pytest.raises(ValueError, match="'a' is in the store already"):
        writer.add(encoded("a", 6))
    shutil.copytree(tmp_path / "s/shard_00000", tmp_path / "s/shard_00007")
    with pytest.raises(UserError, match=r"shard_00007/index\.json: id 'a' is in the store twice"):
        FeatureStore.open(tmp_path / "s")


@pytest.mark.parametrize("codes", [[], [-1], [2**16]])
def test_codes_that_do_not_fit_are_refused(tmp_path, codes):
    (tmp_path / "s").mkdir()
    writer = FeatureStoreWriter(tmp_path / "s", INFO)
    with pytest.raises(ValueError, match="'a' has no codes, or codes outside"):
        writer.add(replace(encoded("a", 1), codes=np.array(codes, np.int64)))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"backend": "other"}, "another speech backend"),
        ({"backend_identity": "other"}, "another codebook or speech encoder"),
        ({"encoders_identity": "other"}, "another base checkpoint or config"),
        ({"model_dim": 8}, "another model_dim"),
        ({"num_latents": 8}, "another num_latents"),
    ],
)
def test_features_of_two_kinds_are_not_mixed(tmp_path, change, what):  # D3
    store = write_store(tmp_path / "s", [encoded("a", 5)])
    other = replace(INFO, **change)
    assert other.identity != store.identity == INFO.identity
    with pytest.raises(UserError, match=f"made with {what}, choose another --output-dir or delete"):
        FeatureStoreWriter(tmp_path / "s", other)


def test_dropping_an_id_drops_its_shard_and_nothing_else(tmp_path):
    write_store(tmp_path / "s", [encoded("a", 5), encoded("b", 6), encoded("c", 7), encoded("d", 8)])
    writer = FeatureStoreWriter(tmp_path / "s", INFO)
    writer.drop_shards_with(["b"])
    assert FeatureStore.open(tmp_path / "s").ids == ["c", "d"]
    assert "a" not in writer
    writer.add(encoded("a", 9))
    writer.flush()
    assert_holds(FeatureStore.open(tmp_path / "s"), encoded("a", 9))


@pytest.mark.parametrize("name", ["codes.npy", "condition.npy", "emo_vec.npy"])
@pytest.mark.parametrize("damage", ["cut", "longer", "missing", "empty", "other"])
def test_a_damaged_array_is_named(tmp_path, name, damage):
    write_store(tmp_path / "s", [encoded("a", 5)])
    path = tmp_path / "s/shard_00000" / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    elif damage == "other":
        np.save(path, np.zeros(3))
    else:
        path.write_bytes({"cut": content[:-2], "longer": content + b"\0\0", "empty": b""}[damage])
    store = FeatureStore.open(tmp_path / "s")
    read = {"codes.npy": store.codes, "condition.npy": store.condition, "emo_vec.npy": store.emo_vec}[name]
    with pytest.raises(UserError, match=f"{name}: .*delete the folder and preprocess again"):
        read("a")
    assert list(store.damaged_files()) == [path]


def test_a_changed_code_is_noticed(tmp_path):
    write_store(tmp_path / "s", [encoded("a", 5)])
    path = tmp_path / "s/shard_00000/codes.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"codes\.npy: is damaged \(another digest\)"):
        FeatureStore.open(tmp_path / "s").codes("a")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"ids": ["a"]}', b"\xff"])
def test_a_damaged_index_is_named(tmp_path, content):
    write_store(tmp_path / "s", [encoded("a", 5)])
    (tmp_path / "s/shard_00000/index.json").write_bytes(content)
    with pytest.raises(UserError, match=r"shard_00000/index\.json: "):
        FeatureStore.open(tmp_path / "s")


def test_an_index_whose_lists_differ_in_length_is_named(tmp_path):
    write_store(tmp_path / "s", [encoded("a", 5)])
    path = tmp_path / "s/shard_00000/index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"ids": ["a", "b"]}))
    with pytest.raises(UserError, match="lists of different lengths"):
        FeatureStore.open(tmp_path / "s")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"format_version": 2}', b'{"format_version": 1}'])
def test_a_damaged_or_foreign_store_file_is_named(tmp_path, content):
    write_store(tmp_path / "s", [encoded("a", 5)])
    (tmp_path / "s/store.json").write_bytes(content)
    with pytest.raises(UserError, match=r"store\.json: "):
        FeatureStore.open(tmp_path / "s")


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match="is no feature store"):
        FeatureStore.open(tmp_path)
    store = write_store(tmp_path / "s", [encoded("a", 5)])
    with pytest.raises(UserError, match="has no features of 'b', preprocess its manifest again"):
        store.codes("b")


def test_one_process_writes_at_a_time(tmp_path):
    with locked(tmp_path / "s"):
        with pytest.raises(UserError, match="another preprocessing") as caught, locked(tmp_path / "s"):
            pass
        assert caught.value.exit_status == FOLDER_IN_USE
    with locked(tmp_path / "s"):
        pass
