"""Tests of indextts/runs/checkpoints.py and directory.py: the folder that trainer and page share."""

import math
import os
import re
import threading
from pathlib import Path

import pytest

from indextts.errors import UserError
from indextts.runs.checkpoints import (
    best_validation_loss,
    bytes_in_trash,
    deletion_refusal,
    empty_trash,
    list_checkpoints,
    move_to_trash,
    pin,
    restore_trash,
)
from indextts.runs.directory import CheckpointMeta, checkpoints, read_metrics, verify_checkpoint
from indextts.runs.owner import prepare, prune, quarantine, run_lock
from indextts.system.files import link_or_copy
from tests.checkpoint_files import save


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of four saves, of which the second is the best."""
    for number in range(1, 5):
        save(tmp_path, 10 * number, serial=number, is_best=number == 2)
    return tmp_path


def complete_names(run_dir: Path) -> list[str]:
    return [each.name for each in list_checkpoints(run_dir) if each.is_complete]


def test_checkpoints_are_listed_with_step_size_and_marks(run: Path):
    (run / "model_step30.pinned").touch()
    (run / "model_step7.foreign.pth").write_bytes(b"of another program")
    found = list_checkpoints(run)
    assert [each.step for each in found] == [40, 30, 20, 10, None]
    assert [each.is_latest for each in found] == [True, False, False, False, False]
    assert [each.is_best for each in found] == [False, False, True, False, False]
    assert [each.is_pinned for each in found] == [False, True, False, False, False]
    assert [each.is_complete for each in found] == [True, True, True, True, False]
    assert found[0].num_bytes == (run / "model_step40.pth").stat().st_size
    assert found[0].time == (run / "model_step40.pth").stat().st_mtime
    assert list_checkpoints(run / "absent") == []


def test_a_link_whose_checkpoint_is_deleted_is_listed_and_kept(run: Path):
    for suffix in (".pth", ".json"):
        (run / f"model_step20{suffix}").unlink()
    found = {each.name: each for each in list_checkpoints(run)}
    assert found["best.pth"].step == 20
    assert "latest.pth" not in found
    with pytest.raises(UserError, match=r"best\.pth is a link"):
        move_to_trash(run, "best.pth")


def test_the_best_loss_is_the_lowest_of_the_folder_on_the_same_validation_pairs(tmp_path: Path):
    found = [("a", 2.5, 1), ("a", 2.3, 1), ("b", 1.0, 1), ("a", None, 2), ("a", 2.4, 2)]
    for number, (validation_set, loss, part) in enumerate(found, 1):
        path = save(tmp_path, number, serial=number, part=part)
        meta = CheckpointMeta.read(path.with_suffix(".json"))
        changes = {"validation_set": validation_set, "validation_mel_loss": loss}
        meta.model_copy(update=changes).write(path.with_suffix(".json"))
    assert best_validation_loss(tmp_path, "a") == 2.3
    assert best_validation_loss(tmp_path, "b") == 1.0
    assert best_validation_loss(tmp_path, "c") == math.inf
    quarantine(tmp_path / "model_step2.pth")
    assert best_validation_loss(tmp_path, "a") == 2.4


def test_a_pinned_checkpoint_survives_pruning_until_it_is_unpinned(run: Path):
    pin(run, "model_step10.pth", is_pinned=True)
    assert prune(run, keep=1, part=1) == ["model_step30.pth"]
    pin(run, "model_step10.pth", is_pinned=False)
    pin(run, "model_step10.pth", is_pinned=False)
    assert prune(run, keep=1, part=1) == ["model_step10.pth"]
    assert not list(run.glob("*.pinned"))


def test_a_deleted_checkpoint_is_not_listed_and_can_be_moved_back(run: Path):
    folder = move_to_trash(run, "model_step30.pth")
    assert complete_names(run) == ["model_step40.pth", "model_step20.pth", "model_step10.pth"]
    assert sorted(path.name for path in folder.iterdir()) == ["model_step30.json", "model_step30.pth"]
    assert folder.parent == run / "trash"
    prepare(run)
    with run_lock(run):  # the repair by the next trainer leaves the trash alone
        pass
    for path in folder.iterdir():
        path.replace(run / path.name)
    assert verify_checkpoint(run / "model_step30.pth").serial == 3


def test_a_checkpoint_comes_back_from_the_trash_unless_its_name_is_taken(run: Path):
    before = complete_names(run)
    folder = move_to_trash(run, "model_step30.pth")
    (run / "model_step30.pth").write_text("a newer one")
    assert restore_trash(run) == []
    (run / "model_step30.pth").unlink()
    assert restore_trash(run) == ["model_step30.pth"]
    assert complete_names(run) == before
    assert not folder.exists()


def test_emptying_the_trash_frees_its_reported_size(run: Path):
    sizes = [
        (run / f"model_step{step}{suffix}").stat().st_size
        for step in (10, 30)
        for suffix in (".pth", ".json")
    ]
    assert empty_trash(run) == 0
    move_to_trash(run, "model_step10.pth")
    move_to_trash(run, "model_step30.pth")
    assert bytes_in_trash(run) == sum(sizes)
    assert empty_trash(run) == sum(sizes)
    assert not (run / "trash").exists()
    assert complete_names(run) == ["model_step40.pth", "model_step20.pth"]


def test_two_deleted_checkpoints_of_one_name_have_two_folders(run: Path):
    first = move_to_trash(run, "model_step10.pth")
    save(run, 10, serial=5)
    save(run, 50, serial=6)
    assert move_to_trash(run, "model_step10.pth") != first
    assert len(list((run / "trash").iterdir())) == 2


@pytest.mark.parametrize(
    ("name", "reason"),
    [("model_step40.pth", "newest"), ("model_step20.pth", r"best\.pth"), ("model_step30.pth", "pinned")],
)
def test_a_needed_checkpoint_is_not_deleted(run: Path, name: str, reason: str):
    pin(run, "model_step30.pth", is_pinned=True)
    with pytest.raises(UserError, match=f"{name}.*{reason}"):
        move_to_trash(run, name)
    assert not (run / "trash").exists()
    assert len(complete_names(run)) == 4
    assert deletion_refusal(run, "model_step10.pth") == ""


def test_the_only_complete_checkpoint_is_kept_even_without_latest_and_best(run: Path):
    for path in (*run.glob("latest.*"), *run.glob("best.*")):
        path.unlink()
    for step in (20, 30, 40):
        os.truncate(run / f"model_step{step}.pth", 10)
    with pytest.raises(UserError, match=r"model_step10\.pth"):
        move_to_trash(run, "model_step10.pth")
    move_to_trash(run, "model_step40.pth")  # an incomplete one may be deleted
    assert complete_names(run) == ["model_step10.pth"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "/etc/passwd",
        "../one/model_step10.pth",
        "model_step10.json",
        "model_step10",
        "trash",
        "model_step10.pth/../model_step30.pth",
        "metrics.jsonl",
        "model_step11.pth",
        "model_step*.pth",
        "\0",
    ],
)
def test_only_listed_names_are_accepted(run: Path, name: str):
    (run / "metrics.jsonl").touch()
    before = sorted(path.name for path in run.iterdir())
    for act in (
        lambda: move_to_trash(run, name),
        lambda: pin(run, name, is_pinned=True),
        lambda: pin(run, name, is_pinned=False),
        lambda: deletion_refusal(run, name),
    ):
        with pytest.raises(UserError, match=re.escape(f"checkpoint {name} ")):
            act()
    assert sorted(path.name for path in run.iterdir()) == before


def test_a_trash_that_is_a_symbolic_link_is_not_emptied(run: Path, tmp_path_factory: pytest.TempPathFactory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "kept").write_text("!")
    (run / "trash").symlink_to(elsewhere)
    with pytest.raises(UserError, match="trash"):
        empty_trash(run)
    assert (elsewhere / "kept").exists()


def test_deleting_while_a_trainer_saves_and_prunes_leaves_only_complete_checkpoints(tmp_path: Path):
    """One thread deletes every listed checkpoint, another saves and prunes as the trainer does."""
    save(tmp_path, 1, serial=1)
    deleted, problems = [], []

    def delete_all() -> None:
        while not is_over.is_set():
            for each in list_checkpoints(tmp_path):
                try:
                    deleted.append(move_to_trash(tmp_path, each.name))
                except UserError:
                    continue
                except OSError as error:
                    problems.append(error)

    is_over = threading.Event()
    person = threading.Thread(target=delete_all)
    person.start()
    for step in range(2, 60):
        save(tmp_path, step, serial=step)
        try:
            prune(tmp_path, keep=3, part=1)
        except FileNotFoundError:
            continue  # the saver logs it and goes on
    is_over.set()
    person.join()
    assert problems == []
    assert deleted
    for path, _ in checkpoints(tmp_path):
        verify_checkpoint(path)
    for folder in deleted:
        [checkpoint] = folder.glob("*.pth")
        verify_checkpoint(checkpoint)
    assert checkpoints(tmp_path)[0][1].step == 59


def test_a_checkpoint_without_its_meta_file_does_not_count(tmp_path: Path):
    save(tmp_path, 1)
    (tmp_path / "model_step9.pth").write_bytes(b"half a save")
    assert {path.name for path, _ in checkpoints(tmp_path)} == {"latest.pth", "model_step1.pth"}


@pytest.mark.failure(55)
def test_the_later_line_of_a_replayed_step_counts(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"kind": "train", "part": 1, "step": 10, "mel_loss": 5.0}\n'
        '{"kind": "train", "part": 1, "step": 20, "mel_loss": 4.0}\n'
        '{"kind": "train", "part": 1, "st\n'
        '{"kind": "train", "part": 1, "step": 20, "mel_loss": 3.0}\n'
        '{"kind": "train", "part": 2, "step": 10, "mel_loss": 2.0}\n'
    )
    assert [line["mel_loss"] for line in read_metrics(path)] == [5.0, 3.0, 2.0]


def test_lines_after_the_step_of_a_resume_are_dropped(tmp_path: Path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"kind": "start", "part": 1, "step": 0}\n'
        '{"kind": "train", "part": 1, "step": 10, "mel_loss": 5.0}\n'
        '{"kind": "val", "part": 1, "step": 15, "mel_loss": 4.5}\n'
        '{"kind": "train", "part": 1, "step": 20, "mel_loss": 4.0}\n'
        '{"kind": "start", "part": 1, "step": 10}\n'
        '{"kind": "train", "part": 1, "step": 30, "mel_loss": 3.0}\n'
        '{"kind": "start", "part": 2, "step": 0}\n'
    )
    assert [(line["kind"], line["step"]) for line in read_metrics(path)] == [
        ("start", 0),
        ("train", 10),
        ("start", 10),
        ("train", 30),
        ("start", 0),
    ]


@pytest.mark.parametrize("text", ["[]", '{"step": "x"}', '{"format_version": 2}', "\x00" * 100])
def test_an_invalid_meta_file_is_a_value_error_with_a_reason(tmp_path: Path, text: str):
    (tmp_path / "model_step3.json").write_text(text)
    with pytest.raises(ValueError, match=r"model_step3\.json: \w"):
        CheckpointMeta.read(tmp_path / "model_step3.json")


def test_a_link_to_a_symbolic_link_is_a_link_to_its_target(tmp_path: Path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "blobs/weights").write_bytes(b"weights")
    (tmp_path / "snapshots/gpt.pth").symlink_to("../blobs/weights")  # as the hub's cache does
    link_or_copy(tmp_path / "snapshots/gpt.pth", tmp_path / "gpt.pth")
    assert (tmp_path / "gpt.pth").read_bytes() == b"weights"
