"""Server on 127.0.0.1 that behaves like the Hugging Face hub; names of data sets begin with `datasets/`.

    HEAD, GET /NAME/resolve/REVISION/FILE          a small file, or a redirect to the storage for a large one
    HEAD, GET http://localhost:PORT/storage/...    the bytes of a large file, on another host name
    GET /api/(models|datasets)/NAME[/revision/REV] commit and visibility
    GET /api/(models|datasets)/NAME/tree/REV       the files with sizes and digests
    POST /api/repos/create                         a new repository
    POST /api/models/NAME/preupload/main           which files are large
    POST /NAME.git/info/lfs/objects/batch          which large files are missing, and where to put them
    PUT  /lfs/DIGEST                               the bytes of a large file
    POST /api/models/NAME/commit/main              all files at once

The fixture `hub` of conftest.py runs one. `use_hub` makes this process use it, `hub_env` a child.
"""

import base64
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
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_allowed"  # has access to everything
READER = "hf_reader"  # may not write
SMALL = (".md", ".csv", ".tsv", ".py", ".json", ".txt", ".toml", ".yaml")
BLOCK = 1 << 16


@dataclass
class HubFile:
    """File of a repository, and the failures of its transfers.

    Args:
        etag: the digest in the listing; empty for the correct one.
        break_after: for each transfer, the number of bytes after which the connection breaks.
        hold_after: the number of bytes after which the server waits until `go_on` is set; 0 for never.
    """

    content: bytes
    is_large: bool = False
    etag: str = ""
    break_after: list[int] = field(default_factory=list)
    hold_after: int = 0
    knows_ranges: bool = True
    go_on: threading.Event = field(default_factory=threading.Event)
    held: threading.Event = field(default_factory=threading.Event)

    @property
    def sent_etag(self) -> str:
        blob = hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()
        return self.etag or (hashlib.sha256(self.content).hexdigest() if self.is_large else blob)


@dataclass
class Repository:
    """Commits with their files by name, and the commit of each branch."""

    commits: dict[str, dict[str, HubFile]]
    branches: dict[str, str] = field(default_factory=lambda: {"main": COMMIT})
    is_gated: bool = False  # only TOKEN has access to the files
    is_private: bool = False
    status: int = 0  # the HTTP status to answer to requests for its listing; 0 for the listing

    @property
    def files(self) -> dict[str, HubFile]:
        return self.commits[self.branches["main"]]


def hub_files(files: dict[str, bytes]) -> dict[str, HubFile]:
    return {name: HubFile(content, is_large=not name.endswith(SMALL)) for name, content in files.items()}


def repository(files: dict[str, bytes], **options: Any) -> Repository:
    """Return a repository with one commit."""
    return Repository({COMMIT: hub_files(files)}, **options)


@dataclass
class Hub:
    """Running server.

    Args:
        requests: for files, as (method, name, range, login).
        stored: large files that were uploaded, by their digest; `received` counts the transfers.
        hold_above: size from which the server never finishes reading a large file; 0 for none.
        held: set once it reads such a file.
    """

    url: str
    repositories: dict[str, Repository]
    requests: list[tuple[str, str, str, str]] = field(default_factory=list)
    stored: dict[str, bytes] = field(default_factory=dict)
    received: Counter[str] = field(default_factory=Counter)
    hold_above: int = 0
    held: threading.Event = field(default_factory=threading.Event)

    def fetched(self, name: str = "") -> list[str]:
        """Return the requested ranges of a file, "" for the entire file; without a name those of all."""
        return [range_ for method, path, range_, _ in self.requests if method == "GET" and name in ("", path)]

    def names(self) -> list[str]:
        """Return the names of all files that were fetched, in order of their names."""
        return sorted(name for method, name, *_ in self.requests if method == "GET")


