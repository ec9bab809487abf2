"""Tests of indextts/system/files.py and disk.py: files are complete or unchanged."""

import json
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from indextts.errors import FOLDER_IN_USE, UserError
from indextts.system.disk import locked_folder
from indextts.system.files import (
    count_lines,
    file_stamp,
    link_or_copy,
    write_bytes,
    write_json,
    written_aside,
)


def test_a_file_gets_its_name_only_when_complete(tmp_path: Path):
    path = tmp_path / "a.txt"
    with written_aside(path) as aside:
        aside.write_text("half")
        assert not path.exists()
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "half"


@pytest.mark.parametrize("is_unique", [False, True])
def test_after_an_error_only_the_old_file_is_left(tmp_path: Path, is_unique: bool):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with suppress(KeyboardInterrupt), written_aside(path, is_unique=is_unique) as aside:
        aside.write_text("new")
        raise KeyboardInterrupt
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"


def test_two_writers_of_one_file_do_not_share_a_temporary_one(tmp_path: Path):
    path = tmp_path / "a.txt"
    with written_aside(path, is_unique=True) as first, written_aside(path, is_unique=True) as second:
        assert first != second
        first.write_text("first")
        second.write_text("second")
    assert path.read_text() == "first"
    plain = tmp_path / "b.txt"
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_leftover_of_a_killed_writer_is_replaced(tmp_path: Path):
    (tmp_path / ".tmp-a.json").write_text("{")
    write_json(tmp_path / "a.json", {"word": "ሰላም"})
    assert json.loads((tmp_path / "a.json").read_bytes()) == {"word": "ሰላም"}
    assert not (tmp_path / ".tmp-a.json").exists()


def test_a_link_replaces_its_target_and_can_be_repeated(tmp_path: Path):
    write_bytes(tmp_path / "new", b"new")
    write_bytes(tmp_path / "latest", b"old")
    for _ in range(2):
        link_or_copy(tmp_path / "new", tmp_path / "latest")
        assert (tmp_path / "latest").samefile(tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "new"]


def test_a_replaced_file_of_the_same_size_has_another_stamp(tmp_path: Path):
    write_bytes(tmp_path / "a", b"1")
    before = file_stamp(tmp_path / "a")
    assert file_stamp(tmp_path / "a") == before
    write_bytes(tmp_path / "a", b"2")
    assert file_stamp(tmp_path / "a") != before


def test_blank_lines_are_not_counted(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"1\n\n2\n  \n3")
    assert count_lines(tmp_path / "a") == 3


HOLDER = """
import sys, time
from pathlib import Path
from indextts.system.disk import locked_folder
with locked_folder(Path(sys.argv[1]), in_use="no"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_has_one_writer_until_its_process_is_gone(tmp_path):
    lock = tmp_path / "new/folder/.lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, lock], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(UserError, match="wait for it") as refused,
            locked_folder(lock, in_use="wait for it"),
        ):
            pass
        assert refused.value.exit_status == FOLDER_IN_USE
        holder.kill()
    with locked_folder(lock, in_use="wait for it"):
        pass


def test_a_path_that_is_not_a_folder_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file: "), locked_folder(tmp_path / "file/.lock", in_use="-"):
        pass
