"""Tests of TensorBoard behind the page: a real server on real event files, with raw requests."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from indextts.errors import UserError
from indextts.projects.jobs.records import newest_job
from indextts.projects.jobs.stopping import kill_job
from indextts.projects.project import Project
from indextts.projects.tensorboard import live_port, write_address
from indextts.webui.language import t
from indextts.webui.monitor import tensorboard_view
from indextts.webui.serving.tensorboard_proxy import tensorboard_port
from tests.running_jobs import wait_until_over
from tests.waiting import wait_until
from tests.webui_server import TWO_HANDLERS, Server, serving

PASSWORD = "correct horse battery"


def write_events(run_dir: Path) -> None:
    """Write a curve as the trainer does, without its imports."""
    writer = EventFileWriter(str(run_dir / "logs/run_20260101_000000"))
    for step in range(5):
        value = Summary.Value(tag="train/mel_loss", simple_value=5.0 - step)
        writer.add_event(Event(wall_time=1000.0 + step, step=step, summary=Summary(value=[value])))
    writer.close()


def make_project(workspace: Path, name: str) -> Project:
    project = Project(workspace / name)
    project.root.mkdir(parents=True)
    (project.root / "project.json").write_text("{}")
    return project


def wait_for_port(project: Project) -> int:
    def is_found() -> bool:
        job = newest_job(project, tensorboard_view.STAGE)
        assert job
        assert job.is_active, job.log.read_text()
        return live_port(project.tensorboard_address) is not None

    wait_until(is_found)
    port = live_port(project.tensorboard_address)
    assert port
    return port


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A page with a login; in its project `demo` TensorBoard runs."""
    folder = tmp_path_factory.mktemp("tensorboard")
    (folder / "login").write_text(f"me:{PASSWORD}")
    (folder / "login").chmod(0o600)
    project = make_project(folder / "workspace", "demo")
    make_project(folder / "workspace", "other")
    write_events(project.run_dir)
    tensorboard_view.start(project)
    try:
        with serving(folder, f"--auth-file={folder / 'login'}", program=TWO_HANDLERS) as server:
            wait_for_port(project)
            yield server
    finally:
        job = newest_job(project, tensorboard_view.STAGE)
        assert job
        kill_job(job)


def test_after_sign_in_tensorboard_shows_the_curve(page: Server):
    cookie = page.cookie("me", PASSWORD)
    shown = page.ask("GET", "/tensorboard/demo/", cookie=cookie)
    assert shown.status == 200
    assert "<title>TensorBoard</title>" in shown.body
    assert "script-src 'self' 'unsafe-eval'" in shown.headers["content-security-policy"]
    assert (
        "'unsafe-inline'" not in shown.headers["content-security-policy"].split("script-src")[1].split(";")[0]
    )
    assert page.ask("GET", "/tensorboard/demo/index.js", cookie=cookie).status == 200
    tags = page.ask("GET", "/tensorboard/demo/data/plugin/scalars/tags", cookie=cookie)
    assert json.loads(tags.body) == {
        "run_20260101_000000": {"train/mel_loss": {"displayName": "train/mel_loss", "description": ""}}
    }
    query = "run=run_20260101_000000&tag=train%2Fmel_loss"
    curve = page.ask("GET", f"/tensorboard/demo/data/plugin/scalars/scalars?{query}", cookie=cookie)
    assert [point[2] for point in json.loads(curve.body)] == [5.0, 4.0, 3.0, 2.0, 1.0]


@pytest.mark.parametrize("path", ["", "data/runs", "index.js", "data/plugin/scalars/tags", "../demo/"])
def test_without_sign_in_tensorboard_is_closed(page: Server, path: str):
    real = page.cookie("me", PASSWORD).split(";")[0]
    forged = f"{real.partition('=')[0]}=me"
    for cookie in (None, "", forged, real.replace("access-token", "access-token-x"), real[:-1] + "~"):
        for method in ("GET", "POST", "HEAD"):
            assert page.ask(method, f"/tensorboard/demo/{path}", cookie=cookie).status == 401


def test_the_proxy_reaches_only_a_running_tensorboard_of_a_project(page: Server):
    cookie = page.cookie("me", PASSWORD)
    for path in (
        "other/",
        "absent/",
        "..%2Fdemo/",
        "../demo/",
        "demo",
        "/",
        "%00/",
        "127.0.0.1:80/",
        "http://127.0.0.1/",
        "demo@127.0.0.1:1/",
        "%64emo%2F..%2Fother/",
    ):
        assert page.ask("GET", f"/tensorboard/{path}", cookie=cookie).status == 404, path
    assert page.ask("DELETE", "/tensorboard/demo/", cookie=cookie).status == 405
    other_site = page.ask("GET", "/tensorboard/demo/data/runs", cookie=cookie, origin="http://evil.test")
    assert other_site.status == 403


