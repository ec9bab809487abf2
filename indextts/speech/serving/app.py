"""HTTP of the speech server, as OpenAI's API has it.

    POST /v1/audio/speech   model, input, voice, response_format, speed, stream, stream_format -> audio
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
from base64 import b64encode
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import numpy as np
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.requests import ClientDisconnect

from indextts.commands.speech import Serve
from indextts.errors import UserError
from indextts.speech.serving import engine as speaking
from indextts.speech.serving.encoding import MEDIA_TYPES, Encoder, Format, at_rate
from indextts.speech.serving.engine import Engine
from indextts.speech.synthesis.script import voices_in

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 256 * 1024
BODY_TIMEOUT_S = 10.0
MAX_KNOWN_CLIENTS = 10_000
MINUTE_S = 60.0
POLL_S = 0.2  # between two looks whether a waiting client is still there
BLOCK_BYTES = 64 * 1024  # of a complete sound; the next block waits until the client has taken this one
CLIENT_GONE = 499  # as in nginx; nobody reads it
INTERNAL = "internal error; the log of the server has the details"


class SpeechRequest(BaseModel):
    """Body of POST /v1/audio/speech; fields that this server does not know are ignored."""

    model: str
    input: str = Field(min_length=1)
    # the API's other form of a voice is {"id": "..."}
    voice: Annotated[
        str, BeforeValidator(lambda given: given.get("id") if isinstance(given, dict) else given)
    ]
    response_format: Format = "mp3"
    speed: float = Field(1.0, ge=0.25, le=4, allow_inf_nan=False)
    stream: bool = False
    stream_format: Literal["audio", "sse"] | None = None  # either streams

    @property
    def is_stream(self) -> bool:
        return self.stream or self.stream_format is not None


def refusal(status: int, message: str, *, param: str = "", code: str = "", retry_s: int = 0) -> HTTPException:
    """Return the error of a refused request; `retry_s` are seconds after which it may succeed."""
    detail = {"message": message, "param": param or None, "code": code or None}
    return HTTPException(status, detail, {"Retry-After": str(retry_s)} if retry_s else None)


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


@dataclass
class Service:
    """Engine and limits of the routes."""

    engine: Engine
    command: Serve
    key_digests: tuple[bytes, ...]  # SHA-256 of each key; empty if none is required
    rate: RateLimit
    num_open: int = 0


def build_app(service: Service) -> FastAPI:
    app = FastAPI(openapi_url=None)
    app.state.service = service
    app.exception_handler(AnyHTTPException)(_error)
    app.exception_handler(Exception)(_error)

    @app.get("/health")
    async def health() -> dict[str, str | int]:
        return {"status": "ok", "requests": service.num_open}

    @app.get("/v1/models", dependencies=[Depends(_client)])
    async def models() -> dict[str, Any]:
        model = {"id": service.command.model_name, "object": "model", "created": 0, "owned_by": "indextts2"}
        return {"object": "list", "data": [model]}

    @app.get("/v1/audio/voices", dependencies=[Depends(_client)])
    async def voices() -> dict[str, list[str]]:
        return {"voices": list(voices_in(service.command.voices))}

    @app.post("/v1/audio/speech", dependencies=[Depends(_within_rate), Depends(_place)])
    async def speech(request: Request) -> Response:
        return await _speak(service, request, await _read(request))

    return app


async def _error(_: Request, error: Exception) -> Response:
    known = error if isinstance(error, AnyHTTPException) else refusal(500, INTERNAL)
    detail: Any = known.detail
    kind = "server_error" if known.status_code >= 500 else "invalid_request_error"
    content = {"message": "", "type": kind, "param": None, "code": None}
    content |= detail if isinstance(detail, dict) else {"message": str(detail)}
    return JSONResponse({"error": content}, known.status_code, known.headers)


def _client(request: Request) -> str:
    """Return the name of the client for the rate limit; refuse a request without a valid key."""
    address = request.client.host if request.client else ""
    digests = request.app.state.service.key_digests
    if not digests:
        return address
    # Starlette decodes headers as latin-1; the client sent the bytes of the key, in UTF-8
    given = request.headers.get("authorization", "").encode("latin-1").removeprefix(b"Bearer ")
    digest = hashlib.sha256(given.strip()).digest()
    if not any([hmac.compare_digest(digest, known) for known in digests]):
        raise refusal(401, "no valid key: send it as Authorization: Bearer KEY", code="invalid_api_key")
    return digest.hex()


def _within_rate(request: Request, client: Annotated[str, Depends(_client)]) -> None:
    retry_s = request.app.state.service.rate.take(client)
    if retry_s:
        raise refusal(429, "too many requests per minute", code="rate_limit_exceeded", retry_s=retry_s)


async def _place(request: Request) -> AsyncIterator[None]:
    """Count a request as open until its response is sent."""
    service: Service = request.app.state.service
    if service.num_open >= service.command.max_waiting:
        raise refusal(429, "too many requests are waiting", code="queue_full", retry_s=5)
    service.num_open += 1
    try:
        yield
    finally:
        service.num_open -= 1


async def _read(request: Request) -> SpeechRequest:
    # a browser sends JSON to another site only if that site allows it
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise refusal(415, "the body must be JSON, with Content-Type: application/json")
    try:
        return SpeechRequest.model_validate_json(await asyncio.wait_for(_body(request), BODY_TIMEOUT_S))
    except TimeoutError:
        raise refusal(408, f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s") from None
    except ClientDisconnect:
        raise refusal(CLIENT_GONE, "the client is gone") from None
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        raise refusal(400, f"{name or 'the body'}: {first['msg']}", param=name) from None


async def _body(request: Request) -> bytes:
    body = b""
    async for block in request.stream():
        body += block
        if len(body) > MAX_BODY_BYTES:
            raise refusal(413, f"the body is larger than {MAX_BODY_BYTES:,} bytes")
    return body


async def _speak(service: Service, request: Request, wanted: SpeechRequest) -> Response:
    command, tts = service.command, service.engine.tts
    if wanted.model != command.model_name and not command.default_model:
        raise refusal(
            404,
            f"no model {wanted.model[:80]!r} here; the model is {command.model_name!r}",
            param="model",
            code="model_not_found",
        )
    known = await asyncio.to_thread(voices_in, command.voices)
    voice = wanted.voice if wanted.voice in known else command.default_voice
    if voice not in known:
        names = ", ".join(list(known)[:20]) or "none: add recordings to the folder of --voices"
        raise refusal(400, f"no voice {wanted.voice[:80]!r}; the voices are {names}", param="voice")
    if len(wanted.input) > command.max_characters:
        message = f"input has {len(wanted.input):,} characters, the limit is {command.max_characters:,}"
        raise refusal(400, message, param="input")
    try:
        parts = await asyncio.to_thread(tts.split, wanted.input)
    except UserError as error:
        raise refusal(400, str(error), param="input") from None
    headers = {}
    unknown = ", ".join(
        dict.fromkeys(word for part in parts for word in tts.trained.tokenizer.unknown_words(part))
    )
    if unknown and not command.allow_unknown:
        message = (
            f"the tokenizer does not know {unknown[:200]}; write other words, or start with --allow-unknown"
        )
        raise refusal(400, message, param="input", code="unknown_words")
    if unknown:
        headers["X-Unknown-Words"] = quote(unknown[:200])
    choices: list[list[dict[str, Any]]] = []
    chunks = _chunks(service, request, wanted, parts, known[voice], choices)
    media_type = MEDIA_TYPES[wanted.response_format]
    if wanted.is_stream:
        blocks = _joined(await anext(chunks), chunks)  # an error before the first sound has its status
        headers["X-Accel-Buffering"] = "no"  # else nginx would keep the pieces back
        if wanted.stream_format == "sse":
            blocks, media_type = _events(blocks), "text/event-stream"
    else:
        content = b"".join([block async for block in chunks])
        headers["Content-Length"] = str(len(content))
        if choices:
            fields = ("seed", "fault", "is_chosen")
            headers["X-Candidates"] = json.dumps(
                [[{n: one[n] for n in fields} for one in all] for all in choices]
            )
        blocks = _blocks(content)
    return StreamingResponse(blocks, media_type=media_type, headers=headers)


async def _joined(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for block in others:
        yield block


async def _events(blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the server-sent events of OpenAI's API; strict clients need the usage, which is not counted."""
    async for block in blocks:
        if block:
            event = {"type": "speech.audio.delta", "audio": b64encode(block).decode()}
            yield f"data: {json.dumps(event)}\n\n".encode()
    usage = dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), 0)
    yield f"data: {json.dumps({'type': 'speech.audio.done', 'usage': usage})}\n\n".encode()


