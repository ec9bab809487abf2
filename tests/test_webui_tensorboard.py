"""Tests of TensorBoard behind the page: a real server on real event files; guard.py asks for the sign-in."""

import json
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from indextts.errors import UserError
from indextts.projects.jobs.records import newest_job
from indextts.projects.jobs.starting import TENSORBOARD_JOB, start_job
from indextts.projects.jobs.stopping import stop_job
from indextts.projects.project import Project
from indextts.projects.tensorboard import live_port, write_address
from indextts.webui.language import t
from indextts.webui.monitor.tab import frame_of, port_version, prepare
from indextts.webui.serving.routes import METHODS, ask_tensorboard, tensorboard_port
from tests.running_jobs import wait_until_over
from tests.waiting import wait_until


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
        job = newest_job(project, TENSORBOARD_JOB)
        assert job
        assert job.is_active, job.log.read_text()
        return live_port(project.tensorboard_address) is not None

    wait_until(is_found)
    port = live_port(project.tensorboard_address)
    assert port
    return port


def page_over(workspace: Path) -> TestClient:
    """Return a client of the address that the page forwards."""
    asking = partial(ask_tensorboard, workspace=workspace, transport=httpx.AsyncHTTPTransport())
    return TestClient(Starlette(routes=[Route("/tensorboard/{rest:path}", asking, methods=list(METHODS))]))


def test_tensorboard_runs_and_is_shown_until_it_is_stopped(tmp_path: Path):
    project, page = make_project(tmp_path, "demo"), page_over(tmp_path)
    make_project(tmp_path, "other")
    with pytest.raises(UserError, match="training_output"):
        prepare(project)
    assert frame_of(project) == t("monitor.tensorboard_help")

    write_events(project.run_dir)
    job = start_job(project, TENSORBOARD_JOB, prepare(project).commands)
    port = wait_for_port(project)
    assert port_version(project) == str(port)
    assert 'src="tensorboard/demo/"' in frame_of(project)

    assert "<title>TensorBoard</title>" in page.get("/tensorboard/demo/").text
    assert page.get("/tensorboard/demo/index.js").status_code == 200
    scalars = "/tensorboard/demo/data/plugin/scalars"
    assert page.get(f"{scalars}/tags").json() == {
        "run_20260101_000000": {"train/mel_loss": {"displayName": "train/mel_loss", "description": ""}}
    }
    curve = page.get(f"{scalars}/scalars?run=run_20260101_000000&tag=train%2Fmel_loss")
    assert [point[2] for point in curve.json()] == [5.0, 4.0, 3.0, 2.0, 1.0]
    assert set(page.get("/tensorboard/demo/data/plugins_listing").json()) == {"scalars", "timeseries"}
    for path in ("other/", "absent/", "..%2Fdemo/", "demo", "%00/", "127.0.0.1:80/", "demo@127.0.0.1:1/"):
        assert page.get(f"/tensorboard/{path}").status_code == 404, path
    assert page.delete("/tensorboard/demo/").status_code == 405
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    assert f"0100007F:{port:04X}" in [words[1] for words in listening if words[3] == "0A"]

    stop_job(job)
    assert wait_until_over(job).state == "stopped"
    assert frame_of(project) == t("monitor.tensorboard_help")


def test_headers_are_filtered_in_both_directions(tmp_path: Path):
    """Put another server where TensorBoard was; it shows what it is told and says what it must not."""
    seen: list[dict[str, str]] = []
    told = {"Set-Cookie": "access-token=planted", "Location": "http://evil.test/"}
    told |= {"Content-Security-Policy": "default-src *", "Access-Control-Allow-Origin": "*"}

    class Curious(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            seen.append({name.lower(): text for name, text in self.headers.items()})
            seen.append({"body": body, "path": self.path})
            self.send_response(302)
            for name, text in {**told, "Content-Type": "text/plain", "Content-Length": "2"}.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Curious) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        project = make_project(tmp_path, "other")
        write_address(project.tensorboard_address, server.server_port)  # we live
        answer = page_over(tmp_path).post(
            "/tensorboard/other/a%2Fb?c=%20d",
            json=["x"],
            headers={"cookie": "access-token=x", "authorization": "Basic x", "origin": "http://testserver"},
            follow_redirects=False,
        )
        server.shutdown()
        thread.join()
    assert (answer.status_code, answer.text) == (302, "ok")
    assert not {name.lower() for name in told} & set(answer.headers)
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
