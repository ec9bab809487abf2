"""Tests of tools/serve.py with OpenAI's own client, and of the parts of the server."""

import asyncio
import base64
import hashlib
import io
import json
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import numpy as np
import pytest
import soundfile
import torch
import uvicorn
from fastapi import FastAPI

from demo.make_base_checkpoint import random_model
from indextts.commands.sampling_options import Sampling
from indextts.commands.speech import Serve
from indextts.errors import UserError
from indextts.models.gpt.generate import Generation, Prompt
from indextts.projects.project import Project
from indextts.speech.serving import serve
from indextts.speech.serving.app import RateLimit, Service, build_app
from indextts.speech.serving.encoding import RATE_HZ
from indextts.speech.serving.engine import Engine, Part, Request
from indextts.speech.serving.serve import listen, read_keys
from indextts.speech.synthesis.acoustic import AcousticModel
from indextts.speech.synthesis.synthesize import load_tts
from tests.acoustic_files import write_files_of_2_5
from tests.speaking_run import clips_of
from tests.speech_server import KEY, REFUSALS, TEXT, Server, attack, speech_server
from tests.tiny_gpt import TINY, tiny_batch
from tests.waiting import PATIENCE_S, wait_until

LONG_TEXT = " ".join([TEXT] * 150)


@pytest.fixture(scope="module")
def flags(tuned: Project, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("served")
    voices = folder / "voices"
    voices.mkdir()
    for name, clip in (("first", clips_of(tuned)[0]), ("last", clips_of(tuned)[-1])):
        (voices / f"{name}{clip.audio.suffix}").write_bytes(clip.audio.read_bytes())
    (voices / "notes.txt").write_text("no voice")
    (folder / "keys").write_text(f"{KEY}\n")
    return {
        "checkpoint": tuned.run_dir,
        "voices": voices,
        "key-file": folder / "keys",
        "port": 0,
        "requests-per-minute": 0,
        "max-codes": 40,
        "device": "cpu",
    }


@pytest.fixture(scope="module")
def server(flags: dict[str, Any]) -> Iterator[Server]:
    with speech_server(flags) as running:
        yield running


def asked(server: Server, **fields: Any) -> httpx2.Response:
    wanted = {"model": "indextts2", "voice": "first", "input": TEXT, "response_format": "pcm", **fields}
    headers = {"Authorization": f"Bearer {KEY}"}
    return httpx2.post(f"{server.url}/v1/audio/speech", headers=headers, json=wanted, timeout=PATIENCE_S)


@pytest.mark.slow
def test_the_client_gets_speech_in_every_format(server: Server):
    with server.client() as client:
        assert [model.id for model in client.models.list().data] == ["indextts2"]
    samples = np.frombuffer(server.say(), "<i2")
    assert samples.any()
    for name in ("wav", "flac", "mp3", "opus"):
        decoded, rate_hz = soundfile.read(io.BytesIO(server.say(response_format=name)))
        assert rate_hz == RATE_HZ
        assert len(decoded) == pytest.approx(len(samples), abs=3000)  # encoders add a start and an end
    assert server.say(response_format="aac", instructions="slowly")
    decoded, _ = soundfile.read(io.BytesIO(server.say(response_format="wav", speed=2.0)))
    assert len(decoded) == pytest.approx(len(samples) / 2, rel=0.02)
    assert server.say(voice="last")
    listed = httpx2.get(f"{server.url}/v1/audio/voices", headers={"Authorization": f"Bearer {KEY}"})
    assert listed.json() == {"voices": ["first", "last"]}


def test_the_path_of_a_voice_is_not_shown(server: Server, flags: dict[str, Any]):
    broken = flags["voices"] / "broken.wav"
    broken.write_text("no sound")
    answer = asked(server, voice="broken")
    broken.unlink()
    assert answer.status_code == 400
    assert "broken.wav" in answer.text
    assert str(flags["voices"]) not in answer.text


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("grace", "status"), [(60, 200), (0, 503)])
def test_a_stop_waits_for_requests_in_work_and_answers_the_others(
    flags: dict[str, Any], grace: int, status: int
):
    with speech_server(flags | {"grace": grace}) as running, ThreadPoolExecutor(1) as pool:
        speaking = pool.submit(asked, running, input=" ".join([TEXT] * 30))
        wait_until(lambda: running.num_requests() == 1, process=running.process)
        running.process.terminate()
        assert speaking.result().status_code == status


