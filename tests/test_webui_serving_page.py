"""A page with a password over raw HTTP: the session, what strangers can take from it, and uploads."""

import contextlib
import json
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlencode

import psutil
import pytest

from indextts.errors import UserError
from indextts.webui.serving import front_end
from indextts.webui.serving.connections import MAX_ANONYMOUS
from indextts.webui.serving.received import MAX_AGE_S, received_folder, remove_old
from indextts.webui.serving.routes import PART
from tests.small_disk import largest_file
from tests.waiting import PATIENCE_S, wait_until
from tests.webui_server import TWO_HANDLERS, Answer, Server, serving, size_of

PASSWORD = "correct horse battery"
MULTIPART = "multipart/form-data; boundary=b"
MAX_BYTES = 2**20  # of a file on this page
FORGED = "9.9.9.9\x1b]0;owned\x07\x1b[2J"
MB = 1_000_000
STYLE = re.compile(r'"\./([\w-]+\.css)"')


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("page")
    login = folder / "workspace/login"
    login.parent.mkdir()
    login.write_text(f"me:{PASSWORD}")
    login.chmod(0o600)
    flags = [f"--auth-file={login}", "--max-upload-mb=1"]
    with serving(folder, *flags, program=TWO_HANDLERS) as server:
        yield server


@pytest.fixture(scope="module")
def cookie(page: Server) -> str:
    return page.cookie("me", PASSWORD)


def head(page: Server, path: str, length: int, **headers: str) -> bytes:
    named = {"Host": f"127.0.0.1:{page.port}", "Content-Length": str(length), **headers}
    lines = [f"POST {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {text}" for name, text in named.items())]
    return "\r\n".join([*lines, "", ""]).encode()


# The session


def test_a_session_opens_the_page_and_nothing_else_does(page: Server, cookie: str):
    assert '"dependencies":[{' in page.ask("GET", "/", cookie=cookie).body.replace(" ", "")
    assert '"auth_required":true' in page.ask("GET", "/").body
    assert page.join(0, [], cookie=cookie).status == 200
    assert page.result(cookie=cookie)["data"] == ["started"]
    (page.workspace / "canary").unlink()
    real = cookie.split(";")[0]
    assert page.ask("GET", "/config", cookie=real).status == 200
    for forged in (None, real[:-1], f"{real.partition('=')[0]}=me"):
        assert page.join(0, [], cookie=forged).status == 401
        assert page.ask("GET", f"/gradio_api/file={page.workspace}/login", cookie=forged).status == 401
    assert not (page.workspace / "canary").exists()


def test_sign_out_ends_the_session(page: Server, cookie: str):
    other = page.cookie("me", PASSWORD)
    assert page.ask("GET", "/logout?all_session=false", cookie=other).status == 302
    assert page.ask("GET", "/config", cookie=other).status == 401
    assert page.ask("GET", "/config", cookie=cookie).status == 200


def test_a_path_is_checked_and_only_files_of_the_workspace_are_served(page: Server, cookie: str):
    (page.workspace / "inside.txt").write_text("ሰላም", encoding="utf-8")
    assert page.join(1, ["inside.txt"], cookie=cookie).status == 200
    assert page.result(cookie=cookie)["data"] == ["ሰላም"]
    for typed in ("/etc/passwd", "../page.py", "a\0b", "", None):
        page.join(1, [typed], cookie=cookie)
        result = page.result(cookie=cookie)
        assert result["success"] is False
        assert "data" not in result
    assert page.ask("GET", f"/gradio_api/file={page.workspace}/inside.txt", cookie=cookie).status == 200
    for path in ("/etc/passwd", page.workspace / "login", page.workspace / "../page.py"):
        assert page.ask("GET", f"/gradio_api/file={path}", cookie=cookie).status == 403


def test_the_documentation_is_served_as_text_to_who_is_signed_in(page: Server, cookie: str):
    assert page.ask("GET", "/docs/training.md", cookie=cookie).body.startswith("# Training")
    assert page.ask("GET", "/docs/training.md").status == 401
    assert page.ask("GET", "/docs/no-such-page.md", cookie=cookie).status == 404


def test_a_stream_of_results_ends_when_none_is_to_come(page: Server, cookie: str):
    page.join(1, ["inside.txt"], cookie=cookie)
    page.result(cookie=cookie)
    answer = page.ask("GET", "/gradio_api/queue/data?session_hash=raw", cookie=cookie)
    assert json.loads(answer.body.removeprefix("data: "))["msg"] == "close_stream"


