"""Tests of indextts/run_dir.py: the folder that trainer and page share."""

import subprocess
import sys
from pathlib import Path

import pytest

from indextts.errors import UserError
from indextts.run_dir import checkpoints, link_as, owned, prepare, prune, read_metrics, write_json
from tests.test_checkpoint import content, meta, save_checkpoint


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("model_step*.pth")}


def test_the_newest_checkpoints_are_kept(tmp_path: Path):
    for step in (1, 2, 3, 4):
        save_checkpoint(tmp_path, content(step), meta(step, serial=step))
    assert prune(tmp_path, keep=2, part=1) == ["model_step2.pth", "model_step1.pth"]
    assert names(tmp_path) == {"model_step3.pth", "model_step4.pth"}
    assert not (tmp_path / "model_step1.json").exists()


def test_another_parts_checkpoints_the_best_and_foreign_files_are_never_removed(tmp_path: Path):
    save_checkpoint(tmp_path, content(900), meta(900, serial=1, part=1))
    (tmp_path / "model_step7.pth").write_bytes(b"from another program")
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, content(step), meta(step, serial=1 + step, part=2))
        if step == 1:
            for suffix in (".pth", ".json"):
                (tmp_path / f"best{suffix}").hardlink_to(tmp_path / f"model_step1{suffix}")
    prune(tmp_path, keep=1, part=2)
    assert names(tmp_path) == {"model_step900.pth", "model_step7.pth", "model_step1.pth", "model_step3.pth"}


def test_a_checkpoint_without_its_meta_file_does_not_count(tmp_path: Path):
    save_checkpoint(tmp_path, content(1), meta(1))
    (tmp_path / "model_step9.pth").write_bytes(b"half a save")
    assert {path.name for path, _ in checkpoints(tmp_path)} == {"latest.pth", "model_step1.pth"}


def test_a_second_trainer_is_refused_and_the_lock_ends_with_its_process(tmp_path: Path):
    program = (
        "import sys, pathlib; from indextts.run_dir import owned\n"
        "with owned(pathlib.Path(sys.argv[1])): print('owned', flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "owned\n"
        with pytest.raises(UserError, match=f"process {owner.pid}") as caught, owned(tmp_path):
            pass
        assert caught.value.exit_status == 5
        owner.kill()
    with owned(tmp_path):
        assert not list(tmp_path.glob(".tmp-*"))


def test_what_an_interrupted_save_left_is_swept_by_the_next_owner(tmp_path: Path):
    (tmp_path / ".tmp-model_step5.pth").write_bytes(b"half")
    with owned(tmp_path):
        assert not list(tmp_path.glob(".tmp-*"))


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"--output-dir .*file/run cannot be written \(Not a directory\)"):
        prepare(tmp_path / "file/run")


def test_of_a_step_that_was_replayed_the_later_line_counts(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"kind": "train", "part": 1, "step": 10, "mel_loss": 5.0}\n'
        '{"kind": "train", "part": 1, "step": 20, "mel_loss": 4.0}\n'
        '{"kind": "train", "part": 1, "st\n'
        '{"kind": "train", "part": 1, "step": 20, "mel_loss": 3.0}\n'
        '{"kind": "train", "part": 2, "step": 10, "mel_loss": 2.0}\n'
    )
    assert [line["mel_loss"] for line in read_metrics(path)] == [5.0, 3.0, 2.0]


def test_json_is_written_whole_or_not_at_all(tmp_path: Path):
    path = tmp_path / "exit.json"
    write_json(path, {"status": 0})
    with pytest.raises(TypeError):
        write_json(path, {"status": object()})
    assert path.read_text() == '{\n "status": 0\n}\n'


def test_a_link_to_a_symbolic_link_is_one_to_the_file_itself(tmp_path: Path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "blobs/weights").write_bytes(b"weights")
    (tmp_path / "snapshots/gpt.pth").symlink_to("../blobs/weights")  # as the hub's cache does
    link_as(tmp_path / "snapshots/gpt.pth", tmp_path / "gpt.pth")
    assert (tmp_path / "gpt.pth").read_bytes() == b"weights"