@pytest.mark.slow
def test_eight_at_once_get_what_each_gets_alone(server: Server):
    texts = [TEXT, "ጥሩ ቀን ነው።", "ሰላም", f"{TEXT} ደህና ነኝ።"] * 2
    alone = [server.say(text) for text in texts[:4]] * 2
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(server.say, texts))
    for one, other in zip(alone, together, strict=True):
        difference = np.frombuffer(one, "<i2").astype(int) - np.frombuffer(other, "<i2").astype(int)
        assert abs(difference).max() <= 2


@pytest.mark.slow
def test_a_client_that_disappears_frees_its_place(server: Server):
    request = {"model": "indextts2", "voice": "first", "input": LONG_TEXT, "response_format": "pcm"}
    for is_stream in (True, False):
        program = (
            "import httpx2, json, os, sys\n"
            "url, key, body = sys.argv[1:]\n"
            "headers = {'Authorization': f'Bearer {key}'}\n"
            "with httpx2.stream('POST', url, headers=headers, json=json.loads(body), timeout=900) as got:\n"
            "    for _ in got.iter_bytes():\n"
            "        print('first', flush=True)\n"
        )
        argv = [f"{server.url}/v1/audio/speech", KEY, json.dumps({**request, "stream": is_stream})]
        client = subprocess.Popen([sys.executable, "-c", program, *argv], stdout=subprocess.PIPE, text=True)
        assert client.stdout is not None
        if is_stream:
            assert client.stdout.readline() == "first\n"
        else:
            wait_until(lambda: server.num_requests() == 1, process=client)
        client.kill()
        client.communicate()
        wait_until(lambda: server.num_requests() == 0, process=server.process)
    assert server.say()


@pytest.mark.long
@pytest.mark.slow
def test_hostile_requests_are_refused_and_memory_stays_flat(server: Server):
    statuses = attack(server, range(100))
    before = server.memory_mib()
    statuses |= attack(server, range(100, 500))
    assert statuses <= REFUSALS
    assert server.memory_mib() - before < 50
    headers = {"Authorization": f"Bearer {KEY}"}
    for path in ("/", "/docs", "/openapi.json", "/v1/audio/speech/../../etc/passwd", "/v1/models/x"):
        assert httpx2.get(f"{server.url}{path}", headers=headers, timeout=PATIENCE_S).status_code in (
            404,
            405,
        )
    assert httpx2.get(f"{server.url}/v1/models", timeout=PATIENCE_S).status_code == 401
    assert server.num_requests() == 0
    assert server.say()


# ---- parts


def call(app: FastAPI, content: dict[str, Any], **headers: str) -> httpx2.Response:
    """Return the answer of the app in this process."""
    return asyncio.run(answer_of(app, content, **headers))


async def answer_of(app: FastAPI, content: dict[str, Any], **headers: str) -> httpx2.Response:
    encoded = {name: value.encode() for name, value in headers.items()}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://server") as client:
        return await client.post("/v1/audio/speech", json=content, headers=encoded)


def idle_engine(max_batch: int = 4) -> Engine:
    """Return an engine whose thread does not run."""
    tts: Any = SimpleNamespace(
        split=lambda text: text.split(),
        renderer=SimpleNamespace(sample_rate_hz=24_000),
        trained=SimpleNamespace(
            tokenizer=SimpleNamespace(unknown_words=lambda part: [part] * (part == "?x"))
        ),
    )
    return Engine(tts, Sampling(), max_batch)


def request_of(parts: Sequence[str], received: list[Any] | None = None) -> Request:
    return Request(tuple(parts), Path("v.wav"), (received if received is not None else []).append)


def service_of(tmp_path: Path, **changes: Any) -> Service:
    (tmp_path / "v.wav").touch()
    given = {"checkpoint": tmp_path, "voices": [tmp_path], "model_name": "m", "max_waiting": 2, **changes}
    parts = {"rate": RateLimit(0), "num_open": 0, "key_digests": ()}
    parts = {name: given.pop(name, default) for name, default in parts.items()}
    return Service(idle_engine(), Serve(**given), **parts)


async def speak_all(engine: Engine) -> None:
    """Deliver a short sound to every request of an engine whose thread does not run."""
    while True:
        await asyncio.sleep(0.02)
        for request in list(engine._requests):
            request.deliver(np.zeros(2400, np.float32))
            engine._finish(request, None)


async def spoken(service: Service, content: dict[str, Any]) -> httpx2.Response:
    worker = asyncio.create_task(speak_all(service.engine))
    answer = await answer_of(build_app(service), {"response_format": "pcm", **content})
    worker.cancel()
    return answer


