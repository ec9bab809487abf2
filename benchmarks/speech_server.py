"""Latency and throughput of tools/serve.py with OpenAI's own client, and its memory under hostile requests.

    python -m benchmarks.speech_server

The server is a separate process with a model of the demo's size and built-in codes. The weights of its GPT
are random and it cannot stop, so every segment has the same number of codes. The clients share this machine
with it.
"""

import logging
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import torch
from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, publish, table, timed
from benchmarks.start_time import cpu_s
from benchmarks.workload import build_model
from indextts.commands.bases import BASE_2_5
from indextts.commands.terminal import parse, run
from indextts.features.builtin import BuiltinBackend
from indextts.models.gpt.config import load_config
from tests.speech_server import KEY, REFUSALS, Server, attack, speech_server

DEMO = REPOSITORY / "demo"
WARM_UP = 100  # hostile requests before memory is measured
SECONDS_OF_CODES = 0.04
LONG_WORDS = 600
SHORT_REQUESTS = 7


class SpeechServer(Benchmark):
    """Measure the speech server."""

    program: ClassVar[str] = "benchmarks.speech_server"
    codes: int = Field(50, ge=10, description="Codes of every request, 40 ms each.")
    requests: int = Field(32, ge=8, description="Requests of one client, and of eight together.")
    hostile: int = Field(500, ge=WARM_UP, description="Hostile requests.")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(SpeechServer, argv)
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs every request
    with tempfile.TemporaryDirectory(prefix="speech_server_") as temporary:
        folder = Path(temporary)
        flags = {
            "checkpoint": write_model(folder / "model"),
            "voices": write_voices(folder / "voices"),
            "key-file": folder / "keys",
            "port": 0,
            "requests-per-minute": 0,
            "max-codes": command.codes,
            "device": "cpu",
        }
        (folder / "keys").write_text(f"{KEY}\n")
        with speech_server(flags) as server:
            server.say(text_of(0))  # the voice is heard once
            rows = [clients(server, number, command) for number in (1, 8)]
            lines = [*long_text(server), "", *hostile(server, command.hostile)]
    header = ["clients", "requests", "latency, median (s)", "longest (s)", "requests per second"]
    header += ["CPU of the server per request (s)"]
    about = f"Each request is a sentence of {command.codes} codes, {SECONDS_OF_CODES * command.codes:g} s."
    publish(command, "The speech server", [about, "", *table(header, rows), "", *lines])
    return 0


def clients(server: Server, number: int, command: SpeechServer) -> list[str]:
    """Return the row of so many clients, each of which sends its next request when it has an answer."""

    def wait(text: str) -> float:
        asked = time.perf_counter()
        assert len(server.say(text)) == 2 * 960 * command.codes
        return time.perf_counter() - asked

    used, started = cpu_s(server.process.pid), time.perf_counter()
    with ThreadPoolExecutor(number) as pool:
        waited = list(pool.map(wait, map(text_of, range(command.requests))))
    took, used = time.perf_counter() - started, cpu_s(server.process.pid) - used
    return [
        str(number),
        str(command.requests),
        f"{statistics.median(waited):.2f}",
        f"{max(waited):.2f}",
        f"{command.requests / took:.2f}",
        f"{used / command.requests:.3f}",
    ]


def long_text(server: Server) -> list[str]:
    """Return what a long text costs, whole and streamed, and how long a sentence waits beside it."""
    words = (DEMO / "english.txt").read_text(encoding="utf-8").split()
    long = " ".join((words * LONG_WORDS)[:LONG_WORDS])
    alone = [timed(lambda: server.say(text_of(0)))[1].wall_s for _ in range(SHORT_REQUESTS)]
    beside: list[float] = []
    used = {}
    for name, fields in (("whole", {}), ("streamed", {"extra_body": {"stream": True}})):
        before = cpu_s(server.process.pid)
        sound = server.say(long, **fields)
        used[name] = cpu_s(server.process.pid) - before
    with ThreadPoolExecutor(1) as pool:
        speaking = pool.submit(server.say, long)
        time.sleep(statistics.median(alone))  # it has its places
        while not speaking.done():
            beside.append(timed(lambda: server.say(text_of(0)))[1].wall_s)
    beside = beside[:-1] or beside  # the last one may have been alone
    alone_s, beside_s = statistics.median(alone), statistics.median(beside)
    duration_s = len(sound) / 48_000
    return [
        f"A text of {LONG_WORDS} words, {duration_s:.0f} s of sound, took {used['whole']:.2f} s of the "
        f"server's processor time as a whole and {used['streamed']:.2f} s streamed, "
        f"{used['streamed'] / used['whole']:.2f} times.",
        f"A sentence took {alone_s:.2f} s alone and {beside_s:.2f} s beside such a text, "
        f"{beside_s / alone_s:.2f} times (medians of {len(alone)} and {len(beside)}).",
    ]


def hostile(server: Server, number: int) -> list[str]:
    """Return what hostile requests did, as lines."""
    statuses = attack(server, range(WARM_UP))
    before = server.memory_mib()
    statuses |= attack(server, range(WARM_UP, number))
    shown = ", ".join(map(str, sorted(statuses)))
    through = "none got through" if statuses <= REFUSALS else "SOME GOT THROUGH"
    return [
        f"{number} hostile requests: the statuses are {shown}, {through}; after the first {WARM_UP}, memory "
        f"changed by {server.memory_mib() - before:+.1f} MiB from {before:.0f} MiB."
    ]


def text_of(number: int) -> str:
    words = (DEMO / "english.txt").read_text(encoding="utf-8").split()
    return " ".join(words[7 * number : 7 * number + 8])


def write_model(folder: Path) -> Path:
    """Write a model folder of the demo's size and return it."""
    folder.mkdir()
    for name in ("config.yaml", BASE_2_5.tokenizer_file):
        shutil.copy(DEMO / "checkpoints" / name, folder)
    config = replace(load_config(folder / "config.yaml"), base=BASE_2_5.name)
    gpt = build_model(config, torch.device("cpu"))
    gpt.mel_head.bias.data[[config.start_mel_token, config.stop_mel_token]] = -1e4  # it never stops
    torch.save(gpt.state_dict(), folder / "gpt.pth")
    backend = BuiltinBackend(config.number_mel_codes - 2, config.of_base.features_per_code)
    backend.save(folder / "builtin.npz")
    return folder


def write_voices(folder: Path) -> Path:
    folder.mkdir()
    clip = min((DEMO / "audio").glob("*.opus"))
    shutil.copy(clip, folder / "first.opus")
    return folder


if __name__ == "__main__":
    run(main)
