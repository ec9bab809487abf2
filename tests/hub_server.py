"""Server on 127.0.0.1 that behaves like the Hugging Face hub.

    HEAD, GET /REPOSITORY/resolve/REVISION/NAME    a small file, or a redirect to the storage for a large one
    HEAD, GET /datasets/REPOSITORY/resolve/...     the same for a data set
    HEAD, GET http://localhost:PORT/storage/...    the bytes of a large file, on another host name
    GET /api/datasets/REPOSITORY[/revision/REV]    commit and file names of a data set
    GET /api/datasets/REPOSITORY/tree/REV          its files with sizes and digests, in pages
    GET /api/models/REPOSITORY...                  the same two for a model
    POST, PUT                                      uploads of a model, see tests/hub_uploads.py

It uses the hub's headers: X-Repo-Commit, ETag, X-Linked-Size, X-Linked-Etag, Range and Content-Range, Link,
X-Error-Code.
"""

import hashlib
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from tests.hub_uploads import Uploads, get_model, post, put

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_allowed"  # has access to everything


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
class HubDataset:
    """Data set with its commits.

    Args:
        commits: the files of each commit by name.
        branches: the commit of each branch.
        is_gated: only TOKEN has access to the files.
        status: the HTTP status to answer to requests for its listing; 0 for the listing.
    """

    commits: dict[str, dict[str, HubFile]]
    branches: dict[str, str]
    is_gated: bool = False
    status: int = 0

    def commit(self, revision: str) -> str | None:
        commit = self.branches.get(revision, revision)
        return commit if commit in self.commits else None


def dataset(files: dict[str, bytes], **options: bool | int) -> HubDataset:
    """Return a data set with one commit; recordings and parquet files are large files."""
    return HubDataset({COMMIT: hub_files(files)}, {"main": COMMIT}, **options)  # type: ignore[arg-type]


def hub_files(files: dict[str, bytes]) -> dict[str, HubFile]:
    small = (".md", ".csv", ".tsv", ".py", ".json", ".txt")
    return {name: HubFile(content, is_large=not name.endswith(small)) for name, content in files.items()}


@dataclass
class Hub:
    """Running server, with files by (repository, name) and requests as (method, name, range, login).

    Args:
        page_size: entries in a page of a tree; the hub has 1000.
        num_sent: bytes sent of each file, by name.
    """

    url: str
    files: dict[tuple[str, str], HubFile]
    datasets: dict[str, HubDataset] = field(default_factory=dict)
    page_size: int = 3
    requests: list[tuple[str, str, str, str]] = field(default_factory=list)
    uploads: Uploads = field(default_factory=Uploads)
    num_sent: Counter[str] = field(default_factory=Counter)

    def fetched(self, name: str) -> list[str]:
        """Return the requested ranges of a file; empty for the entire file."""
        return [range_ for method, path, range_, _ in self.requests if (method, path) == ("GET", name)]


