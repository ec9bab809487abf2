"""Tests of indextts/runs/owner.py: the lock, and kills at every point of every operation."""

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from indextts.errors import FOLDER_IN_USE, UserError
from indextts.models.checkpoint import recover_meta
from indextts.runs.directory import checkpoints, verify_checkpoint
from indextts.runs.find_checkpoint import find_checkpoint
from indextts.runs.owner import make_room, prepare, prune, publish, quarantine, run_lock
from indextts.system.processes import this_process
from tests.checkpoint_files import save
from tests.corruption import flip_bit

CHANGES = ("rename", "replace", "link", "unlink", "fsync")  # of the os module; pathlib uses these


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("model_step*.pth")}


def test_a_second_start_names_the_trainer_that_has_just_taken_the_lock(tmp_path: Path):
    prepare(tmp_path)
    with (tmp_path / ".lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # and the owner is not written yet
        record = threading.Timer(0.1, (tmp_path / ".lock").write_text, [json.dumps(asdict(this_process()))])
        record.start()
        with pytest.raises(UserError, match=f"process {os.getpid()}") as refusal, run_lock(tmp_path):
            pass
        record.join()
    assert refusal.value.exit_status == FOLDER_IN_USE


def saves(count: int) -> Callable[[Path], None]:
    """Return what saves the steps 1 to `count`, of which the first is the best."""

    def act(folder: Path) -> None:
        for step in range(1, count + 1):
            save(folder, step, serial=step, is_best=step == 1)

    return act


def save_and_prune(folder: Path) -> None:
    save(folder, 2, serial=2, is_best=True)
    prune(folder, keep=1, part=1)


def with_a_corrupt_newest(folder: Path) -> None:
    saves(2)(folder)
    flip_bit(folder / "model_step2.pth")


def make_much_room(folder: Path) -> None:
    make_room(folder, 2 * (folder / "model_step1.pth").stat().st_size, keep=1, part=1)


def go_around_a_corrupt_one(folder: Path) -> None:
    quarantine(folder / "model_step2.pth")
    quarantine(folder / "latest.pth")
    publish(folder / "model_step1.pth", folder / "latest.pth")


def with_foreign_files(folder: Path) -> None:
    for name in ("model_step5.pth", "latest.pth"):
        (folder / name).write_bytes(b"of another program: " + name.encode())


# what is in the folder, and what is killed at every change that it makes
SCENES: dict[str, tuple[Callable[[Path], None], Callable[[Path], None]]] = {
    "save and prune": (saves(1), save_and_prune),
    "a corrupt newest": (with_a_corrupt_newest, go_around_a_corrupt_one),
    "first save": (saves(0), saves(1)),
    "worse save": (saves(1), lambda folder: save(folder, 2, serial=2)),
    "better save": (saves(1), lambda folder: save(folder, 2, serial=2, is_best=True)),
    "new part": (saves(1), lambda folder: save(folder, 1, serial=2, part=2, is_best=True)),
    "its own name": (saves(1), lambda folder: save(folder, 1, serial=2, is_best=True)),
    "beside foreign files": (with_foreign_files, lambda folder: save(folder, 5, serial=2)),
    "room": (saves(3), make_much_room),
}
IN_SHORT = ("save and prune", "a corrupt newest")


def count_changes(act: Callable[[Path], None], folder: Path, die_at: int) -> int | None:
    """Return how many changes of the disk `act` makes, None if it died before the `die_at`-th."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        done = 0

        def counted(change: Callable) -> Callable:
            def call(*args: object, **kwargs: object) -> object:
                nonlocal done
                done += 1
                if done == die_at:
                    os._exit(9)
                return change(*args, **kwargs)

            return call

        for name in CHANGES:
            setattr(os, name, counted(getattr(os, name)))
        try:
            act(folder)
            os.write(writer, str(done).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as answer:
        text = answer.read()
    return int(text) if text else None


@pytest.mark.parametrize(
    "scene", [pytest.param(name, marks=[] if name in IN_SHORT else pytest.mark.long) for name in SCENES]
)
@pytest.mark.failure(18)
def test_a_kill_before_any_disk_change_is_repaired_by_the_next_owner(tmp_path: Path, scene: str):
    before, act = SCENES[scene]
    total = None
    die_at = 0
    while total is None:
        die_at += 1
        folder = tmp_path / str(die_at)
        folder.mkdir()
        before(folder)
        foreign = sorted(p.read_bytes() for p in folder.glob("*.pth") if p.read_bytes().startswith(b"of an"))
        valid = [meta.serial for path, meta in checkpoints(folder) if is_valid(path)]
        total = count_changes(act, folder, die_at)
        with run_lock(folder):
            if act is go_around_a_corrupt_one:
                taken = find_checkpoint("auto", folder, recover_meta)
                assert taken.name in ("model_step1.pth", "best.pth")
        where = f"died before change {die_at}"
        assert not list(folder.glob(".tmp-*")), where
        found = [(path, meta) for path, meta in checkpoints(folder) if path.name.startswith("model_step")]
        corrupt = [path.name for path, _ in found if not is_valid(path)]
        assert corrupt == [], where
        good = [(path, meta) for path, meta in found if is_valid(path)]
        if act is not make_much_room:  # that may delete the newest, where the best is valid
            assert max([meta.serial for _, meta in good], default=0) >= max(valid, default=0), where
        if good and before is not with_foreign_files:  # only a save may rename a file of another program
            assert verify_checkpoint(folder / "latest.pth").serial == good[0][1].serial, where
            best = [meta.serial for _, meta in good if meta.is_best]
            if best:
                assert verify_checkpoint(folder / "best.pth").serial == best[0], where
        without_meta = [p.name for p in folder.glob("model_step*.pth") if not p.with_suffix(".json").exists()]
        assert all("foreign" in name or before is with_foreign_files for name in without_meta), where
        kept = sorted(p.read_bytes() for p in folder.glob("*.pth") if p.read_bytes().startswith(b"of an"))
        assert kept == foreign, where
        act(folder) if act is not go_around_a_corrupt_one else None  # what was interrupted can be done again
    assert die_at - 1 == total
    assert total >= 5


def is_valid(path: Path) -> bool:
    try:
        verify_checkpoint(path)
    except ValueError:
        return False
    return True


@pytest.mark.failure(58)
def test_other_parts_and_best_pinned_and_foreign_files_are_never_removed(tmp_path: Path):
    save(tmp_path, 900, serial=1, part=1)
    (tmp_path / "model_step7.pth").write_bytes(b"from another program")
    for step in (1, 2, 3, 4):
        save(tmp_path, step, serial=1 + step, part=2, is_best=step == 1)
    (tmp_path / "model_step2.pinned").touch()
    prune(tmp_path, keep=1, part=2)
    kept = (900, 7, 1, 2, 4)
    assert names(tmp_path) == {f"model_step{step}.pth" for step in kept}


@pytest.mark.failure(18)
def test_nothing_is_removed_while_the_newest_is_corrupt(tmp_path: Path):
    for step in (1, 2, 3):
        save(tmp_path, step, serial=step)
    flip_bit(tmp_path / "model_step3.pth")
    assert prune(tmp_path, keep=1, part=1) == []
    assert names(tmp_path) == {"model_step1.pth", "model_step2.pth", "model_step3.pth"}


# --- room for the next save ---


@pytest.mark.parametrize(
    ("num_saves", "has_best", "corrupt", "sizes", "left", "makes_room"),
    [
        pytest.param(4, True, None, 1, {1, 3, 4}, True, id="the oldest that is not the best"),
        pytest.param(2, True, None, 1, {1}, True, id="the newest, where the best stays"),
        pytest.param(1, True, None, 1, {1}, False, id="never the best"),
        pytest.param(2, False, None, 1, {2}, True, id="without a best the newest stays"),
        pytest.param(1, False, None, 1, {1}, False, id="never the only one"),
        pytest.param(3, False, None, 3, {1, 2, 3}, False, id="nothing, if it would be too small"),
        pytest.param(3, False, 3, 2, {1, 2, 3}, False, id="nothing, if all that would stay are corrupt"),
        pytest.param(3, False, 3, 1, {2, 3}, True, id="the oldest, if a valid one stays"),
    ],
)
def test_room_is_made_with_as_few_of_the_oldest_as_needed(
    tmp_path: Path,
    num_saves: int,
    has_best: bool,
    corrupt: int | None,
    sizes: int,
    left: set[int],
    makes_room: bool,
):
    for step in range(1, num_saves + 1):
        save(tmp_path, step, serial=step, is_best=has_best and step == 1)
    if corrupt:
        flip_bit(tmp_path / f"model_step{corrupt}.pth")
    num_bytes = sizes * (tmp_path / "model_step1.pth").stat().st_size
    assert make_room(tmp_path, num_bytes, keep=1, part=1) == makes_room
    assert names(tmp_path) == {f"model_step{step}.pth" for step in left}
    if not corrupt:
        assert verify_checkpoint(tmp_path / "latest.pth").step == max(left)


def test_what_makes_room_against_the_rule_is_a_warning_with_the_flag_and_pinned_ones_stay(tmp_path, caplog):
    for step in (1, 2, 3):
        save(tmp_path, step, serial=step)
    (tmp_path / "model_step1.pinned").touch()
    assert make_room(tmp_path, 1, keep=3, part=1)  # the rule keeps 2 and 3 after the next save
    assert names(tmp_path) == {"model_step1.pth", "model_step3.pth"}
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "model_step2.pth" in warning
    assert "--keep-checkpoints 3" in warning


def test_a_pin_moves_with_its_checkpoint_when_a_new_part_takes_the_name(tmp_path: Path):
    save(tmp_path, 1, serial=1)
    (tmp_path / "model_step1.pinned").touch()
    save(tmp_path, 1, serial=2, part=2)
    assert (tmp_path / "model_step1.part1.pinned").exists()
    assert not (tmp_path / "model_step1.pinned").exists()


@pytest.mark.failure(26, 27)
def test_a_second_trainer_is_refused_and_the_lock_ends_with_its_process(tmp_path: Path):
    program = (
        "import sys, pathlib; from indextts.runs.owner import run_lock\n"
        "with run_lock(pathlib.Path(sys.argv[1])): print('owned', flush=True); sys.stdin.read()"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout.readline() == "owned\n"
        with pytest.raises(UserError, match=f"process {owner.pid}") as caught, run_lock(tmp_path):
            pass
        assert caught.value.exit_status == 5
        owner.kill()
    with run_lock(tmp_path):
        assert not list(tmp_path.glob(".tmp-*"))


@pytest.mark.parametrize("record", ["alive", "another boot", "another start", "junk", ""])
@pytest.mark.failure(27)
def test_without_file_locks_the_recorded_owner_decides(tmp_path: Path, monkeypatch, record: str):
    def no_locks(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    me = this_process()
    owners = {
        "alive": me,
        "another boot": replace(me, boot_id="0"),
        "another start": replace(me, start_ticks=1),
    }
    text = json.dumps(asdict(owners[record])) if record in owners else record
    (tmp_path / ".lock").write_text(text)
    if record == "alive":
        with pytest.raises(UserError, match=f"process {me.pid}"), run_lock(tmp_path):
            pass
    else:
        with run_lock(tmp_path):
            assert (tmp_path / ".lock").read_text() != text


@pytest.mark.failure(24)
def test_a_folder_that_cannot_be_written_is_a_user_error(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"--output-dir .*file/run.*\(Not a directory\)"):
        prepare(tmp_path / "file/run")


def test_the_write_probe_touches_no_file_of_the_user(tmp_path: Path):
    (tmp_path / "probe").write_text("mine")
    prepare(tmp_path)
    with run_lock(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "probe"]
    assert (tmp_path / "probe").read_text() == "mine"


def test_a_checkpoint_that_is_deleted_while_it_is_linked_leaves_the_next_save_its_links(tmp_path: Path):
    for step in (1, 2):
        save(tmp_path, step, serial=step)
    gone = tmp_path / "model_step2.pth"
    for path in (gone.with_suffix(".json"), gone):
        path.unlink()
    publish(gone, tmp_path / "latest.pth")
    save(tmp_path, 3, serial=3)
    assert verify_checkpoint(tmp_path / "latest.pth").step == 3
    assert not list(tmp_path.glob(".tmp-*"))
