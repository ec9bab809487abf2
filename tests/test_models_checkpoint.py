"""Tests of indextts/models/checkpoint.py: atomic writes, safe reading, moved text rows."""

import json
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from indextts.errors import UserError
from indextts.models.checkpoint import (
    TEXT_TABLES,
    move_text_rows,
    read_file,
    read_weights,
    recover_meta,
    text_rows,
)
from indextts.runs.directory import CheckpointMeta, verify_checkpoint
from tests.checkpoint_files import content, save


def test_a_saved_checkpoint_loads_with_weights_only_and_verifies(tmp_path: Path):
    path = save(tmp_path)
    assert path == tmp_path / "model_step3.pth"
    written = CheckpointMeta.read(tmp_path / "model_step3.json")
    loaded = torch.load(path, weights_only=True)
    assert torch.equal(loaded["model"]["text_embedding.weight"], torch.full((5, 2), 3.0))
    assert verify_checkpoint(path) == written
    assert written.num_bytes == path.stat().st_size
    assert json.loads((tmp_path / "model_step3.json").read_text())["step"] == 3


def test_bytes_are_on_the_disk_before_a_name_points_to_them(tmp_path: Path, monkeypatch):
    events: list[tuple[str, str]] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(
        os,
        "fsync",
        lambda fd: events.append(("sync", Path(f"/proc/self/fd/{fd}").readlink().name)) or fsync(fd),
    )
    monkeypatch.setattr(
        Path,
        "replace",
        lambda self, target: events.append(("name", Path(target).name)) or replace(self, target),
    )
    save(tmp_path)
    pth, json_ = "model_step3.pth", "model_step3.json"
    for name in (pth, json_):
        assert ("sync", f".tmp-{name}") in events or ("sync", f".tmp-.tmp-{name}") in events
    named = [name for kind, name in events if kind == "name"]
    assert named.index(pth) < named.index(json_)  # the meta file commits
    before_names = events[: events.index(("name", pth))]
    assert len([kind for kind, _ in before_names if kind == "sync"]) == 2
    assert ("sync", tmp_path.name) in events[events.index(("name", json_)) :]


def test_latest_is_the_newest_checkpoint_without_a_second_copy_of_its_bytes(tmp_path: Path):
    for step in (3, 4):
        save(tmp_path, step, serial=step)
    assert (tmp_path / "latest.pth").samefile(tmp_path / "model_step4.pth")
    assert verify_checkpoint(tmp_path / "latest.pth").step == 4
    assert not list(tmp_path.glob(".tmp-*"))


def test_without_link_support_latest_is_a_copy(tmp_path: Path, monkeypatch):
    def no_links(_source: object, _target: object) -> None:
        raise OSError("not supported")

    monkeypatch.setattr(os, "link", no_links)
    save(tmp_path)
    assert not (tmp_path / "latest.pth").samefile(tmp_path / "model_step3.pth")
    assert verify_checkpoint(tmp_path / "latest.pth").step == 3


def test_weights_are_mapped_and_not_read_into_memory(tmp_path: Path):
    weights = content()["model"]
    torch.save({"model": weights}, tmp_path / "x.pth")
    torch.save(weights, tmp_path / "bare.pth")
    save_file(weights, tmp_path / "x.safetensors")
    for name in ("x.pth", "bare.pth", "x.safetensors"):
        read = read_weights(tmp_path / name)
        assert str(tmp_path / name) in Path("/proc/self/maps").read_text()
        assert torch.equal(read["text_embedding.weight"], weights["text_embedding.weight"])
        assert text_rows(tmp_path / name) == 5


def test_entries_that_are_not_tensors_are_dropped_and_logged(tmp_path, caplog):
    torch.save({**content()["model"], "note": "mine"}, tmp_path / "x.pth")
    assert "note" not in read_weights(tmp_path / "x.pth")
    [message] = caplog.messages
    assert message.startswith(f"{tmp_path / 'x.pth'}: ")
    assert message.endswith(": note")


def test_an_invalid_or_missing_safetensors_file_is_refused_in_one_line(tmp_path: Path):
    (tmp_path / "x.safetensors").write_bytes(b"<!doctype html><title>Sign in</title>")
    with pytest.raises(UserError, match=r"x\.safetensors: .*web page") as caught:
        read_weights(tmp_path / "x.safetensors")
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=r"absent\.safetensors: "):
        read_weights(tmp_path / "absent.safetensors")


