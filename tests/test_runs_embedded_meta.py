"""Tests of indextts/runs/embedded_meta.py: the record in a checkpoint, and files that mean harm."""

import json
import pickle
import random
import subprocess
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from indextts.runs.directory import CheckpointMeta, read_embedded_meta, verify_checkpoint
from indextts.runs.embedded_meta import MAX_PICKLE_BYTES, read_record, top_level_keys, verify_records
from tests.checkpoint_files import save
from tests.conftest import REPOSITORY
from tests.test_models_checkpoint import Payload


def test_the_record_is_the_meta_file_without_size_and_digest(tmp_path: Path):
    path = save(tmp_path, 3)
    meta = CheckpointMeta.read(path.with_suffix(".json"))
    record = read_record(path)
    assert record is not None
    assert json.loads(record) == meta.model_dump(mode="json", exclude={"num_bytes", "digest"})
    assert read_embedded_meta(path) == meta.model_copy(update={"digest": ""})
    path.with_suffix(".json").unlink()
    assert verify_checkpoint(path) == meta


def test_neither_torch_nor_an_unpickler_is_loaded(tmp_path: Path):
    path = save(tmp_path, 3)
    program = (
        "import sys, pathlib, pickle; pickle.Unpickler = pickle.loads = pickle.load = None\n"
        "from indextts.runs.directory import read_embedded_meta\n"
        "print(read_embedded_meta(pathlib.Path(sys.argv[1])).step, 'torch' in sys.modules)"
    )
    argv = [sys.executable, "-c", program, str(path)]
    assert subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True).stdout == "3 False\n"


def test_other_values_next_to_the_record_do_not_matter(tmp_path: Path):
    model = torch.nn.Linear(2, 2)
    content = {
        "state": OrderedDict(model.state_dict()),
        "bytes": b"\xff\x00",
        "numbers": [1, -1, 2**40, 1.5, True, None, (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)],
        "set": {"a"},
        "dtype": torch.float16,
        "shape": torch.Size([1, 2]),
        "parameter": model.weight,
        1: "one",
        "meta": {"step": 3, "losses": {"a": 1.5}, "pieces": ["ሰላም", ""], "none": None, "flag": False},
    }
    torch.save(content, tmp_path / "x.pth")
    record = read_record(tmp_path / "x.pth")
    assert record is not None
    assert json.loads(record) == content["meta"]


def test_a_file_of_another_program_has_no_record(tmp_path: Path):
    torch.save({"model": {}, "step": 3}, tmp_path / "dict.pth")
    torch.save([1], tmp_path / "list.pth")
    assert read_record(tmp_path / "dict.pth") is None
    assert read_record(tmp_path / "list.pth") is None
    with pytest.raises(ValueError, match=r"dict\.pth has no meta record"):
        read_embedded_meta(tmp_path / "dict.pth")


def write_archive(path: Path, pickled: bytes, method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("archive/data.pkl", pickled)


HARMFUL: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: None,
    "empty": lambda path: path.write_bytes(b""),
    "a folder": Path.mkdir,
    "no zip": lambda path: path.write_bytes(b"of another program"),
    "a bare pickle": lambda path: path.write_bytes(pickle.dumps({"meta": {}})),
    "another zip": lambda path: zipfile.ZipFile(path, "w").close(),
    "compressed": lambda path: write_archive(path, pickle.dumps({"meta": {}}), zipfile.ZIP_DEFLATED),
    "huge": lambda path: write_archive(path, bytes(MAX_PICKLE_BYTES + 1)),
    "an empty pickle": lambda path: write_archive(path, b""),
    "an empty stack": lambda path: write_archive(path, b"\x80\x02."),
    "an opcode that torch never writes": lambda path: write_archive(path, pickle.dumps({"meta": {1}}, 4)),
    "a value that is missing": lambda path: write_archive(path, b"\x80\x02}s."),
    "an entry of the memo that is missing": lambda path: write_archive(path, b"\x80\x02h\x05."),
    "an enormous place in the memo": lambda path: write_archive(path, b"\x80\x02}r\xff\xff\xff\x7fs."),
    "a list as a key": lambda path: write_archive(path, b"\x80\x02}]K\x01s."),
    "deep": lambda path: write_archive(path, b"\x80\x02}X\x04\x00\x00\x00meta" + b"]" * 10**5 + b"a" * 10**5),
    "in a circle": lambda path: write_archive(path, b"\x80\x02}X\x04\x00\x00\x00meta]q\x00h\x00as."),
    "no record": lambda path: write_archive(path, pickle.dumps({"meta": {"step": 3}}, 2)),
    "another record": lambda path: write_archive(path, pickle.dumps({"meta": [1]}, 2)),
}


@pytest.mark.parametrize("name", HARMFUL)
@pytest.mark.failure(16)
def test_a_file_that_is_not_a_checkpoint_is_named_with_the_reason(tmp_path: Path, name: str):
    path = tmp_path / "x.pth"
    HARMFUL[name](path)
    with pytest.raises(ValueError, match=r"^x\.pth"):
        read_embedded_meta(path)


@pytest.mark.failure(14)
def test_a_pickle_that_would_run_code_runs_nothing(tmp_path: Path):
    canary, path = tmp_path / "canary", tmp_path / "x.pth"
    write_archive(path, pickle.dumps({"model": Payload(canary), "meta": {"step": Payload(canary)}}, 2))
    assert read_record(path) == '{"step": null}'
    assert not canary.exists()


@pytest.mark.failure(2)
def test_every_corruption_of_a_record_is_found_by_its_checksum(tmp_path: Path):
    whole = save(tmp_path, 3).read_bytes()
    expected = records(tmp_path / "model_step3.pth")
    path = tmp_path / "damaged.pth"
    choose = random.Random(0)
    found = 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[choose.randrange(len(whole))] ^= 1 << choose.randrange(8)
        path.write_bytes(damaged)
        problem = problem_of(path)
        found += problem != ""
        if problem:
            assert problem.startswith("damaged.pth")
        else:  # the bit is padding, in a field without meaning, or hides a record, which torch.load misses
            assert records(path).items() <= expected.items()
    assert found > 100
    path.write_bytes(whole)
    assert problem_of(path) == ""


def problem_of(path: Path) -> str:
    try:
        verify_records(path)
    except ValueError as problem:
        return str(problem)
    return ""


def records(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_top_level_keys_are_read_without_torch(tmp_path: Path):
    path = tmp_path / "x.pth"
    torch.save({"model": {"a": torch.zeros(2)}, "step": 3}, path)
    assert top_level_keys(path) == {"model", "step"}
    torch.save(torch.nn.Linear(2, 3).state_dict(), path)  # an OrderedDict
    assert top_level_keys(path) == {"weight", "bias"}
    torch.save([1, 2], path)
    assert top_level_keys(path) is None
    path.write_bytes(b"no zip")
    assert top_level_keys(path) is None
