"""Uploads over raw HTTP: complete, cut off, with other fields, on a full disk; and the folder they are in."""

import contextlib
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from indextts.errors import UserError
from indextts.webui.serving.received import MAX_AGE_S, PART, received_folder, remove_old, size_of
from tests.conftest import REPOSITORY
from tests.waiting import PATIENCE_S, wait_until
from tests.webui_server import TWO_HANDLERS, Answer, Server, serving

NUM_CUT = 20
MULTIPART = "multipart/form-data; boundary=b"
MAX_BYTES = 2**20  # of a file on this page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("uploads")
    with serving(folder, "--max-upload-mb=1", program=TWO_HANDLERS) as server:
        yield server


def part(content: bytes, name: str = "files", filename: str | None = "a.wav") -> bytes:
    of_file = "" if filename is None else f'; filename="{filename}"'
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"{of_file}\r\n\r\n'
    return head.encode() + content + b"\r\n"


def upload(page: Server, *parts: bytes, **headers: str) -> Answer:
    body = b"".join(parts) + b"--b--\r\n"
    return page.ask_raw("POST", "/gradio_api/upload", body, content_type=MULTIPART, **headers)


def begin(page: Server, sent: bytes, announced: int) -> socket.socket:
    """Send the head of an upload and the beginning of its body."""
    connection = socket.create_connection(("127.0.0.1", page.port), PATIENCE_S)
    head = f"POST /gradio_api/upload HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\n"
    head += f"Content-Type: {MULTIPART}\r\nContent-Length: {announced}\r\n\r\n"
    connection.sendall(head.encode() + sent)
    return connection


def parts_of(page: Server) -> list[Path]:
    """Return the folders of uploads that have not ended."""
    return list(page.workspace.glob(f".received/*/{PART}*"))


def received(page: Server) -> tuple[int, int]:
    return size_of(page.workspace / ".received")


