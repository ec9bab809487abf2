"""HTTP of the speech server, as OpenAI's API has it.

    POST /v1/audio/speech   model, input, voice, response_format, speed, stream -> audio
    GET  /v1/models         the model
    GET  /v1/audio/voices   {"voices": [names]}
    GET  /health            {"status": "ok", "requests": open ones}, without a key

Errors are {"error": {"message", "type", "param", "code"}}: 400 a field is wrong, 401 no valid key, 404
another model or path, 413 the body is too large, 415 it is no JSON, 429 too many requests, 500 an internal
error.

A request is open, and counts for the limit of waiting requests, until the client has taken the last byte. So
the server never keeps more sound than that of `max_waiting` texts. The system closes the connection of a
client that takes nothing (`serve.listen`).
"""

import asyncio
import hashlib
import hmac
import json
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from indextts.data.importing.items import AUDIO_SUFFIXES
from indextts.errors import UserError
from indextts.speech.serving import engine as speaking
from indextts.speech.serving.encoding import MEDIA_TYPES, Encoder, Format, at_rate
from indextts.speech.serving.engine import Engine

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 256 * 1024
BODY_TIMEOUT_S = 10.0
MAX_KNOWN_CLIENTS = 10_000
MINUTE_S = 60.0
BLOCK_BYTES = 64 * 1024  # of a complete sound; the next block waits until the client has taken this one
CLIENT_GONE = 499  # as in nginx; nobody reads it


class SpeechRequest(BaseModel):
    """Body of POST /v1/audio/speech; fields that this server does not know are ignored."""

    model: str
    input: str = Field(min_length=1)
    voice: str
    response_format: Format = "mp3"
    speed: float = Field(1.0, ge=0.25, le=4, allow_inf_nan=False)
    stream: bool = False


class RefusedError(Exception):
    """A request that is answered with an error.

    Args:
        retry_s: seconds after which it may succeed; 0 for never.
    """

    def __init__(
        self, status: int, message: str, *, param: str = "", code: str = "", retry_s: int = 0
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.retry_s = status, param, code, retry_s


@dataclass
class RateLimit:
    """Times of the last requests of each client, as a bucket that refills over a minute."""

    per_minute: int
    clock: Callable[[], float] = time.monotonic
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, client: str) -> int:
        """Count a request; return 0, or the seconds after which it would be allowed."""
        if not self.per_minute:
            return 0
        now = self.clock()
        left, then = self._left.pop(client, (float(self.per_minute), now))
        left = min(self.per_minute, left + (now - then) * self.per_minute / MINUTE_S)
        is_allowed = left >= 1
        self._left[client] = (left - is_allowed, now)
        if len(self._left) > MAX_KNOWN_CLIENTS:
            self._left.popitem(last=False)
        return 0 if is_allowed else int((1 - left) * MINUTE_S / self.per_minute) + 1


@dataclass(frozen=True)
class Service:
    """Engine and limits of the routes.

    Args:
        voices: recordings, and folders of recordings.
        key_digests: SHA-256 of each key; empty if none is required.
        places: the open requests.
    """

    engine: Engine
    model_name: str
    voices: tuple[Path, ...]
    key_digests: tuple[bytes, ...]
    max_characters: int
    max_waiting: int
    rate: RateLimit
    places: set[object] = field(default_factory=set)

    def voice_names(self) -> dict[str, Path]:
        """Return the recording of each voice; of two with the same name, the first."""
        found: dict[str, Path] = {}
        for place in self.voices:
            for path in sorted(place.iterdir()) if place.is_dir() else [place]:
                if path.suffix.lower() in AUDIO_SUFFIXES and path.is_file():
                    found.setdefault(path.stem, path)
        return found

    def take_place(self) -> object:
        """Count a request as open and return its place.

        Raises:
            RefusedError: too many are open.
        """
        if len(self.places) >= self.max_waiting:
            raise RefusedError(429, "too many requests are waiting", code="queue_full", retry_s=5)
        place = object()
        self.places.add(place)
        return place


class SoundResponse(StreamingResponse):
    """A sound that is sent as the client takes it; its request is open until then."""

    def __init__(
        self, service: Service, place: object, blocks: AsyncIterator[bytes], *, media_type: str, size: int = 0
    ) -> None:
        """Prepare the response.

        Args:
            size: in bytes; 0 if unknown.
        """
        headers = {"Content-Length": str(size)} if size else {}
        super().__init__(blocks, media_type=media_type, headers=headers)
        self._service, self._place = service, place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._service.places.discard(self._place)


def build_app(service: Service) -> FastAPI:
    app = FastAPI(openapi_url=None)

    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> Response:
        return _error(error)

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> Response:
        return _error(RefusedError(error.status_code, str(error.detail)))

    @app.exception_handler(Exception)
    async def internal(_: Request, __: Exception) -> Response:
        return _error(RefusedError(500, "internal error; the log of the server has the details"))

    @app.get("/health")
    async def health() -> dict[str, str | int]:
        return {"status": "ok", "requests": len(service.places)}

    @app.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        _check_key(service, request)
        model = {"id": service.model_name, "object": "model", "created": 0, "owned_by": "indextts2"}
        return {"object": "list", "data": [model]}

    @app.get("/v1/audio/voices")
    async def voices(request: Request) -> dict[str, list[str]]:
        _check_key(service, request)
        return {"voices": list(service.voice_names())}

    @app.post("/v1/audio/speech")
    async def speech(request: Request) -> Response:
        client = _check_key(service, request)
        retry_s = service.rate.take(client)
        if retry_s:
            raise RefusedError(
                429, "too many requests per minute", code="rate_limit_exceeded", retry_s=retry_s
            )
        wanted = await _read(request)
        return await _speak(service, request, wanted)

    return app