@contextmanager
def serve(
    files: dict[tuple[str, str], HubFile], datasets: dict[str, HubDataset] | None = None
) -> Iterator[Hub]:
    """Serve `files` and data sets until the block ends."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    port = server.server_address[1]
    hub = Hub(f"http://127.0.0.1:{port}", files, datasets or {})
    server.hub = hub  # type: ignore[attr-defined]
    server.storage = f"http://localhost:{port}/storage"  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        commits = [commit for known in hub.datasets.values() for commit in known.commits.values()]
        for file in [*files.values(), *(file for commit in commits for file in commit.values())]:
            file.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # the client was killed
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def do_POST(self) -> None:
        hub: Hub = self.server.hub  # type: ignore[attr-defined]
        post(self, hub.uploads, hub.url)
        for (repository, name), content in hub.uploads.committed.items():
            hub.files.setdefault((repository, name), HubFile(content, is_large=name in hub.uploads.large))

    def do_PUT(self) -> None:
        put(self, self.server.hub.uploads)  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, *, with_body: bool) -> None:
        hub: Hub = self.server.hub  # type: ignore[attr-defined]
        found = re.match(r"/api/models/([^/]+/[^/?]+)(/tree/)?", self.path)
        if found and not found[2] and found[1] in hub.uploads.repositories:
            get_model(self, hub.uploads, COMMIT)
            return
        if self.path.startswith(("/api/datasets/", "/api/models/")):
            self.answer_api(hub)
            return
        in_storage = self.path.startswith("/storage/")
        path = self.path.removeprefix("/storage")
        found = re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", unquote(path))
        if found and found[1] and not in_storage and self.is_refused(hub.datasets.get(found[2])):
            return
        file, commit = (None, "") if found is None else self.find(hub, found)
        if file is None or found is None:
            self.refuse(404, "EntryNotFound" if found and self.has_repository(found[2]) else "RepoNotFound")
            return
        login = self.headers.get("Authorization", "")
        if in_storage or not file.is_large:
            self.server.hub.requests.append(  # type: ignore[attr-defined]
                (self.command, found[4], self.headers.get("Range", ""), login)
            )
        if file.status:
            self.refuse(file.status, file.error_code)
        elif file.is_large and not in_storage:
            self.send_response(302)
            self.send_header("Location", f"{self.server.storage}{path}")  # type: ignore[attr-defined]
            self.send_header("X-Repo-Commit", commit)
            self.send_header("X-Linked-Etag", f'"{file.sent_etag}"')
            self.send_header("X-Linked-Size", str(len(file.content)))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.send_file(found[4], file, commit, with_body=with_body)

    def find(self, hub: Hub, found: re.Match[str]) -> tuple[HubFile | None, str]:
        """Return the file of a path and its commit."""
        if not found[1]:
            return hub.files.get((found[2], found[4])), COMMIT
        known = hub.datasets.get(found[2])
        commit = known.commit(found[3]) if known else None
        return (known.commits[commit].get(found[4]), commit) if known and commit else (None, "")

    def answer_api(self, hub: Hub) -> None:
        """Answer with the facts or the tree of a repository."""
        url = urlsplit(self.path)
        found = re.fullmatch(r"/api/\w+/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", unquote(url.path))
        known = self.repository(hub, found[1]) if found else None
        if found is None or known is None:
            self.refuse(404, "RepoNotFound")
            return
        if known.status:
            self.refuse(known.status, "")
            return
        commit = known.commit(found[3] or "main")
        if commit is None:
            self.refuse(404, "RevisionNotFound")
        elif found[2] == "tree":
            if not self.is_refused(known):
                self.send_tree(hub, known.commits[commit], int(parse_qs(url.query).get("cursor", ["0"])[0]))
        else:
            siblings = [{"rfilename": name} for name in known.commits[commit]]
            self.send_json({"id": found[1], "sha": commit, "siblings": siblings, "gated": known.is_gated})

    def repository(self, hub: Hub, name: str) -> HubDataset | None:
        if self.path.startswith("/api/datasets/"):
            return hub.datasets.get(name)
        files = {place: file for (known, place), file in hub.files.items() if known == name}
        return HubDataset({COMMIT: files}, {"main": COMMIT}) if files else None

    def is_refused(self, known: HubDataset | None) -> bool:
        """Refuse a wrong token, and everything but TOKEN for a gated data set."""
        login = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if login == "hf_wrong":
            self.send_response(401)
            self.send_header("X-Error-Message", "Invalid credentials in Authorization header")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return True
        if known is not None and known.is_gated and login != TOKEN:
            self.refuse(403 if login else 401, "GatedRepo")
            return True
        return False

    def send_tree(self, hub: Hub, files: dict[str, HubFile], start: int) -> None:
        """Send a page of the files of a commit."""
        entries: list[dict[str, object]] = [
            {"type": "directory", "path": folder, "oid": "0" * 40, "size": 0}
            for folder in sorted({name.rpartition("/")[0] for name in files} - {""})
        ]
        for name, file in files.items():
            size = len(file.content)
            entry: dict[str, object] = {"type": "file", "path": name, "size": size, "oid": file.sent_etag}
            if file.is_large:
                entry |= {"oid": "f" * 40, "lfs": {"oid": file.sent_etag, "size": size, "pointerSize": 130}}
            entries.append(entry)
        links = {}
        if start + hub.page_size < len(entries):
            path = self.path.split("&cursor=", maxsplit=1)[0]
            links = {"Link": f'<{hub.url}{path}&cursor={start + hub.page_size}>; rel="next"'}
        self.send_json(entries[start : start + hub.page_size], links)

    def send_json(self, content: object, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def has_repository(self, repository: str) -> bool:
        hub: Hub = self.server.hub  # type: ignore[attr-defined]
        return repository in hub.datasets or any(known == repository for known, _ in hub.files)

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def send_file(self, name: str, file: HubFile, commit: str, *, with_body: bool) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if not file.knows_ranges:
            wanted = None
        start = int(wanted[1]) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("ETag", f'"{file.sent_etag}"')
        self.send_header("X-Repo-Commit", commit)
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
                block = file.content[position : min(position + (1 << 16), end)]
                self.wfile.write(block)
                self.server.hub.num_sent[name] += len(block)  # type: ignore[attr-defined]
            except OSError:  # the client was killed
                break
        if end < len(file.content):
            self.close_connection = True
            self.connection.shutdown(2)
