"""Tests of indextts/runs/find_checkpoint.py: the checkpoint of `--resume`, and files that it never takes.

What is corrupt and gone around is in tests/test_runs_owner.py.
"""

import os
import re
import shutil
from pathlib import Path

import pytest
import torch

from indextts.errors import RESUME_REFUSED, USER_MISTAKE, UserError
from indextts.models.checkpoint import recover_meta
from indextts.runs.directory import files_without_meta, verify_checkpoint
from indextts.runs.find_checkpoint import find_checkpoint
from tests.checkpoint_files import content, save
from tests.corruption import flip_bit
from tests.tiny_run import TinyRun, make_tiny_run


def found(folder: Path, resume: object = None, *, may_change: bool = True) -> Path | None:
    return find_checkpoint(str(resume or ""), folder, recover_meta, may_change=may_change)


def test_a_new_run_needs_a_folder_without_checkpoints(tmp_path: Path):
    assert found(tmp_path) is None
    assert found(tmp_path, "auto") is None
    (tmp_path / "train.log").touch()
    assert found(tmp_path) is None
    save(tmp_path, 3)
    with pytest.raises(UserError, match=r"model_step3\.pth.*--resume auto") as caught:
        found(tmp_path)
    assert caught.value.exit_status == USER_MISTAKE


@pytest.mark.parametrize("name", ["model_step5.pth", "latest.pth", "best.pth", "damaged-model_step5.pth"])
def test_any_checkpoint_file_prevents_a_new_run(tmp_path: Path, name: str):
    (tmp_path / name).touch()
    with pytest.raises(UserError, match=name):
        found(tmp_path)


@pytest.mark.failure(50)
def test_auto_takes_the_newest_serial_whatever_its_step_or_name(tmp_path: Path):
    save(tmp_path, 900, serial=1)
    save(tmp_path, 2, serial=3, part=2)
    save(tmp_path, 40, serial=2)
    assert found(tmp_path, "auto") == tmp_path / "model_step2.pth"


@pytest.mark.parametrize("step", [1, 3], ids=["older", "newer"])
@pytest.mark.parametrize("meta_time_s", [0, 4e9], ids=["older meta", "newer meta"])
def test_a_lone_latest_that_was_copied_over_another_is_taken(tmp_path: Path, step: int, meta_time_s: float):
    folder = tmp_path / "run"
    for number in (1, 2, 3):
        save(tmp_path / "elsewhere", number, serial=number)
    save(folder, 2, serial=2)
    for path in folder.glob("model_step2.*"):
        path.unlink()
    latest = folder / "latest.pth"
    latest.unlink()
    shutil.copy(tmp_path / f"elsewhere/model_step{step}.pth", latest)
    os.utime(latest.with_suffix(".json"), (meta_time_s, meta_time_s))
    assert found(folder, latest, may_change=False) == latest
    assert found(folder, "auto", may_change=False) == latest
    assert found(folder, "auto") == latest
    if step == 3 and meta_time_s == 0:
        assert verify_checkpoint(latest).step == 3


def test_a_folder_copied_with_other_times_and_without_links_is_used_as_it_is(tmp_path: Path):
    for step in (1, 2):
        save(tmp_path / "run", step, serial=step, is_best=step == 1)
    copied = shutil.copytree(tmp_path / "run", tmp_path / "copied", copy_function=shutil.copyfile)
    for path in copied.glob("*.json"):
        os.utime(path, (0, 0))
    before = {path.name: path.read_bytes() for path in copied.iterdir()}
    assert found(copied, "auto") == copied / "model_step2.pth"
    assert files_without_meta(copied) == []
    for path in copied.glob("model_step*"):
        path.unlink()
    assert found(copied, "auto") == copied / "latest.pth"
    assert {path.name for path in copied.iterdir()} == {name for name in before if "model_step" not in name}


def test_of_two_copies_of_a_save_the_valid_latest_is_taken(tmp_path: Path):
    path = save(tmp_path, 2)
    latest = tmp_path / "latest.pth"
    content_before = latest.read_bytes()
    latest.unlink()
    latest.write_bytes(content_before)
    flip_bit(path)
    assert found(tmp_path, "auto") == latest
    assert (tmp_path / "damaged-model_step2.pth").is_file()
    assert verify_checkpoint(latest).step == 2


def test_a_search_that_may_not_change_the_folder_leaves_it_unchanged(tmp_path: Path):
    for step in (1, 2):
        save(tmp_path, step, serial=step)
    flip_bit(tmp_path / "model_step2.pth")
    before = sorted((path.name, path.read_bytes()) for path in tmp_path.iterdir())
    assert found(tmp_path, "auto", may_change=False) == tmp_path / "model_step1.pth"
    assert sorted((path.name, path.read_bytes()) for path in tmp_path.iterdir()) == before


# --- by path ---


def test_a_path_is_taken_from_any_folder(tmp_path: Path):
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "run"
    folder.mkdir()
    for step in (1, 2):
        save(elsewhere, step, serial=step)
    path = elsewhere / "model_step1.pth"
    assert found(folder, path) == path
    assert list(folder.iterdir()) == []


