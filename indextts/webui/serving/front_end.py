"""The page and the files of its front end, compressed.

Gradio compresses a script again for each request, so a visitor without the password could keep the processor
busy. This middleware compresses a file at its first request, and then sends the stored copy in small pieces.
Gradio sends the page itself, most of a megabyte, as it is. The page depends on the visitor, so it is
compressed at each request.
"""

import asyncio
import gzip
import posixpath
import re
from dataclasses import dataclass

import brotli
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FILES = re.compile(
    r"(?:/(?:assets|static|svelte|page_files)/.+\.(?:js|css|json|svg|html|txt)|(?:/gradio_api)?/theme\.css)"
)
PAGE = "/"
PIECE_BYTES = 64 * 1024
BROTLI_QUALITY = 5


@dataclass(frozen=True)
class Stored:
    """A compressed file and the headers to send with it."""

    headers: list[tuple[bytes, bytes]]
    body: bytes


class CompressedFrontEnd:
    """Middleware that answers with the compressed page and with stored copies of the front end's text files.

    The package has a fixed set of these files, so the number of copies is bounded.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.stored: dict[tuple[str, str], Stored] = {}
        self.one_at_a_time = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path != PAGE and not FILES.fullmatch(path):
            await self.app(scope, receive, send)
            return
        headers = MutableHeaders(scope=scope)
        accepted = headers.get("accept-encoding", "")
        del headers["accept-encoding"]
        coding = next((name for name in ("br", "gzip") if name in accepted), None)
        if coding is None or scope["method"] != "GET" or "range" in headers:
            await self.app(scope, receive, send)
            return
        key = (posixpath.normpath(path), coding)
        async with self.one_at_a_time:
            answer = self.stored.get(key) or await self._compressed(scope, receive, coding)
            if isinstance(answer, Stored) and path != PAGE:
                self.stored[key] = answer
        if isinstance(answer, Stored):
            await send_stored(answer, send)
        else:
            for message in answer:
                await send(message)

    async def _compressed(self, scope: Scope, receive: Receive, coding: str) -> Stored | list[Message]:
        """Return the compressed file, or the messages of an answer without one, such as 404."""
        messages: list[Message] = []

        async def collect(message: Message) -> None:
            messages.append(message)

        await self.app(scope, receive, collect)
        if messages[0]["status"] != 200:
            return messages
        text = b"".join(message.get("body", b"") for message in messages[1:])
        compress = _brotli if coding == "br" else _gzip
        body = await asyncio.to_thread(compress, text)
        headers = MutableHeaders(raw=list(messages[0]["headers"]))
        headers["content-encoding"] = coding
        headers["content-length"] = str(len(body))
        headers.add_vary_header("accept-encoding")
        return Stored(headers.raw, body)


async def send_stored(stored: Stored, send: Send) -> None:
    """Send a copy in pieces, so that a visitor who does not read holds one of them."""
    await send({"type": "http.response.start", "status": 200, "headers": list(stored.headers)})
    for at in range(0, len(stored.body), PIECE_BYTES):
        piece = stored.body[at : at + PIECE_BYTES]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _brotli(text: bytes) -> bytes:
    compressed: bytes = brotli.compress(text, quality=BROTLI_QUALITY)
    return compressed


def _gzip(text: bytes) -> bytes:
    return gzip.compress(text, mtime=0)