class Payload:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.canary),)


def test_a_file_of_the_format_before_zip_archives_is_read(tmp_path: Path):
    base = torch.arange(6.0)
    content = {"model": {"a": base.view(2, 3), "b": base[2:4], "c": torch.tensor([1, 2], dtype=torch.int64)}}
    torch.save(content, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    read = read_file(tmp_path / "old.pth")["model"]
    assert {name: tensor.tolist() for name, tensor in read.items()} == {
        "a": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]],
        "b": [2.0, 3.0],
        "c": [1, 2],
    }


@pytest.mark.parametrize(
    ("junk", "named"),
    [
        (b"", "empty"),
        (b"\x80\x04", ""),
        (b"PK\x03\x04" + b"x" * 100, "truncated"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:baaa\nsize 3484402556\n", "git-LFS"),
        (b"Entry not found. See the documentation.\n", "'Entry not found"),
    ],
)
def test_a_file_that_is_not_a_checkpoint_is_refused_in_one_line(tmp_path: Path, junk: bytes, named: str):
    (tmp_path / "x.pth").write_bytes(junk)
    with pytest.raises(UserError, match=rf"x\.pth: .*{named}") as caught:
        read_file(tmp_path / "x.pth")
    assert "\n" not in str(caught.value)


def test_weights_without_text_tables_are_named(tmp_path: Path):
    torch.save({"something.weight": torch.ones(2)}, tmp_path / "x.pth")
    with pytest.raises(UserError, match=r"x\.pth: .*text_embedding\.weight"):
        text_rows(tmp_path / "x.pth")


def tables(rows: int, dim: int = 2) -> dict[str, torch.Tensor]:
    numbers = torch.arange(rows * dim, dtype=torch.float32).view(rows, dim)
    return dict(zip(TEXT_TABLES, (numbers, -numbers, numbers[:, 0].clone()), strict=True))


def test_rows_move_by_piece_and_moved_rows_are_bit_identical():
    old = tables(5)
    new = move_text_rows(old, (0, 2, -1, 1, 4), pieces="abcd", base_size=3, seed=0, part=1)
    for name in TEXT_TABLES:
        assert torch.equal(new[name][[0, 1, 3, 4]], old[name][[0, 2, 1, 4]])


def test_a_fresh_row_is_the_mean_of_the_old_ones_with_a_little_noise():
    old = {
        name: torch.randn(401, 64) if name != "text_head.bias" else torch.randn(401) for name in TEXT_TABLES
    }
    rows, pieces = (*range(400), *[-1] * 100, 400), [f"piece {number}" for number in range(500)]
    new = move_text_rows(old, rows, pieces=pieces, base_size=400, seed=0, part=1)
    fresh = new["text_embedding.weight"][400:500]
    noise = fresh - old["text_embedding.weight"][:400].mean(dim=0)
    assert 0.018 < float(noise.std()) < 0.022
    torch.testing.assert_close(new["text_head.bias"][400:500], old["text_head.bias"][:400].mean().expand(100))


def fresh_rows(pieces: str, seed: int = 1, part: int = 1) -> dict[str, torch.Tensor]:
    """Return the rows of the embedding after the two of the base, by piece."""
    rows = (0, 1, *[-1] * len(pieces), 4)
    moved = move_text_rows(
        tables(5, 64), rows, pieces=["<s>", "</s>", *pieces], base_size=2, seed=seed, part=part
    )
    return {piece: moved["text_embedding.weight"][2 + index] for index, piece in enumerate(pieces)}


def test_a_fresh_row_is_a_function_of_seed_part_and_piece_and_not_of_its_place():
    first, again = fresh_rows("ሰላም"), fresh_rows("ምxሰ")
    for piece in "ሰም":
        assert torch.equal(first[piece], again[piece])
    for other in (fresh_rows("ሰላም", seed=2), fresh_rows("ሰላም", part=2)):
        assert not any(torch.equal(first[piece], other[piece]) for piece in first)


@pytest.mark.failure(16)
def test_an_archive_that_inflates_is_refused_before_it_is_read(tmp_path: Path):
    torch.save(content()["model"], tmp_path / "plain.pth")
    with (
        zipfile.ZipFile(tmp_path / "plain.pth") as plain,
        zipfile.ZipFile(tmp_path / "bomb.pth", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for entry in plain.infolist():
            bomb.writestr(entry.filename, plain.read(entry) + bytes(1 << 20))
    with pytest.raises(UserError, match=r"bomb\.pth: .*compressed"):
        read_file(tmp_path / "bomb.pth")


def test_lists_that_share_or_nest_too_many_lists_are_refused(tmp_path: Path):
    shared: list[object] = []
    for _ in range(40):  # 2^40 paths
        shared = [shared, shared]
    torch.save({"meta": shared}, tmp_path / "shared.pth")
    assert (tmp_path / "shared.pth").stat().st_size < 5000
    write_pickle(tmp_path / "nested.pth", b"\x80\x02" + b"](" * 200_000 + b"]" + b"e" * 200_000 + b".")
    write_pickle(tmp_path / "endless.pth", b"\x80\x02]q\x00h\x00a.")
    for name in ("shared.pth", "nested.pth", "endless.pth"):
        with pytest.raises(UserError, match=rf"{name}: .* 100 .*1,000,000"):
            read_file(tmp_path / name)


def write_pickle(path: Path, pickled: bytes) -> None:
    """Write a file of torch.save with this pickle in it."""
    torch.save({}, path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, pickled if name.endswith("data.pkl") else data)


@pytest.mark.failure(16)
def test_a_tensor_that_is_larger_than_its_data_is_refused(tmp_path: Path):
    torch.save({"model": {"text_embedding.weight": torch.zeros(1).expand(10**12)}}, tmp_path / "x.pth")
    assert (tmp_path / "x.pth").stat().st_size < 10_000
    with pytest.raises(UserError, match=r"x\.pth: .*\(1000000000000,\)"):
        read_file(tmp_path / "x.pth")


def test_a_numpy_random_state_in_a_foreign_file_is_accepted(tmp_path: Path):
    torch.save({"rng": np.random.get_state(), "step": 7}, tmp_path / "x.pth")
    assert read_file(tmp_path / "x.pth")["step"] == 7


# ---- the record in a checkpoint that lost its meta file


def test_the_record_in_a_checkpoint_is_its_meta_file_and_of_another_program_none(tmp_path: Path):
    path = save(tmp_path, 3)
    assert recover_meta(path) == CheckpointMeta.read(path.with_suffix(".json"))
    torch.save({"model": {}, "step": 3}, path)
    assert recover_meta(path) is None


def write_archive(path: Path, pickled: bytes, method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("archive/data.pkl", pickled)


HARMFUL: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "no zip": lambda path: path.write_bytes(b"of another program"),
    "another zip": lambda path: zipfile.ZipFile(path, "w").close(),
    "compressed": lambda path: write_archive(path, pickle.dumps({"meta": {}}), zipfile.ZIP_DEFLATED),
    "an empty stack": lambda path: write_archive(path, b"\x80\x02."),
    "deep": lambda path: write_archive(path, b"\x80\x02}X\x04\x00\x00\x00meta" + b"]" * 10**5 + b"a" * 10**5),
    "no valid record": lambda path: torch.save({"meta": {"step": 3}}, path),
    "code": lambda path: torch.save({"meta": Payload(path.parent / "canary")}, path),
}


@pytest.mark.parametrize("name", HARMFUL)
@pytest.mark.failure(14, 16)
def test_a_file_without_a_valid_record_is_named_with_the_reason(tmp_path: Path, name: str):
    path = tmp_path / "x.pth"
    HARMFUL[name](path)
    with pytest.raises(ValueError, match=r"^x\.pth"):
        recover_meta(path)
    assert not (tmp_path / "canary").exists()


@pytest.mark.failure(2)
def test_every_corruption_of_a_record_is_found_by_its_checksum(tmp_path: Path):
    whole = save(tmp_path, 3).read_bytes()
    expected = records(tmp_path / "model_step3.pth")
    path = tmp_path / "damaged.pth"
    choose = random.Random(0)
    found = 0
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[choose.randrange(len(whole))] ^= 1 << choose.randrange(8)
        path.write_bytes(damaged)
        try:
            meta = recover_meta(path)
            is_found = meta is None or not meta.digest
        except ValueError:
            is_found = True
        found += is_found
        if not is_found:  # the bit is padding, in a field without meaning, or hides an entry
            assert records(path).items() <= expected.items()
    assert found > 50


def records(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