async def _blocks(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), BLOCK_BYTES):
        yield content[start : start + BLOCK_BYTES]


Piece = NDArray[np.float32] | Exception | None  # None is the end


async def _chunks(
    service: Service,
    request: Request,
    wanted: SpeechRequest,
    parts: list[str],
    recording: Path,
    choices: list[list[dict[str, Any]]],
) -> AsyncIterator[bytes]:
    """Yield the encoded sound piece by piece; the end of the iteration cancels the rest.

    Raises:
        HTTPException: the voice cannot be used, the model generated nothing, the engine failed, or the client
            is gone.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[Piece] = asyncio.Queue()

    def deliver(piece: Piece) -> None:
        loop.call_soon_threadsafe(pieces.put_nowait, piece)

    spoken = speaking.Request(
        tuple(parts),
        recording,
        deliver,
        is_stream=wanted.is_stream,
        num_candidates=1 if wanted.is_stream else service.command.candidates,
        choices=choices,
    )
    encoder, has_sound = Encoder(wanted.response_format, is_stream=wanted.is_stream), False
    rate_hz = service.engine.tts.renderer.sample_rate_hz
    service.engine.submit(spoken)
    try:
        while (piece := await _next(pieces, request)) is not None:
            if isinstance(piece, UserError):
                raise refusal(400, str(piece).replace(str(recording), recording.name), param="voice")
            if isinstance(piece, speaking.ClosedError):
                raise refusal(503, "the server stops; send the request again when it runs")
            if isinstance(piece, Exception):
                raise refusal(500, INTERNAL)
            sound = await asyncio.to_thread(at_rate, piece, rate_hz, wanted.speed)
            block = await asyncio.to_thread(encoder.add, sound)
            has_sound = True
            if block:
                yield block
        if not has_sound:
            raise refusal(500, "the model generated no speech for this text; try another text or voice")
        yield await asyncio.to_thread(encoder.end)
    finally:
        service.engine.cancel(spoken)


async def _next(pieces: asyncio.Queue[Piece], request: Request) -> Piece:
    """Return the next piece; raise an HTTPException when the client disconnects."""
    while True:
        try:
            return await asyncio.wait_for(pieces.get(), POLL_S)
        except TimeoutError:
            if await request.is_disconnected():
                raise refusal(CLIENT_GONE, "the client is gone") from None
