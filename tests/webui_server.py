"""A real server of the page in its own process, and raw requests to it."""

import contextlib
import http.client
import json
import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from indextts.projects.jobs.records import list_jobs
from indextts.projects.jobs.stopping import kill_job
from indextts.projects.project import Project
from tests.conftest import REPOSITORY
from tests.waiting import PATIENCE_S, wait_until

PAGE = REPOSITORY / "webui_amharic.py"
CLOSED_PORT = 9

TWO_HANDLERS = '''
"""A page with two handlers: one writes a file, one reads a typed path inside the roots."""
import signal
import sys
from pathlib import Path
from typing import Any

import gradio as gr

from indextts.commands.terminal import parse, run
from indextts.commands.app import WebUI
from indextts.errors import UserError
from indextts.webui.serving.launch import launch
from indextts.webui.serving.received import received_folder
from indextts.webui.serving.security import Roots

command = parse(WebUI, sys.argv[1:])
roots = Roots(command.workspace, tuple(command.root))


def start():
    (command.workspace / "canary").write_text("started")
    return "started"


def read(typed):
    try:
        return roots.inside(typed, "Manifest").read_text()
    except UserError as error:
        raise gr.Error(str(error), print_exception=False) from None


with gr.Blocks(analytics_enabled=False) as demo:
    field = gr.Textbox()
    shown = gr.Textbox()
    gr.Button().click(start, None, shown, api_visibility="private")
    field.change(read, field, shown, api_visibility="private")


def main():
    received_folder(command.workspace)
    launch(demo, command)
    return 0


signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background ignore it
run(main)
'''


def sent_values(config: dict[str, Any]) -> dict[int, Any]:
    """Return what a browser sends for each component of `config` once the first project is chosen."""
    found = {component["id"]: component["props"] for component in config["components"]}
    values = {number: props.get("value") for number, props in found.items()}
    [project] = [number for number, props in found.items() if props.get("elem_id") == "project"]
    return values | {project: found[project]["choices"][0][1]}


def packed_inputs(config: dict[str, Any], handler: dict[str, Any]) -> list[int]:
    """Return the components whose values the only input of `handler` carries; empty without packing."""
    before = [each for each in config["dependencies"] if each["id"] == handler["trigger_after"]]
    return [
        number
        for each in before
        if not each["backend_fn"] and each["outputs"] == handler["inputs"]
        for number in each["inputs"]
    ]


def find_handler(config: dict[str, Any], element: str) -> dict[str, Any]:
    """Return the handler of a click on the element with this id."""
    [button] = [each["id"] for each in config["components"] if each["props"].get("elem_id") == element]
    [clicked] = [each for each in config["dependencies"] if [button, "click"] in each["targets"]]
    after = [each for each in config["dependencies"] if each["trigger_after"] == clicked["id"]]
    return clicked if clicked["backend_fn"] else after[0]


def sent_data(config: dict[str, Any], handler: dict[str, Any], values: dict[int, Any]) -> list[Any]:
    """Return the data of a request to `handler`, given the value of each component."""
    if form := packed_inputs(config, handler):
        return [json.dumps([values[number] for number in form])]
    return [values[number] for number in handler["inputs"]]


@dataclass(frozen=True)
class Answer:
    status: int
    body: str
    headers: http.client.HTTPMessage