def test_a_path_that_is_corrupt_is_refused_and_left_where_it_is(tmp_path: Path):
    path = save(tmp_path, 1)
    flip_bit(path)
    with pytest.raises(UserError, match=r"Resume failed: model_step1\.pth") as caught:
        found(tmp_path, path)
    assert caught.value.exit_status == RESUME_REFUSED
    assert path.is_file()


def test_a_missing_path_is_named_with_the_existing_checkpoints(tmp_path: Path):
    save(tmp_path, 7)
    with pytest.raises(UserError, match=r"not found: .*step8\.pth.*model_step7\.pth") as caught:
        found(tmp_path, tmp_path / "model_step8.pth")
    assert caught.value.exit_status == USER_MISTAKE
    with pytest.raises(UserError, match=r"run/latest\.pth"):
        found(tmp_path, tmp_path / "run/latest.pth")


@pytest.mark.parametrize("meta", [b"", b"{}", b"\xff\xfe", b"[1]"], ids=str)
def test_a_checkpoint_with_an_invalid_meta_file_is_used_only_if_it_has_a_record(tmp_path: Path, meta: bytes):
    path = save(tmp_path, 1)
    path.with_suffix(".json").write_bytes(meta)
    assert found(tmp_path, path, may_change=False) == path
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="Resume failed") as caught:
        found(tmp_path, path)
    assert caught.value.exit_status == RESUME_REFUSED


# --- another program's ---


def foreign(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(b"of another program")


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (("latest.pth", "model_step9.pth"), "latest.pth"),
        (("model_step9.pth", "model_step10.pth", "model_stepx.pth"), "model_step10.pth"),
        (("model_step9.pth", "model_step12.foreign.pth"), "model_step9.pth"),
    ],
    ids=["latest", "highest step", "renamed"],
)
def test_among_foreign_checkpoints_latest_or_the_highest_step_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, names: tuple[str, ...], taken: str
):
    foreign(tmp_path, *names)
    assert found(tmp_path, "auto") == tmp_path / taken
    assert f"{taken} has no meta file" in caplog.text


def test_a_foreign_checkpoint_does_not_replace_corrupt_own_ones(tmp_path: Path):
    save(tmp_path, 3)
    flip_bit(tmp_path / "model_step3.pth")
    foreign(tmp_path, "model_step900.pth")
    with pytest.raises(UserError, match="Resume failed: ") as caught:
        found(tmp_path, "auto")
    assert caught.value.exit_status == RESUME_REFUSED


def test_a_foreign_symbolic_link_is_followed(tmp_path: Path):
    foreign(tmp_path, "outside.pth")
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "latest.pth").symlink_to(tmp_path / "outside.pth")
    assert found(folder, "auto") == folder / "latest.pth"


def test_skipped_files_are_named_with_the_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    save(tmp_path, 3)
    foreign(tmp_path, "model_step900.pth")
    torch.save(content(800), tmp_path / "model_step800.pth")
    assert found(tmp_path, "auto") == tmp_path / "model_step3.pth"
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith("Skipped 2 files")
    for name, reason in (("900", "not a checkpoint"), ("800", "another program")):
        assert re.search(rf"model_step{name}\.pth [^;]*{reason}", warning), warning


@pytest.mark.parametrize("target", ["gone.pth", "latest.pth"], ids=["dangling", "loop"])
def test_a_dangling_symbolic_link_is_not_a_checkpoint(tmp_path: Path, target: str):
    (tmp_path / "latest.pth").symlink_to(target)
    assert found(tmp_path, "auto") is None


def test_a_folder_with_the_name_of_a_checkpoint_is_ignored(tmp_path: Path):
    (tmp_path / "latest.pth").mkdir()
    with pytest.raises(UserError, match="Resume failed: "):
        found(tmp_path, "auto")


# --- through the trainer ---


@pytest.fixture
def tiny(tmp_path: Path) -> TinyRun:
    run = make_tiny_run(tmp_path / "tiny")
    assert run.train(max_steps=3, save_interval=1, keep_checkpoints=9) == 0
    return run


def test_a_run_that_ends_before_its_first_save_is_found_again_in_its_new_folder(tiny: TinyRun):
    other = tiny.folder / "other"
    path = tiny.output / "model_step2.pth"
    assert tiny.train(output_dir=other, resume=path, max_steps=2) == 0
    assert verify_checkpoint(other / "latest.pth").step == 2
    assert tiny.train(output_dir=other, resume="auto", max_steps=3) == 0
    assert torch.load(other / "latest.pth", weights_only=True)["step"] == 3


def test_a_resumed_older_checkpoint_becomes_the_newest_even_without_training(tiny: TinyRun):
    assert tiny.train(resume=tiny.output / "model_step1.pth", max_steps=1) == 0
    meta = verify_checkpoint(tiny.output / "latest.pth")
    assert (meta.step, meta.part, meta.serial) == (1, 2, 4)
    assert verify_checkpoint(tiny.output / "model_step1.part1.pth").serial == 1


def test_through_a_symbolic_link_to_the_folder_the_run_stays_the_same_part(tiny: TinyRun):
    link = tiny.folder / "link"
    link.symlink_to(tiny.output)
    assert tiny.train(output_dir=link, resume=tiny.output / "latest.pth", max_steps=4) == 0
    meta = verify_checkpoint(tiny.output / "latest.pth")
    assert (meta.step, meta.part) == (4, 1)
