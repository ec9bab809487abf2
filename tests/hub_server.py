"""Server on 127.0.0.1 that behaves like the Hugging Face hub.

    HEAD, GET /REPOSITORY/resolve/REVISION/NAME    a small file, or a redirect to the storage for a large one
    HEAD, GET http://localhost:PORT/storage/...    the bytes of a large file, on another host name

It uses the hub's headers: X-Repo-Commit, ETag, X-Linked-Size, X-Linked-Etag, Range and Content-Range.
"""

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class HubFile:
    """File of a repository, and the failures of its transfers.

    Args:
        etag: the digest in the headers; empty for the correct one.
        break_after: for each transfer, the number of bytes after which the connection breaks.
        hold_after: the number of bytes after which the server waits until `go_on` is set; 0 for never.
        status: the HTTP status to answer instead of the file; 0 for the file.
    """

    content: bytes
    is_large: bool = False
    etag: str = ""
    break_after: list[int] = field(default_factory=list)
    hold_after: int = 0
    knows_ranges: bool = True
    status: int = 0
    error_code: str = ""
    go_on: threading.Event = field(default_factory=threading.Event)
    held: threading.Event = field(default_factory=threading.Event)

    @property
    def sent_etag(self) -> str:
        if self.etag:
            return self.etag
        if self.is_large:
            return hashlib.sha256(self.content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()


@dataclass
class Hub:
    """Running server, with files by (repository, name) and requests as (method, name, range, login)."""

    url: str
    files: dict[tuple[str, str], HubFile]
    requests: list[tuple[str, str, str, str]] = field(default_factory=list)

    def fetched(self, name: str) -> list[str]:
        """Return the requested ranges of a file; empty for the entire file."""
        return [range_ for method, path, range_, _ in self.requests if (method, path) == ("GET", name)]


@contextmanager
def serve(files: dict[tuple[str, str], HubFile]) -> Iterator[Hub]:
    """Serve `files` until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    port = server.server_address[1]
    hub = Hub(f"http://127.0.0.1:{port}", files)
    server.hub = hub  # type: ignore[attr-defined]
    server.storage = f"http://localhost:{port}/storage"  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        for file in files.values():
            file.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, *, with_body: bool) -> None:
        hub: Hub = self.server.hub  # type: ignore[attr-defined]
        in_storage = self.path.startswith("/storage/")
        path = self.path.removeprefix("/storage")
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        file = hub.files.get((found[1], found[3])) if found else None
        if file is None or found is None:
            self.refuse(404, "EntryNotFound" if found and self.has_repository(found[1]) else "RepoNotFound")
            return
        login = self.headers.get("Authorization", "")
        if in_storage or not file.is_large:
            self.server.hub.requests.append(  # type: ignore[attr-defined]
                (self.command, found[3], self.headers.get("Range", ""), login)
            )
        if file.status:
            self.refuse(file.status, file.error_code)
        elif file.is_large and not in_storage:
            self.send_response(302)
            self.send_header("Location", f"{self.server.storage}{path}")  # type: ignore[attr-defined]
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("X-Linked-Etag", f'"{file.sent_etag}"')
            self.send_header("X-Linked-Size", str(len(file.content)))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.send_file(file, with_body=with_body)

    def has_repository(self, repository: str) -> bool:
        return any(known == repository for known, _ in self.server.hub.files)  # type: ignore[attr-defined]

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send_file(self, file: HubFile, *, with_body: bool) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if not file.knows_ranges:
            wanted = None
        start = int(wanted[1]) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("ETag", f'"{file.sent_etag}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(file.content) - start))
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(file.content) - 1}/{len(file.content)}")
        self.end_headers()
        if not with_body:
            return
        end = start + file.break_after.pop(0) if file.break_after else len(file.content)
        for position in range(start, min(end, len(file.content)), 1 << 16):
            if file.hold_after and position >= file.hold_after:
                file.held.set()
                file.go_on.wait(60)
            try:
                self.wfile.write(file.content[position : min(position + (1 << 16), end)])
            except OSError:  # the client was killed
                break
        if end < len(file.content):
            self.close_connection = True
            self.connection.shutdown(2)