def test_each_replacement_applies_to_the_scripts_of_this_gradio(page: Server):
    """Fails with a Gradio that has changed: look whether its scripts still have the habits, and adapt."""
    for beginning, replaced in front_end.REPLACED.items():
        [path] = front_end.FOLDER.glob(f"{beginning}*.js")
        answer = page.ask("GET", f"/assets/{path.name}")
        assert answer.headers["cache-control"] == "no-cache"
        served = answer.body
        for before, after in replaced:
            assert path.read_text(encoding="utf-8").count(before) == served.count(after) == 1
            assert before not in served


def test_the_styles_of_the_components_of_a_page_are_one_file(page: Server):
    served = front_end.served_assets(["textbox", "button"])
    [core] = front_end.FOLDER.glob("core-*.js")
    replaced = set(STYLE.findall(core.read_text(encoding="utf-8"))) - set(STYLE.findall(served[core.name]))
    assert len(replaced) >= 2
    for name in replaced:
        assert (front_end.FOLDER / name).read_text(encoding="utf-8") in served[front_end.STYLES]
    assert page.ask("GET", f"/assets/{front_end.STYLES}").headers["content-type"].startswith("text/css")


def test_a_browser_keeps_the_scripts_whose_names_contain_their_digests(page: Server):
    [path] = front_end.FOLDER.glob("runtime-*.js")
    assert "immutable" in page.ask("GET", f"/assets/{path.name}").headers["cache-control"]
    for other in ("/", "/page_files/page.js", "/assets/none-12345678.js"):
        assert "immutable" not in page.ask("GET", other).headers.get("cache-control", "")


# Strangers