def _check_key(service: Service, request: Request) -> str:
    """Return the name of the client for the rate limit; refuse a request without a valid key."""
    address = request.client.host if request.client else ""
    if not service.key_digests:
        return address
    # Starlette decodes headers as latin-1; the client sent the bytes of the key, in UTF-8
    given = request.headers.get("authorization", "").encode("latin-1").removeprefix(b"Bearer ")
    digest = hashlib.sha256(given.strip()).digest()
    if not any([hmac.compare_digest(digest, known) for known in service.key_digests]):
        raise RefusedError(401, "no valid key: send it as Authorization: Bearer KEY", code="invalid_api_key")
    return digest.hex()


async def _read(request: Request) -> SpeechRequest:
    # a browser sends JSON to another site only if that site allows it
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RefusedError(415, "the body must be JSON, with Content-Type: application/json")
    body = b""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for block in request.stream():
                body += block
                if len(body) > MAX_BODY_BYTES:
                    raise RefusedError(413, f"the body is larger than {MAX_BODY_BYTES:,} bytes")
    except TimeoutError:
        raise RefusedError(408, f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s") from None
    except ClientDisconnect:
        raise RefusedError(CLIENT_GONE, "the client is gone") from None
    try:
        content = json.loads(body)
        if isinstance(content, dict) and isinstance(content.get("voice"), dict):
            content["voice"] = content["voice"].get("id")  # the API's other form of a voice
        return SpeechRequest.model_validate(content)
    except (ValueError, RecursionError) as error:
        if not isinstance(error, ValidationError):
            raise RefusedError(400, "the body is not valid JSON") from None
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise RefusedError(400, f"{name or 'the body'}: {first['msg']}", param=name) from None


async def _speak(service: Service, request: Request, wanted: SpeechRequest) -> Response:
    if wanted.model != service.model_name:
        raise RefusedError(
            404,
            f"no model {wanted.model[:80]!r} here; the model is {service.model_name!r}",
            param="model",
            code="model_not_found",
        )
    known = await asyncio.to_thread(service.voice_names)
    if wanted.voice not in known:
        names = ", ".join(list(known)[:20]) or "none: add recordings to the folder of --voices"
        raise RefusedError(400, f"no voice {wanted.voice[:80]!r}; the voices are {names}", param="voice")
    if len(wanted.input) > service.max_characters:
        raise RefusedError(
            400,
            f"input has {len(wanted.input):,} characters, the limit is {service.max_characters:,}",
            param="input",
        )
    place = service.take_place()
    try:
        return await _answer(service, request, wanted, known[wanted.voice], place)
    except BaseException:
        service.places.discard(place)
        raise


async def _answer(
    service: Service, request: Request, wanted: SpeechRequest, recording: Path, place: object
) -> Response:
    try:
        parts = await asyncio.to_thread(service.engine.tts.split, wanted.input)
    except UserError as error:
        raise RefusedError(400, str(error), param="input") from None
    chunks = _chunks(service, wanted, parts, recording)
    media_type = MEDIA_TYPES[wanted.response_format]
    if wanted.stream:
        first = await _or_gone(request, _next(chunks))
        return SoundResponse(service, place, _joined(first, chunks), media_type=media_type)
    content = await _or_gone(request, _whole(chunks))
    return SoundResponse(service, place, _blocks(content), media_type=media_type, size=len(content))


async def _joined(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for block in others:
        yield block


async def _blocks(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), BLOCK_BYTES):
        yield content[start : start + BLOCK_BYTES]


async def _next(chunks: AsyncIterator[bytes]) -> bytes:
    return await anext(chunks)


async def _whole(chunks: AsyncIterator[bytes]) -> bytes:
    return b"".join([block async for block in chunks])


async def _or_gone(request: Request, work: Coroutine[Any, Any, bytes]) -> bytes:
    """Return the result of `work`, which ends when the client disconnects."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise RefusedError(CLIENT_GONE, "the client is gone")
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _chunks(
    service: Service, wanted: SpeechRequest, parts: list[str], recording: Path
) -> AsyncIterator[bytes]:
    """Yield the encoded sound piece by piece; the end of the iteration cancels the rest.

    Raises:
        RefusedError: the voice cannot be used, the model generated nothing, or the engine failed.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[NDArray[np.float32] | Exception | None] = asyncio.Queue()

    def deliver(piece: NDArray[np.float32] | Exception | None) -> None:
        loop.call_soon_threadsafe(pieces.put_nowait, piece)

    spoken = speaking.Request(tuple(parts), recording, deliver, is_stream=wanted.stream)
    encoder, has_sound = Encoder(wanted.response_format, is_stream=wanted.stream), False
    rate_hz = service.engine.tts.renderer.sample_rate_hz
    service.engine.submit(spoken)
    try:
        while (piece := await pieces.get()) is not None:
            if isinstance(piece, UserError):
                raise RefusedError(400, str(piece), param="voice")
            if isinstance(piece, Exception):
                raise RefusedError(500, "internal error; the log of the server has the details")
            sound = await asyncio.to_thread(at_rate, piece, rate_hz, wanted.speed)
            block = await asyncio.to_thread(encoder.add, sound)
            has_sound = True
            if block:
                yield block
        if not has_sound:
            raise RefusedError(500, "the model generated no speech for this text; try another text or voice")
        yield await asyncio.to_thread(encoder.end)
    finally:
        service.engine.cancel(spoken)


def _error(error: RefusedError) -> Response:
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    content = {
        "message": str(error),
        "type": kind,
        "param": error.param or None,
        "code": error.code or None,
    }
    headers = {"Retry-After": str(error.retry_s)} if error.retry_s else {}
    return JSONResponse({"error": content}, error.status, headers)
