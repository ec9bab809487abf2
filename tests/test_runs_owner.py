"""Tests of indextts/runs/owner.py: the lock, and kills at every point of every operation."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from indextts.errors import UserError
from indextts.models.checkpoint import recover_meta
from indextts.runs.directory import CheckpointMeta, checkpoints, verify_checkpoint
from indextts.runs.find_checkpoint import find_checkpoint
from indextts.runs.owner import make_room, prepare, prune, publish, quarantine, run_lock
from tests.checkpoint_files import save

CHANGES = ("rename", "replace", "link", "unlink", "fsync")  # of the os module; pathlib uses these


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("model_step*.pth")}


def flip_a_bit(path: Path) -> None:
    """Damage the bytes in place, so that links to them are corrupt too."""
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


def first_save(folder: Path) -> None:
    save(folder, 1, serial=1, is_best=True)


def second_save(folder: Path) -> None:
    save(folder, 2, serial=2)


def better_save(folder: Path) -> None:
    save(folder, 2, serial=2, is_best=True)


def save_and_prune(folder: Path) -> None:
    save(folder, 2, serial=2, is_best=True)
    prune(folder, keep=1, part=1)


def save_of_a_new_part(folder: Path) -> None:
    save(folder, 1, serial=2, part=2, is_best=True)


def save_over_its_own(folder: Path) -> None:
    save(folder, 1, serial=2, is_best=True)


def save_beside_foreign_files(folder: Path) -> None:
    save(folder, 5, serial=2)


def go_around_a_corrupt_one(folder: Path) -> None:
    quarantine(folder / "model_step2.pth")
    quarantine(folder / "latest.pth")
    publish(folder / "model_step1.pth", folder / "latest.pth")


def nothing(folder: Path) -> None:
    pass


def with_a_corrupt_newest(folder: Path) -> None:
    first_save(folder)
    second_save(folder)
    flip_a_bit(folder / "model_step2.pth")


def with_foreign_files(folder: Path) -> None:
    for name in ("model_step5.pth", "latest.pth"):
        (folder / name).write_bytes(b"of another program: " + name.encode())


SCENES: list[tuple[Callable[[Path], None], Callable[[Path], None]]] = [
    (first_save, save_and_prune),
    (with_a_corrupt_newest, go_around_a_corrupt_one),
]
MORE_SCENES: list[tuple[Callable[[Path], None], Callable[[Path], None]]] = [
    (nothing, first_save),
    (first_save, second_save),
    (first_save, better_save),
    (first_save, save_of_a_new_part),
    (first_save, save_over_its_own),
    (with_foreign_files, save_beside_foreign_files),
]


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
    ("before", "act"),
    [*SCENES, *(pytest.param(*scene, marks=pytest.mark.long) for scene in MORE_SCENES)],
    ids=lambda scene: scene.__name__,
)
@pytest.mark.failure(18)
def test_a_kill_before_any_disk_change_is_repaired_by_the_next_owner(
    tmp_path: Path, before: Callable[[Path], None], act: Callable[[Path], None]
):
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


def test_the_newest_checkpoints_are_kept(tmp_path: Path):
    for step in (1, 2, 3, 4):
        save(tmp_path, step, serial=step)
    assert prune(tmp_path, keep=2, part=1) == ["model_step2.pth", "model_step1.pth"]
    assert names(tmp_path) == {"model_step3.pth", "model_step4.pth"}
    assert not (tmp_path / "model_step1.json").exists()


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
    flip_a_bit(tmp_path / "model_step3.pth")
    assert prune(tmp_path, keep=1, part=1) == []
    assert names(tmp_path) == {"model_step1.pth", "model_step2.pth", "model_step3.pth"}


# --- room for the next save ---


def size_of(folder: Path, step: int) -> int:
    return (folder / f"model_step{step}.pth").stat().st_size


def test_room_is_made_with_as_few_of_the_oldest_as_needed(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    for step in (1, 2, 3, 4, 5):
        save(tmp_path, step, serial=step, is_best=step == 1)
    (tmp_path / "model_step2.pinned").touch()
    assert make_room(tmp_path, 1, keep=3, part=1)
    assert names(tmp_path) == {f"model_step{step}.pth" for step in (1, 2, 4, 5)}
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert make_room(tmp_path, 1, keep=3, part=1)  # the rule keeps 4 and 5 after the next save
    assert names(tmp_path) == {f"model_step{step}.pth" for step in (1, 2, 5)}
    warning = caplog.records[-1]
    assert warning.levelname == "WARNING"
    assert "model_step4.pth" in warning.getMessage()
    assert "--keep-checkpoints 3" in warning.getMessage()
    assert verify_checkpoint(tmp_path / "latest.pth").step == 5


def test_the_newest_makes_room_only_where_the_best_stays_and_is_then_the_latest(tmp_path: Path):
    save(tmp_path, 1, serial=1, is_best=True)
    save(tmp_path, 2, serial=2)
    assert make_room(tmp_path, size_of(tmp_path, 2), keep=1, part=1)
    assert names(tmp_path) == {"model_step1.pth"}
    assert {verify_checkpoint(tmp_path / f"{name}.pth").step for name in ("latest", "best")} == {1}
    assert not make_room(tmp_path, 1, keep=1, part=1)
    assert names(tmp_path) == {"model_step1.pth"}


def test_without_a_best_the_newest_stays(tmp_path: Path):
    for step in (1, 2):
        save(tmp_path, step, serial=step)
    assert make_room(tmp_path, 1, keep=1, part=1)
    assert names(tmp_path) == {"model_step2.pth"}
    assert not make_room(tmp_path, 1, keep=1, part=1)
    assert verify_checkpoint(tmp_path / "latest.pth").step == 2


def test_nothing_makes_room_that_would_be_too_small(tmp_path: Path):
    for step in (1, 2, 3):
        save(tmp_path, step, serial=step)
    assert not make_room(tmp_path, 3 * size_of(tmp_path, 1), keep=1, part=1)
    assert names(tmp_path) == {f"model_step{step}.pth" for step in (1, 2, 3)}


def test_nothing_makes_room_while_all_that_would_stay_are_corrupt(tmp_path: Path):
    for step in (1, 2, 3):
        save(tmp_path, step, serial=step)
    flip_a_bit(tmp_path / "model_step3.pth")
    assert not make_room(tmp_path, 2 * size_of(tmp_path, 1), keep=1, part=1)
    assert make_room(tmp_path, size_of(tmp_path, 1), keep=1, part=1)  # 2 is valid
    assert names(tmp_path) == {"model_step2.pth", "model_step3.pth"}


@pytest.mark.long
@pytest.mark.failure(18)
def test_a_kill_while_room_is_made_leaves_a_valid_latest(tmp_path: Path):
    def make_much_room(folder: Path) -> None:
        make_room(folder, 2 * size_of(folder, 1), keep=1, part=1)

    total, die_at = None, 0
    while total is None:
        die_at += 1
        folder = tmp_path / str(die_at)
        folder.mkdir()
        first_save(folder)
        save(folder, 2, serial=2)
        save(folder, 3, serial=3)
        total = count_changes(make_much_room, folder, die_at)
        with run_lock(folder):
            newest = checkpoints(folder)[0][1].serial
            assert verify_checkpoint(folder / "latest.pth").serial == newest >= 1
            assert verify_checkpoint(folder / "best.pth").serial == 1
            assert not list(folder.glob(".tmp-*"))
    assert newest == 1
    assert total >= 5


def test_a_pin_moves_with_its_checkpoint_when_a_new_part_takes_the_name(tmp_path: Path):
    save(tmp_path, 1, serial=1)
    (tmp_path / "model_step1.pinned").touch()
    save(tmp_path, 1, serial=2, part=2)
    assert (tmp_path / "model_step1.part1.pinned").exists()
    assert not (tmp_path / "model_step1.pinned").exists()


@pytest.mark.failure(2)
def test_auto_quarantines_corrupt_checkpoints_and_later_saves_reuse_their_names(tmp_path: Path):
    for step in (1, 2, 3):
        save(tmp_path, step, serial=step)
    for step in (2, 3):
        flip_a_bit(tmp_path / f"model_step{step}.pth")
    assert find_checkpoint("auto", tmp_path, recover_meta) == tmp_path / "model_step1.pth"
    assert names(tmp_path) == {"model_step1.pth"}
    assert (tmp_path / "damaged-model_step3.json").is_file()
    assert verify_checkpoint(tmp_path / "latest.pth").step == 1
    save(tmp_path, 2, serial=4)
    assert find_checkpoint("auto", tmp_path, recover_meta) == tmp_path / "model_step2.pth"


@pytest.mark.failure(27)
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
        assert owner.stdout is not None
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
    import fcntl
    from dataclasses import replace

    from indextts.system.processes import this_process

    def no_locks(*_: object) -> None:
        raise OSError("no locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    me = this_process()
    text = {
        "alive": me.to_json(),
        "another boot": replace(me, boot_id="0").to_json(),
        "another start": replace(me, start_ticks=1).to_json(),
    }.get(record, record)
    (tmp_path / ".lock").write_text(text)
    if record == "alive":
        with pytest.raises(UserError, match=f"process {me.pid}"), run_lock(tmp_path):
            pass
    else:
        with run_lock(tmp_path):
            assert CheckpointMeta  # owned


def test_the_next_owner_removes_the_files_of_an_interrupted_save(tmp_path: Path):
    (tmp_path / ".tmp-model_step5.pth").write_bytes(b"half")
    with run_lock(tmp_path):
        assert not list(tmp_path.glob(".tmp-*"))


def test_a_folder_that_cannot_be_written_is_a_user_error(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"--output-dir .*file/run.*\(Not a directory\)"):
        prepare(tmp_path / "file/run")


@pytest.mark.failure(26)
def test_only_one_of_several_simultaneous_trainers_gets_the_lock_the_others_end_with_status_5(tmp_path: Path):
    program = (
        "import sys, pathlib\n"
        "from indextts.errors import UserError\n"
        "from indextts.runs.owner import run_lock, prepare\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "try:\n"
        "    for _ in range(100): prepare(folder)\n"
        "    with run_lock(folder): print(0, flush=True); sys.stdin.read()\n"
        "except UserError as error: print(error.exit_status, error, flush=True)\n"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "run")]
    trainers = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for trainer in trainers:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "ready\n"
    for trainer in trainers:
        assert trainer.stdin is not None
        trainer.stdin.write("go\n")
        trainer.stdin.flush()
    answers = [trainer.stdout.readline() for trainer in trainers if trainer.stdout]
    for trainer in trainers:
        trainer.communicate()
    assert sorted(answer[:2] for answer in answers) == ["0\n", "5 ", "5 ", "5 "], answers


def test_the_write_probe_touches_no_file_of_the_user(tmp_path: Path):
    (tmp_path / "probe").write_text("mine")
    prepare(tmp_path)
    with run_lock(tmp_path):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "probe"]
    assert (tmp_path / "probe").read_text() == "mine"


def test_a_full_disk_at_the_start_ends_with_status_4(tmp_path: Path, monkeypatch):
    def refuse(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with (
        pytest.raises(UserError, match=r"--output-dir .*No space left on device") as caught,
        run_lock(tmp_path),
    ):
        pass
    assert caught.value.exit_status == 4