def test_names_of_another_service_are_answered_only_where_that_is_allowed(tmp_path: Path):
    wanted = {"model": "tts-1", "voice": "alloy", "input": "a"}
    for allowed, status in (({}, 404), ({"default_model": True}, 400)):
        assert call(build_app(service_of(tmp_path, **allowed)), wanted).status_code == status
    service = service_of(tmp_path, default_model=True, default_voice="v")
    assert asyncio.run(spoken(service, wanted)).status_code == 200


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_a_stream_is_audio_or_events_with_audio(tmp_path: Path, stream_format: str):
    wanted = {"model": "m", "voice": {"id": "v"}, "input": "a b", "stream_format": stream_format}
    answer = asyncio.run(spoken(service_of(tmp_path), wanted))
    assert (answer.status_code, answer.headers["x-accel-buffering"]) == (200, "no")
    if stream_format == "audio":
        assert answer.headers["content-type"] == "audio/pcm"
        content = answer.content
    else:
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        assert [event["type"] for event in events] == ["speech.audio.delta", "speech.audio.done"]
        content = base64.b64decode(events[0]["audio"])
    assert content == bytes(4800)


def test_unknown_words_are_refused_or_named(tmp_path: Path):
    wanted = {"model": "m", "voice": "v", "input": "a ?x ?x"}
    answer = call(build_app(service_of(tmp_path)), wanted)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unknown_words")
    assert "does not know ?x;" in answer.json()["error"]["message"]
    answer = asyncio.run(spoken(service_of(tmp_path, allow_unknown=True), wanted))
    assert (answer.status_code, answer.headers["x-unknown-words"]) == (200, "%3Fx")


def test_a_full_queue_and_a_fast_client_are_told_when_to_return(tmp_path: Path):
    wanted = {"model": "m", "voice": "v", "input": "a b"}
    answer = call(build_app(service_of(tmp_path, num_open=2)), wanted)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "queue_full")
    assert int(answer.headers["retry-after"]) > 0
    app = build_app(service_of(tmp_path, rate=RateLimit(1)))
    assert call(app, {**wanted, "model": "other"}).status_code == 404
    answer = call(app, wanted)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert 0 < int(answer.headers["retry-after"]) <= 61


def test_a_burst_does_not_pass_the_limit(tmp_path: Path):
    service = service_of(tmp_path, max_waiting=4)
    engine, most = service.engine, 0

    async def work() -> None:
        nonlocal most
        while True:
            await asyncio.sleep(0)
            most = max(most, service.num_open)
            if engine._requests:
                await asyncio.sleep(0.02)
                request = engine._requests[0]
                request.deliver(np.zeros(2400, np.float32))
                engine._finish(request, None)

    async def burst() -> list[httpx2.Response]:
        app, worker = build_app(service), asyncio.create_task(work())
        wanted = {"model": "m", "voice": "v", "input": "a b", "response_format": "pcm"}
        answers = await asyncio.gather(*(answer_of(app, wanted) for _ in range(40)))
        worker.cancel()
        return answers

    statuses = [answer.status_code for answer in asyncio.run(burst())]
    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= 4
    assert most == 4
    assert service.num_open == 0


def test_a_client_that_takes_nothing_keeps_its_place_until_its_connection_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(serve, "SEND_TIMEOUT_S", 1)
    service = service_of(tmp_path)
    sound = np.zeros(60 * RATE_HZ, np.float32)

    def submit(request: Request) -> None:
        for piece in (sound, sound, None):
            request.deliver(piece)

    monkeypatch.setattr(service.engine, "submit", submit)
    listener = listen("127.0.0.1", 0)
    running = uvicorn.Server(uvicorn.Config(build_app(service), log_level="critical", ws="none"))
    thread = threading.Thread(target=running.run, args=([listener],))
    thread.start()
    try:
        for is_stream in (True, False):
            wanted = {"model": "m", "voice": "v", "input": "a", "response_format": "pcm", "stream": is_stream}
            body = json.dumps(wanted).encode()
            head = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
            wait_until(lambda: running.started)
            with socket.create_connection(listener.getsockname()) as client:
                client.sendall(b"POST /v1/audio/speech HTTP/1.1\r\n" + head.encode() + b"\r\n\r\n" + body)
                wait_until(lambda: service.num_open == 1)
                wait_until(lambda: service.num_open == 0)
    finally:
        running.should_exit = True
        thread.join()


def test_a_key_may_have_any_characters(tmp_path: Path):
    key = "ቁልፍ with an accent à"
    service = service_of(tmp_path, key_digests=(hashlib.sha256(key.encode()).digest(),))
    wanted = {"model": "other", "voice": "v", "input": "a b"}
    assert call(build_app(service), wanted, authorization=f"Bearer {key}").status_code == 404
    assert call(build_app(service), wanted, authorization=f"Bearer {key}x").status_code == 401