class Server:
    """A page in its own process. Nothing leaves this machine: what asks for https meets a closed port.

    Args:
        program: a file, beside whose package it runs, or the text of one.
        proxy_port: of somebody else whom it meets.
    """

    def __init__(
        self, workspace: Path, *flags: str, program: str | Path = PAGE, proxy_port: int = CLOSED_PORT
    ) -> None:
        folder = workspace.parent
        self.workspace, self.log, self.port = workspace, folder / "webui.log", free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        workspace.mkdir(exist_ok=True)
        repository = REPOSITORY if isinstance(program, str) else program.parent
        if isinstance(program, str):
            (folder / "page.py").write_text(program)
            program = folder / "page.py"
        self.argv = [sys.executable, str(program), f"--port={self.port}", f"--workspace={workspace}", *flags]
        proxy = f"http://127.0.0.1:{proxy_port}"
        self.environment = os.environ | {"PYTHONPATH": str(repository), "HTTPS_PROXY": proxy}
        self.start()

    def start(self) -> None:
        """Start the page, also again after `kill`."""
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                self.argv,
                cwd=self.log.parent,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(  # the line with the address is the last one of the start
                lambda: any(line.startswith("The page is at") for line in self.printed),
                explain=lambda: "".join(self.printed),
                process=self.process,
            )
        except AssertionError:
            self.kill()
            raise

    @property
    def printed(self) -> list[str]:
        """The lines that the program printed."""
        return self.log.read_text(errors="replace").splitlines(keepends=True)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def kill_with_jobs(self) -> None:
        self.kill()
        for folder in self.workspace.glob("*/jobs"):
            for job in list_jobs(Project(folder.parent)):
                kill_job(job)

    def ask(
        self, method: str, path: str, body: Any = None, form: bool = False, **headers: str | None
    ) -> Answer:
        """Send one request; a header given as None is left out."""
        if body is None:
            return self.ask_raw(method, path, b"", **headers)
        kind = "application/x-www-form-urlencoded" if form else "application/json"
        text = urlencode(body) if form else json.dumps(body)
        return self.ask_raw(method, path, text.encode(), **{"content_type": kind, **headers})

    def ask_raw(self, method: str, path: str, body: bytes, **headers: str | None) -> Answer:
        """Send one request with exactly this body, as JSON if no header says otherwise."""
        sent = {"Host": f"127.0.0.1:{self.port}", "Content-type": "application/json"} | {
            name.replace("_", "-").capitalize(): text for name, text in headers.items()
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, text in (sent | {"Content-Length": str(len(body))}).items():
                if text is not None:
                    connection.putheader(name, text)
            connection.endheaders()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused while it is sent
                connection.send(body)
            response = connection.getresponse()
            return Answer(response.status, response.read().decode(errors="replace"), response.headers)

    def join(self, handler: int, values: list[object], **headers: str | None) -> Answer:
        """Ask the queue to run a handler, as the page's own script does."""
        body = {"fn_index": handler, "data": values, "session_hash": "raw"}
        return self.ask("POST", "/gradio_api/queue/join", body, False, **headers)

    def result(self, **headers: str | None) -> dict[str, object]:
        """Return the output of the handler that was joined last."""
        events = self.ask("GET", "/gradio_api/queue/data?session_hash=raw", None, False, **headers).body
        for line in events.splitlines():
            event = json.loads(line.removeprefix("data: ") or "{}")
            if event.get("msg") == "process_completed":
                return {"success": event["success"], **event["output"]}
        raise AssertionError(events)

    def sign_in(self, user: str, password: str, **headers: str | None) -> Answer:
        return self.ask("POST", "/login", {"username": user, "password": password}, form=True, **headers)

    def cookie(self, user: str, password: str, **headers: str | None) -> str:
        answer = self.sign_in(user, password, **headers)
        assert answer.status == 200, answer
        return "; ".join(text.split(";")[0] for text in answer.headers.get_all("set-cookie", []))

    def password(self) -> tuple[str, str]:
        """Return the user and the password that the program printed."""
        [found] = [
            match for line in self.printed if (match := re.match(r"User: (\S+)  Password: (\S+)", line))
        ]
        return found[1], found[2]


def size_of(folder: Path) -> tuple[int, int]:
    """Return the number of files in a folder and their bytes, without the empty ones that Gradio leaves."""
    sizes = []
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # moved or removed meanwhile
            if path.is_file() and (num_bytes := path.stat().st_size):
                sizes.append(num_bytes)
    return len(sizes), sum(sizes)


# Below the ports that Linux gives to outgoing connections, one of which could take a free port at any time.
PORTS = range(20_000, 32_000)


def free_port() -> int:
    """Return a random port on which nothing listens."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


@contextlib.contextmanager
def serving(
    folder: Path, *flags: str, program: str | Path = PAGE, proxy_port: int = CLOSED_PORT
) -> Iterator[Server]:
    server = Server(folder / "workspace", *flags, program=program, proxy_port=proxy_port)
    try:
        yield server
    finally:
        server.kill()


def wait_until_listening(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until a server answers on its port."""
    wait_until(lambda: answers(port), process=process)


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), PATIENCE_S):
        return True
    return False