def peak_bytes(page: Server) -> int:
    lines = Path(f"/proc/{page.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def open_files(page: Server) -> list[str]:
    found = []
    for descriptor in Path(f"/proc/{page.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(descriptor.readlink()))
    return found


def test_an_upload_is_found_by_its_digest_in_a_folder_of_the_workspace_that_is_closed_to_others(page: Server):
    answer = upload(page, part(b"one"), part(b"two"), part(b"three", filename="ሰላም.wav"))
    paths = [Path(path) for path in json.loads(answer.body)]
    assert [path.read_bytes() for path in paths] == [b"one", b"two", b"three"]
    assert [path.name for path in paths] == ["a.wav", "a.wav", "ሰላም.wav"]
    [own] = (page.workspace / ".received").iterdir()
    assert all(path.parent.parent == own for path in paths)
    for folder in (own, own.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert parts_of(page) == []
    for path in paths:
        path.unlink()


def test_uploads_that_break_off_leave_nothing(page: Server):
    body = part(b"x" * 500_000) + part(b"y" * 300_000, filename="b.wav")
    connections = [begin(page, body, announced=900_000) for _ in range(NUM_CUT)]
    wait_until(lambda: received(page)[1] >= NUM_CUT * 700_000, process=page.process)
    assert len(parts_of(page)) == NUM_CUT
    for connection in connections:
        connection.close()
    wait_until(lambda: parts_of(page) == [], process=page.process)
    assert received(page) == (0, 0)
    # an open file would keep its bytes on the disk
    wait_until(lambda: not [path for path in open_files(page) if PART in path], process=page.process)
    assert "Traceback" not in "".join(page.printed)


def test_fields_without_files_are_not_kept_in_memory(page: Server):
    before = peak_bytes(page)
    refused = [
        upload(page, part(b"x" * 60_000_000, name="field", filename=None)),
        upload(page, part(b"x", name="files", filename=None), part(b"x")),
        upload(page, part(b"first"), part(b"x" * 100, name="field", filename=None)),
    ]
    assert [answer.status for answer in refused] == [400, 400, 400]
    assert peak_bytes(page) - before < 30_000_000
    assert received(page) == (0, 0)
    assert upload(page, part(b"x", name="other")).body == "[]"  # a file under another name is no upload
    assert received(page) == (0, 0)
    assert "Traceback" not in "".join(page.printed)


@pytest.mark.parametrize("body", [b"", b"--b", b"--b\r\n\r\n", b"x" * 100_000, part(b"x", filename="..")])
@pytest.mark.parametrize("kind", [MULTIPART, "multipart/form-data", "text/plain", f"{MULTIPART}{'b' * 5000}"])
def test_an_invalid_upload_is_refused_and_leaves_nothing(page: Server, body: bytes, kind: str):
    answer = page.ask_raw("POST", "/gradio_api/upload", body, content_type=kind)
    assert answer.status == 400 or answer.body == "[]"
    assert (received(page), parts_of(page)) == ((0, 0), [])
    assert "Traceback" not in "".join(page.printed)


def test_a_file_that_is_too_large_is_refused_and_leaves_nothing(page: Server):
    assert upload(page, part(b"small"), part(b"x" * (MAX_BYTES + 1))).status == 413
    assert (received(page), parts_of(page)) == ((0, 0), [])


def test_a_full_disk_is_reported_in_the_language_of_the_browser(page: Server):
    soft, hard = resource.prlimit(page.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(page.process.pid, resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        answers = [upload(page, part(b"x" * 500_000), cookie=f"language={code}") for code in ("en", "am")]
    finally:
        resource.prlimit(page.process.pid, resource.RLIMIT_FSIZE, (soft, hard))
    assert [answer.status for answer in answers] == [507, 507]
    english, amharic = (answer.body for answer in answers)
    assert english.isascii() and not amharic.isascii()  # noqa: PT018 - one property
    assert (received(page), parts_of(page)) == ((0, 0), [])
    assert "Traceback" not in "".join(page.printed)


def test_an_upload_that_cannot_fit_is_refused_before_it_is_sent(page: Server):
    with contextlib.closing(begin(page, b"", announced=2**60)) as connection:
        assert b" 507 " in connection.recv(100)
    assert (received(page), parts_of(page)) == ((0, 0), [])


# The folder


def test_leftovers_of_a_killed_page_are_removed_and_files_of_a_running_page_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GRADIO_TEMP_DIR", "")  # restored at the end
    folder = tmp_path / "workspace/.received"
    with (
        serving(tmp_path, program=TWO_HANDLERS) as killed,
        serving(tmp_path, program=TWO_HANDLERS) as running,
    ):
        [left] = json.loads(upload(killed, part(b"left")).body)
        [kept] = json.loads(upload(running, part(b"kept")).body)
        with contextlib.closing(begin(killed, part(b"x" * 100_000), announced=200_000)):
            wait_until(lambda: parts_of(killed), process=killed.process)
            killed.process.kill()
            killed.process.wait()
        assert Path(left).is_file()
        with received_folder(tmp_path / "workspace") as own:  # as the next page does at its start
            assert [path.read_bytes() for path in folder.rglob("*") if path.is_file()] == [b"kept"]
            assert own.is_relative_to(folder)
        assert Path(kept).is_file()
        running.process.send_signal(signal.SIGTERM)
        running.process.wait()
        assert list(folder.iterdir()) == []


def test_old_files_are_removed_and_new_ones_stay(tmp_path: Path):
    for name in ("old/a.wav", "new/b.wav"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"x")
    remove_old(tmp_path, time.time() + MAX_AGE_S - 60)
    assert size_of(tmp_path) == (2, 2)
    old = (tmp_path / "old/a.wav").stat().st_ctime
    wait_until(lambda: time.time() > old + 0.1)
    os.utime(tmp_path / "new/b.wav", (0, 0))  # a copy has the time of its source
    new = (tmp_path / "new/b.wav").stat().st_ctime
    remove_old(tmp_path, (old + new) / 2 + MAX_AGE_S)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path):
    (tmp_path / ".received").write_text("a file")
    with pytest.raises(UserError, match=r"\.received"), received_folder(tmp_path):
        pass


def test_the_folder_is_created_before_gradio_is_imported():
    code = "import sys, webui_amharic; print('gradio' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True)
    assert said.stdout == "False\n", said.stderr