def test_the_model_computes_in_the_precision_of_the_command(tmp_path: Path):
    folder = write_files_of_2_5(tmp_path / "published")
    command = Serve(checkpoint=folder, models=folder, voices=[tmp_path], precision="bfloat16")
    tts = load_tts(command, folder, torch.device("cpu"))
    assert tts.trained.gpt.mel_head.weight.dtype == torch.bfloat16
    assert isinstance(tts.renderer, AcousticModel)
    assert tts.renderer.settings.dtype == torch.bfloat16
    with pytest.raises(UserError, match="--precision"):
        load_tts(command.model_copy(update={"precision": "float16"}), folder, torch.device("cpu"))


def test_the_rate_limit_refills_over_a_minute_and_forgets_old_clients():
    now = [0.0]
    rate = RateLimit(2, clock=lambda: now[0])
    assert [rate.take("a"), rate.take("a"), rate.take("b")] == [0, 0, 0]
    wait_s = rate.take("a")
    assert 30 <= wait_s <= 31
    now[0] = wait_s
    assert rate.take("a") == 0
    for number in range(10_100):
        rate.take(str(number))
    assert len(rate._left) == 10_000


def test_places_are_shared_and_the_last_ones_are_for_requests_that_have_none():
    engine = idle_engine(max_batch=8)
    long, short, other = request_of("abcdefghijkl"), request_of("x"), request_of("yz")
    engine.submit(long)
    assert engine._take(Counter()) == [long] * 6
    del long.waiting[:6]
    for request in (short, other):
        engine.submit(request)
    held = Counter({id(long): 6})
    assert engine._take(held) == [short, other]
    del short.waiting[0], other.waiting[0]
    assert engine._take(held) == []
    held -= Counter({id(long): 1, id(short): 1})
    assert engine._take(held) == []  # two places are free, for requests that have none
    held -= Counter({id(long): 1})
    assert engine._take(held) == [other]
    stream = request_of("abc")
    stream.is_stream = True
    engine._requests = [stream]
    assert engine._take(Counter()) == [stream]
    del stream.waiting[0]
    assert engine._take(Counter({id(stream): 1})) == []
    stream.num_jobs = 1
    assert engine._take(Counter({id(stream): 1})) == [stream, stream]


def test_a_long_request_gives_up_places_while_a_short_one_speaks_and_begins_those_segments_again():
    engine, batch, none = idle_engine(max_batch=8), tiny_batch(), cast(Any, None)
    long, short = request_of("abcdefghijkl"), request_of("x")
    prompt = Prompt(batch.condition[0], batch.emo_vec[0], batch.text_ids[0])
    generation = Generation[Part](random_model(TINY, seed=3).eval(), engine.sampling)
    generation.join([(Part(long, number, number, none, prompt, none), prompt) for number in range(2, 6)])
    long.waiting = [6, 7]
    engine.submit(long)
    engine._make_room(generation)
    assert len(generation.keys) == 4
    engine.submit(short)
    engine._make_room(generation)
    assert [part.number for part in generation.keys] == [2]
    assert long.waiting == [3, 4, 5, 6, 7]
    held = Counter({id(long): 1})
    assert engine._take(held) == [short]
    engine._finish(short, None)
    assert engine._take(held - Counter({id(short): 1})) == [long] * 5


def test_an_error_reaches_its_request_only_once():
    engine, received = idle_engine(), list[Any]()
    request = request_of("a", received)
    engine.submit(request)
    engine._finish(request, UserError("no"))
    engine._finish(request, None)
    assert [str(each) for each in received] == ["no"]
    assert not engine._requests


def test_other_machines_need_a_key(tmp_path: Path):
    def command(**fields: Any) -> Serve:
        return Serve(checkpoint=tmp_path, voices=[tmp_path], **fields)

    assert read_keys(command()) == read_keys(command(host="::1")) == ()
    with pytest.raises(UserError, match="--key-file"):
        read_keys(command(host="0.0.0.0"))
    keys = tmp_path / "keys"
    for content in ("", "short\n", f"{KEY}\nshort"):
        keys.write_text(content)
        with pytest.raises(UserError, match=str(keys)):
            read_keys(command(host="0.0.0.0", key_file=keys))
    keys.write_text(f"{KEY}\n\n{KEY}2\n")
    assert len(read_keys(command(host="0.0.0.0", key_file=keys))) == 2
    digest = hashlib.sha256(KEY.encode())
    keys.write_text(f"sha256:{digest.hexdigest()}\n")
    assert read_keys(command(key_file=keys)) == (digest.digest(),)
    with pytest.raises(UserError, match="--port"):
        listen("192.0.2.1", 0)  # of no machine
