"""tools/serve.py in a separate process, with OpenAI's client and with hostile requests."""

import json
import random
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conftest import REPOSITORY
from tests.waiting import PATIENCE_S

KEY = "a key of enough characters"
TEXT = "ሰላም ለዓለም። እንዴት ነህ?"
REFUSALS = {400, 401, 404, 413, 415}
MIB = 1 << 20

VALID = {"model": "indextts2", "voice": "first", "input": TEXT}
WRONG: list[dict[str, Any]] = [
    {"input": ""},
    {"input": "ሀ" * 4097},
    {"input": "።!?"},
    {"input": ["a"]},
    {"input": "\ud800"},
    {"voice": "../keys"},
    {"voice": "notes"},
    {"voice": {"id": "/etc/passwd"}},
    {"voice": None},
    {"model": "x" * 1000},
    {"model": 7},
    {"response_format": "ogg"},
    {"speed": 0},
    {"speed": "NaN"},
    {"speed": 1e300},
    {"stream": "perhaps"},
]
BODIES = [b"", b"[]", b"null", b"{", b"[" * 100_000, b'{"input": ' * 9999, bytes(MIB), b"\xff\xfe"]


class Server:
    """The running program, with a client."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.url = process, f"http://127.0.0.1:{port}"

    def client(self) -> Any:
        openai = pytest.importorskip("openai", reason="needs the extra dev")
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=KEY, max_retries=0, timeout=PATIENCE_S)

    def say(self, text: str = TEXT, **fields: Any) -> bytes:
        given = {"model": "indextts2", "voice": "first", "response_format": "pcm", **fields}
        with self.client() as client:
            content: bytes = client.audio.speech.create(input=text, **given).content
        return content

    def num_requests(self) -> int:
        return int(httpx2.get(f"{self.url}/health", timeout=PATIENCE_S).json()["requests"])

    def memory_mib(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * 4096 / MIB


@contextmanager
def speech_server(flags: Mapping[str, Any]) -> Iterator[Server]:
    """Yield the running program, which must end without an internal error."""
    process = subprocess.Popen(
        [sys.executable, "tools/serve.py", *(f"--{name}={value}" for name, value in flags.items())],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    printed: list[str] = []
    while not (line := process.stdout.readline()) or "/v1" not in line:
        assert line, "".join(printed)  # the program has ended
        printed.append(line)
    try:
        yield Server(process, int(line.rsplit(":", 1)[1].split("/")[0]))
    finally:
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=PATIENCE_S)
    assert "internal error" not in rest, rest
    assert process.returncode in (0, -signal.SIGTERM)


def attack(server: Server, numbers: Iterable[int]) -> set[int]:
    """Send a hostile request for each number, four at once, and return the statuses of the answers."""
    chance = random.Random(0)
    url, headers = f"{server.url}/v1/audio/speech", {"Authorization": f"Bearer {KEY}"}
    typed = {**headers, "Content-Type": "application/json"}

    def send(number: int) -> int:
        kind = number % 5
        if kind == 0:
            answer = client.post(url, headers={"Authorization": f"Bearer {chance.random()}"}, json=VALID)
        elif kind == 1:
            answer = client.post(url, headers=typed, content=BODIES[number // 5 % len(BODIES)])
        elif kind == 2:
            form = {**headers, "Content-Type": "text/plain"}
            answer = client.post(url, headers=form, content=json.dumps(VALID))
        else:
            changed = json.dumps({**VALID, **WRONG[number % len(WRONG)]})
            answer = client.post(url, headers=typed, content=changed)
        assert answer.json()["error"]["message"]
        assert KEY not in answer.text
        return answer.status_code

    with httpx2.Client(timeout=PATIENCE_S) as client, ThreadPoolExecutor(4) as pool:
        return set(pool.map(send, numbers))