@contextmanager
def serve(repositories: dict[str, Repository] | None = None) -> Iterator[Hub]:
    """Serve repositories until the block ends."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.hub = Hub(f"http://127.0.0.1:{server.server_port}", repositories or {})
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.hub
    finally:
        for known in server.hub.repositories.values():
            for file in (file for commit in known.commits.values() for file in commit.values()):
                file.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


def use_hub(monkeypatch: pytest.MonkeyPatch, url: str, folder: Path, token: str = "") -> None:
    """Make this process use the hub at `url` with a token or none; "" for no hub."""
    monkeypatch.setattr(constants, "ENDPOINT", url or "http://127.0.0.1:1")
    template = "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", constants.ENDPOINT + template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hf"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "no token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.setenv("HF_TOKEN", token)


def hub_env(url: str, folder: Path, token: str = "") -> dict[str, str]:
    """Return the variables that make a child use the hub at `url`."""
    return {
        "HF_ENDPOINT": url,
        "HF_HOME": str(folder / "hf"),
        "HF_TOKEN": token,
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1,localhost",
        "OMP_NUM_THREADS": "1",
    }


class _Server(ThreadingHTTPServer):
    hub: Hub

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # the client was killed
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if found := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path):
            name = found[2] if found[1] == "models" else f"datasets/{found[2]}"
            self.answer_api(name, found[3], found[4] or "main")
        elif found := re.fullmatch(r"/(storage/)?((?:datasets/)?[^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self.answer_file(found[2], found[3], found[4], in_storage=bool(found[1]))
        else:
            self.send(404)

    def answer_api(self, name: str, what: str, revision: str) -> None:
        """Answer with the facts or the tree of a repository."""
        known = self.server.hub.repositories.get(name)
        if known is None or (known.is_private and not self.login):
            self.send(404, code="RepoNotFound")
        elif known.status or self.login == "hf_wrong":
            self.send(known.status or 401)
        elif (commit := known.branches.get(revision, revision)) not in known.commits:
            self.send(404, code="RevisionNotFound")
        elif what == "tree":
            self.send_json([_entry(name, file) for name, file in known.commits[commit].items()])
        else:
            siblings = [{"rfilename": name} for name in known.commits[commit]]
            facts = {"id": name, "sha": commit, "private": known.is_private, "siblings": siblings}
            self.send_json(facts)

    def answer_file(self, name: str, revision: str, place: str, *, in_storage: bool) -> None:
        known = self.server.hub.repositories.get(name)
        if known is None:
            self.send(404, code="RepoNotFound")
            return
        commit = known.branches.get(revision, revision)
        file = known.commits.get(commit, {}).get(place)
        if known.is_gated and not in_storage and self.login != TOKEN:
            self.send(403 if self.login else 401, code="GatedRepo")
        elif file is None:
            self.send(404, code="EntryNotFound")
        elif file.is_large and not in_storage:
            headers = {"X-Linked-Etag": f'"{file.sent_etag}"', "X-Linked-Size": str(len(file.content))}
            storage = f"http://localhost:{self.server.server_port}/storage{self.path}"
            self.send(302, headers={"Location": storage, "X-Repo-Commit": commit, **headers})
        else:
            request = (self.command, place, self.headers.get("Range", ""), self.login)
            self.server.hub.requests.append(request)
            self.send_file(file, commit)

    def send_file(self, file: HubFile, commit: str) -> None:
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) if file.knows_ranges else None
        start, size = int(wanted[1]) if wanted else 0, len(file.content)
        self.send_response(206 if wanted else 200)
        headers = {
            "ETag": f'"{file.sent_etag}"',
            "X-Repo-Commit": commit,
            "Content-Length": str(size - start),
        }
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        self.end(headers)
        if self.command == "HEAD":
            return
        end = min(start + file.break_after.pop(0), size) if file.break_after else size
        for position in range(start, end, BLOCK):
            if file.hold_after and position >= file.hold_after:
                file.held.set()
                file.go_on.wait(60)
            try:
                self.wfile.write(file.content[position : min(position + BLOCK, end)])
            except OSError:  # the client was killed
                break
        if end < size:
            self.close_connection = True
            self.connection.shutdown(2)

    def do_POST(self) -> None:
        hub = self.server.hub
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        path = unquote(urlsplit(self.path).path)
        if self.login in ("", READER):
            self.send(403 if self.login else 401)
        elif path == "/api/repos/create":
            facts = json.loads(body)
            name = f"{facts['organization']}/{facts['name']}"
            is_private = facts.get("visibility") == "private" or bool(facts.get("private"))
            hub.repositories[name] = repository({}, is_private=is_private)
            self.send_json({"url": f"{hub.url}/{name}"})
        elif path == "/api/validate-yaml":
            self.send_json({"warnings": [], "errors": []})
        elif path.endswith("/preupload/main"):
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = {name: "regular" if name.endswith(SMALL) else "lfs" for name in names}
            files = [{"path": name, "uploadMode": modes[name], "shouldIgnore": False} for name in names]
            self.send_json({"files": files})
        elif path.endswith(".git/info/lfs/objects/batch"):
            objects = []
            for item in json.loads(body)["objects"]:
                actions = {"upload": {"href": f"{hub.url}/lfs/{item['oid']}", "header": {}}}
                objects.append(item if item["oid"] in hub.stored else {**item, "actions": actions})
            self.send_json({"transfer": "basic", "objects": objects})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", path):
            for line in map(json.loads, body.splitlines()[1:]):  # the first has the message
                value, is_large = line["value"], line["key"] == "lfsFile"
                content = hub.stored[value["oid"]] if is_large else base64.b64decode(value["content"])
                hub.repositories[found[1]].files[value["path"]] = HubFile(content, is_large=is_large)
            self.send_json({"success": True, "commitUrl": f"{hub.url}/{found[1]}/commit/a", "commitOid": "a"})
        else:
            self.send(404)

    def do_PUT(self) -> None:
        hub = self.server.hub
        digest, size = self.path.rpartition("/")[2], int(self.headers["Content-Length"])
        if hub.hold_above and size > hub.hold_above:
            hub.held.set()
            while self.rfile.read(1):  # until the client is killed; its data goes nowhere
                pass
            self.close_connection = True
            return
        hub.stored[digest] = self.rfile.read(size)
        assert hashlib.sha256(hub.stored[digest]).hexdigest() == digest
        hub.received[digest] += 1
        self.send_json({})

    @property
    def login(self) -> str:
        return str(self.headers.get("Authorization", "")).removeprefix("Bearer ")

    def send_json(self, content: object) -> None:
        self.send(200, json.dumps(content).encode())

    def send(self, status: int, body: bytes = b"", code: str = "", headers: Any = None) -> None:
        self.send_response(status)
        named = {"X-Error-Code": code} if code else {}
        self.end({**named, **(headers or {}), "Content-Length": str(len(body))})
        self.wfile.write(body)

    def end(self, headers: dict[str, str]) -> None:
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def _entry(name: str, file: HubFile) -> dict[str, object]:
    """Return a file in a tree."""
    size = len(file.content)
    large = {"lfs": {"oid": file.sent_etag, "size": size, "pointerSize": 130}} if file.is_large else {}
    return {"type": "file", "path": name, "size": size, "oid": file.sent_etag, **large}