@pytest.mark.parametrize("number", [150, pytest.param(1500, marks=pytest.mark.long)])
def test_strangers_take_little_and_the_owner_gets_in(page: Server, cookie: str, number: int):
    process = psutil.Process(page.process.pid)
    before = process.memory_info().rss
    num_files, num_threads = process.num_fds(), process.num_threads()
    guess = urlencode({"username": "me", "password": "wrong"}).encode()
    form = {"Content_Type": "application/x-www-form-urlencoded", "X_Forwarded_For": FORGED}
    starts = [
        head(page, "/theme.css", 8 * MB) + bytes(MB),
        head(page, "/gradio_api/upload", 8 * MB, Content_Type=MULTIPART) + bytes(MB),
        head(page, "/login", 2000, **form) + guess,
        head(page, "/login", len(guess), **form) + guess,
    ]
    half_heads = [
        b"",
        b"G",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"\0" * 100,
        b"PRI * HTTP/2.0\r\n\r\n",
    ]
    half_heads += [b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\nx"]
    half_heads += [b"GET /assets/x HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20]
    with ExitStack() as opened:
        for n in range(number + 500):
            line = opened.enter_context(socket.create_connection(("127.0.0.1", page.port), PATIENCE_S))
            with contextlib.suppress(ConnectionError):
                line.sendall(starts[n % len(starts)] if n < number else half_heads[n % len(half_heads)])
        assert page.ask("GET", "/config", cookie=cookie).status == 200
        assert page.sign_in("me", PASSWORD, x_forwarded_for=FORGED).status == 200
        assert process.memory_info().rss - before < 100 * MB
        assert process.num_fds() - num_files < MAX_ANONYMOUS + 60
        assert process.num_threads() - num_threads < 50
    wait_until(lambda: any("sign-in" in line for line in page.printed))
    printed = "".join(page.printed)
    assert not [text for text in ("\x1b", "9.9.9.9", PASSWORD, "wrong", "Traceback") if text in printed]


def test_what_is_sent_is_compressed_for_who_is_signed_in(page: Server, cookie: str):
    changed = f"/assets/{next(iter(front_end.served_assets([])))}"
    for path, coding in (("/", "gzip"), ("/theme.css", "br"), ("/assets/page.js", "gzip"), (changed, "gzip")):
        plain = page.ask("GET", path, cookie=cookie)
        answer = page.ask("GET", path, cookie=cookie, accept_encoding=coding)
        assert answer.headers["content-encoding"] == coding
        assert len(answer.body) < len(plain.body) / 2
        assert "content-encoding" not in page.ask("GET", path, accept_encoding=coding).headers


# Uploads


def part(content: bytes, filename: str = "a.wav") -> bytes:
    about = f'--b\r\nContent-Disposition: form-data; name="files"; filename="{filename}"\r\n\r\n'
    return about.encode() + content + b"\r\n"


def upload(page: Server, *parts: bytes, **headers: str) -> Answer:
    body = b"".join(parts) + b"--b--\r\n"
    return page.ask_raw("POST", "/gradio_api/upload", body, content_type=MULTIPART, **headers)


def begin(page: Server, cookie: str, sent: bytes, announced: int) -> socket.socket:
    """Send the head of an upload and the beginning of its body."""
    connection = socket.create_connection(("127.0.0.1", page.port), PATIENCE_S)
    connection.sendall(
        head(page, "/gradio_api/upload", announced, Content_Type=MULTIPART, Cookie=cookie) + sent
    )
    return connection


def received(page: Server) -> tuple[int, int]:
    return size_of(page.workspace / ".received")


def test_an_upload_is_found_by_its_digest_in_a_folder_that_is_closed_to_others(page: Server, cookie: str):
    answer = upload(page, part(b"one"), part(b"two"), part(b"two"), part(b"3", "ሰላም.wav"), cookie=cookie)
    paths = [Path(path) for path in json.loads(answer.body)]
    assert [path.read_bytes() for path in paths] == [b"one", b"two", b"two", b"3"]
    assert [path.name for path in paths] == ["a.wav", "a.wav", "a.wav", "ሰላም.wav"]
    folder = page.workspace / ".received"
    assert all(path.parent.parent == folder for path in paths)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert received(page) == (3, 7)
    for path in set(paths):
        path.unlink()


def test_an_upload_that_breaks_off_leaves_nothing(page: Server, cookie: str):
    with begin(page, cookie, part(b"x" * 500_000) + part(b"y" * 300_000, "b.wav"), announced=900_000):
        wait_until(lambda: received(page)[1] >= 700_000, process=page.process)
    wait_until(lambda: received(page) == (0, 0), process=page.process)
    # an open file would keep its bytes on the disk
    process = psutil.Process(page.process.pid)
    wait_until(lambda: not [file for file in process.open_files() if PART in file.path])


def test_an_upload_that_is_invalid_or_too_large_is_refused_and_leaves_nothing(page: Server, cookie: str):
    assert upload(page, part(b"small"), part(b"x" * (MAX_BYTES + 1)), cookie=cookie).status == 413
    assert upload(page, part(b"x", filename=".."), cookie=cookie).status in (200, 400)
    for kind in (MULTIPART, "multipart/form-data", "text/plain"):
        body = b"x" * 100_000
        answer = page.ask_raw("POST", "/gradio_api/upload", body, content_type=kind, cookie=cookie)
        assert answer.status == 400
    with begin(page, cookie, b"", announced=2**60) as line:
        assert b" 507 " in line.recv(100)
    assert received(page) == (0, 0)


def test_a_full_disk_is_reported_in_the_language_of_the_browser(page: Server, cookie: str):
    with largest_file(100_000, page.process.pid):
        answers = [
            upload(page, part(b"x" * 500_000), cookie=f"{cookie}; language={code}") for code in ("en", "am")
        ]
    assert [answer.status for answer in answers] == [507, 507]
    assert [answer.body.isascii() for answer in answers] == [True, False]
    assert received(page) == (0, 0)
    assert "Traceback" not in "".join(page.printed)


def test_old_files_are_removed_and_new_ones_stay(tmp_path: Path):
    for name in ("old/a.wav", "new/b.wav"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"x")
    remove_old(tmp_path, time.time() + MAX_AGE_S - 60)
    assert size_of(tmp_path) == (2, 2)
    old = (tmp_path / "old/a.wav").stat().st_ctime
    wait_until(lambda: time.time() > old + 0.1)
    os.utime(tmp_path / "new/b.wav", (0, 0))  # a copy has the time of its source
    remove_old(tmp_path, (old + (tmp_path / "new/b.wav").stat().st_ctime) / 2 + MAX_AGE_S)
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path):
    (tmp_path / ".received").write_text("a file")
    with pytest.raises(UserError, match=r"\.received"):
        received_folder(tmp_path)