def test_headers_are_filtered_in_both_directions(page: Server):
    """Put another server where TensorBoard was; it shows what it is told and says what it must not."""
    seen: list[dict[str, str]] = []

    class Curious(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append({name.lower(): text for name, text in self.headers.items()})
            seen.append(
                {"body": self.rfile.read(int(self.headers["content-length"])).decode(), "path": self.path}
            )
            self.send_response(302)
            for name, text in {
                "Set-Cookie": "access-token=planted",
                "Location": "http://evil.test/",
                "Content-Security-Policy": "default-src *",
                "Access-Control-Allow-Origin": "*",
                "Content-Type": "text/plain",
                "Content-Length": "2",
                "Connection": "close",
            }.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Curious)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    write_address(Project(page.workspace / "other").tensorboard_address, server.server_port)  # we live
    try:
        cookie = page.cookie("me", PASSWORD)
        answer = page.ask(
            "POST", "/tensorboard/other/a%2Fb?c=%20d", ["x"], cookie=cookie, authorization="Basic x"
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        Project(page.workspace / "other").tensorboard_address.unlink()
    assert (answer.status, answer.body) == (302, "ok")
    for name in ("set-cookie", "location", "access-control-allow-origin"):
        assert name not in answer.headers
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert seen[1] == {"body": '["x"]', "path": "/tensorboard/other/a%2Fb?c=%20d"}
    assert seen[0]["content-type"] == "application/json"
    assert not seen[0].keys() & {"cookie", "authorization", "origin"}


def test_the_port_of_an_ended_process_is_not_used(tmp_path: Path):
    path = tmp_path / "a/tensorboard.json"
    make_project(tmp_path, "a")
    write_address(path, 4000)
    assert live_port(path) == 4000
    assert tensorboard_port(tmp_path, "/tensorboard/a/") == 4000
    record = json.loads(path.read_text())
    record["process"]["start_ticks"] -= 1  # the same number, another process
    path.write_text(json.dumps(record))
    assert live_port(path) is None
    for content in (b"", b"{}", b'{"port": "x"}', json.dumps({"port": 70000, "process": {}}).encode()):
        path.write_bytes(content)
        assert live_port(path) is None


def test_a_stop_ends_tensorboard_and_the_page_shows_what_to_do(tmp_path: Path):
    project = make_project(tmp_path, "demo")
    with pytest.raises(UserError, match="training_output"):
        tensorboard_view.start(project)
    with pytest.raises(UserError, match="not running"):
        tensorboard_view.stop(project)
    assert tensorboard_view.frame_of(project) == t(tensorboard_view.HELP)

    write_events(project.run_dir)
    assert tensorboard_view.start(project).startswith("running for")
    port = wait_for_port(project)
    assert tensorboard_view.port_version(project) == str(port)
    assert 'src="tensorboard/demo/"' in tensorboard_view.frame_of(project)
    with pytest.raises(UserError, match="already running"):
        tensorboard_view.start(project)
    tensorboard_view.stop(project)
    job = newest_job(project, tensorboard_view.STAGE)
    assert job
    job = wait_until_over(job)
    assert job.state == "stopped"
    assert tensorboard_view.frame_of(project) == t(tensorboard_view.HELP)


def test_tensorboard_listens_on_loopback_and_loads_no_plugin_that_reads_files(page: Server):
    address = json.loads((page.workspace / "demo/tensorboard.json").read_text())
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    port = f":{address['port']:04X}"
    addresses = {
        line.split()[1] for line in listening.splitlines() if f"{port} " in line and line.split()[3] == "0A"
    }
    assert addresses == {f"0100007F{port}"}
    children = subprocess.run(["pgrep", "-P", str(address["process"]["pid"])], capture_output=True, text=True)
    assert children.stdout == ""
    cookie = page.cookie("me", PASSWORD)
    plugins = json.loads(page.ask("GET", "/tensorboard/demo/data/plugins_listing", cookie=cookie).body)
    assert set(plugins) == {"scalars", "timeseries"}


def test_a_folder_without_event_files_is_a_one_line_error(tmp_path: Path):
    argv = [
        sys.executable,
        "tools/serve_tensorboard.py",
        f"--logdir={tmp_path}",
        f"--address-file={tmp_path}/a",
    ]
    ended = subprocess.run(argv, capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith(f"[Error] --logdir {tmp_path}: ")
