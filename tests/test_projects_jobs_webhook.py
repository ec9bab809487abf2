"""Tests of indextts/projects/jobs/webhook.py, with real servers and real jobs."""

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from indextts.projects.jobs import webhook
from indextts.projects.jobs.files import WEBHOOK
from indextts.projects.jobs.log_tail import tail
from indextts.projects.jobs.starting import start_job
from indextts.projects.jobs.webhook import send
from indextts.projects.project import Project
from tests.running_jobs import program, reread, wait_for, wait_until_over


class Receiver:
    """A server that keeps what is posted to it and answers with `status`, after `delay_s`."""

    def __init__(self, status: int = 200, delay_s: float = 0, **headers: str) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                time.sleep(delay_s)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hooks/s3cret-path"

    def __enter__(self) -> "Receiver":
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_the_webhook_receives_the_end_and_the_url_stays_secret(project: Project, monkeypatch):
    source = "import os; print(sorted(os.environ)); raise SystemExit(3)"
    with Receiver() as receiver:
        monkeypatch.setenv(WEBHOOK, receiver.address)
        job = start_job(project, "train", [program(project, source)])
        wait_for(job, lambda: receiver.bodies)
        over = wait_until_over(job)
    path, body = receiver.bodies[0]
    assert path == "/hooks/s3cret-path"
    notice = json.loads(body)
    assert notice.pop("seconds") == pytest.approx(over.ended - over.began, abs=0.06)
    sentence = notice.pop("text")
    assert notice == {"project": "voice", "stage": "train", "state": "failed", "content": sentence}
    assert sentence.startswith("voice: train failed after ")
    assert "PATH" in tail(job.log)
    assert WEBHOOK not in tail(job.log)
    for path in job.folder.iterdir():
        assert b"s3cret" not in path.read_bytes(), path


def test_a_failed_webhook_logs_one_line_without_the_url(project: Project, monkeypatch: pytest.MonkeyPatch):
    with Receiver(status=500) as receiver:
        monkeypatch.setenv(WEBHOOK, receiver.address)
        job = start_job(project, "train", [program(project, "")])
        wait_for(job, lambda: "[Warn]" in tail(job.log))
    last = tail(job.log, 1)
    assert last.startswith("[Warn]")
    assert "500" in last
    assert "s3cret" not in last
    assert reread(job).state == "finished"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("http://example.org/s3cret", "https://"),
        ("http://127.0.0.1.example.org/s3cret", "https://"),
        ("file:///etc/passwd", "https://"),
        ("https://", "https://"),
        ("http://[s3cret", "https://"),
        ("http://127.0.0.1:1/s3cret", "Connection refused"),
        ("http://127.0.0.1:s3cret/", "InvalidURL"),
        ("http://127.0.0.1:1/s3cret\r\nX: y", "InvalidURL"),
    ],
)
def test_an_unusable_url_is_not_repeated(address: str, problem: str):
    error = send(address, "voice", "train", "finished", 1)
    assert problem in error
    assert "s3cret" not in error


def test_a_webhook_follows_no_redirect_and_respects_its_timeout(monkeypatch: pytest.MonkeyPatch):
    with Receiver() as elsewhere:
        for status in (302, 307):
            with Receiver(status, Location=elsewhere.address) as receiver:
                assert str(status) in str(send(receiver.address, "v", "train", "finished", 1))
    assert elsewhere.bodies == []
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.2)
    with Receiver(delay_s=10) as slow:
        began = time.monotonic()
        assert send(slow.address, "v", "train", "finished", 1) is not None
        assert time.monotonic() - began < 10
