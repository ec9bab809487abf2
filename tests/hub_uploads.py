"""The hub's side of an upload to a model repository, for tests/hub_server.py.

GET  /api/models/REPOSITORY[/revision/REV]       facts and file names
POST /api/repos/create                           a new repository
POST /api/models/REPOSITORY/preupload/main       which files are large
POST /REPOSITORY.git/info/lfs/objects/batch      which large files are missing, and where to put them
PUT  /lfs/DIGEST                                 the bytes of a large file
POST /api/models/REPOSITORY/commit/main          all files at once
"""

import base64
import hashlib
import json
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

import yaml

SMALL = (".md", ".txt", ".yaml", ".json", ".py")


@dataclass
class Uploads:
    """Record of what clients sent.

    Args:
        repositories: facts by name, as {"private": True}.
        stored: large files by their digest.
        committed: files by (repository, name); `large` has the names of large ones.
        received: number of complete transfers by digest.
        readers: tokens that may not write.
        hold_above: size from which the server never finishes reading a large file; 0 for none.
        held: set once it reads such a file.
    """

    repositories: dict[str, dict[str, Any]] = field(default_factory=dict)
    stored: dict[str, bytes] = field(default_factory=dict)
    committed: dict[tuple[str, str], bytes] = field(default_factory=dict)
    large: set[str] = field(default_factory=set)
    received: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)
    readers: tuple[str, ...] = ("hf_reader",)
    hold_above: int = 0
    held: threading.Event = field(default_factory=threading.Event)


def get_model(handler: BaseHTTPRequestHandler, uploads: Uploads, commit: str) -> None:
    found = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/.+)?", unquote(handler.path.split("?")[0]))
    facts = uploads.repositories.get(found[1]) if found else None
    if found is None or facts is None or (facts["private"] and not _login(handler)):
        _send(handler, 404, {"error": "not found"}, {"X-Error-Code": "RepoNotFound"})
        return
    siblings = [{"rfilename": name} for known, name in uploads.committed if known == found[1]]
    _send(handler, 200, {"id": found[1], "sha": commit, "siblings": siblings, **facts})


def post(handler: BaseHTTPRequestHandler, uploads: Uploads, url: str) -> None:
    body = handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
    path = unquote(handler.path.split("?")[0])
    if not _login(handler) or _login(handler) in uploads.readers:
        _send(handler, 403 if _login(handler) else 401, {"error": "refused"})
    elif path == "/api/repos/create":
        facts = json.loads(body)
        name = f"{facts['organization']}/{facts['name']}"
        uploads.repositories[name] = {"private": facts.get("visibility") == "private" or facts.get("private")}
        _send(handler, 200, {"url": f"{url}/{name}"})
    elif path == "/api/validate-yaml":
        card = json.loads(body)["content"]
        is_valid = isinstance(yaml.safe_load(card.split("---\n")[1]), dict)
        _send(handler, 200, {"warnings": [], "errors": [] if is_valid else [{"message": "no YAML"}]})
    elif path.endswith("/preupload/main"):
        files = [
            {
                "path": file["path"],
                "uploadMode": "regular" if file["path"].endswith(SMALL) else "lfs",
                "shouldIgnore": False,
            }
            for file in json.loads(body)["files"]
        ]
        _send(handler, 200, {"files": files})
    elif path.endswith(".git/info/lfs/objects/batch"):
        objects = []
        for item in json.loads(body)["objects"]:
            actions = {"upload": {"href": f"{url}/lfs/{item['oid']}", "header": {}}}
            objects.append({**item, **({} if item["oid"] in uploads.stored else {"actions": actions})})
        _send(handler, 200, {"transfer": "basic", "objects": objects})
    elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", path):
        _commit(uploads, found[1], body)
        answer = {"success": True, "commitUrl": f"{url}/{found[1]}/commit/abc", "commitOid": "abc"}
        _send(handler, 200, answer)
    else:
        _send(handler, 404, {"error": path})


def put(handler: BaseHTTPRequestHandler, uploads: Uploads) -> None:
    digest, size = handler.path.rpartition("/")[2], int(handler.headers["Content-Length"])
    if uploads.hold_above and size > uploads.hold_above:
        handler.rfile.read(1024)
        uploads.held.set()
        while handler.rfile.read(1):  # until the client is killed; its data goes nowhere
            pass
        handler.close_connection = True
        return
    content = handler.rfile.read(size)
    assert hashlib.sha256(content).hexdigest() == digest
    uploads.stored[digest] = content
    uploads.received[digest] += 1
    _send(handler, 200, {})


def _commit(uploads: Uploads, repository: str, body: bytes) -> None:
    for line in map(json.loads, body.splitlines()):
        value = line["value"]
        if line["key"] == "header":
            uploads.messages.append(value["summary"])
        elif line["key"] == "file":
            uploads.committed[repository, value["path"]] = base64.b64decode(value["content"])
        else:
            assert line["key"] == "lfsFile"
            uploads.committed[repository, value["path"]] = uploads.stored[value["oid"]]
            uploads.large.add(value["path"])


def _login(handler: BaseHTTPRequestHandler) -> str:
    return str(handler.headers.get("Authorization", "")).removeprefix("Bearer ")


def _send(
    handler: BaseHTTPRequestHandler, status: int, content: object, headers: dict[str, str] | None = None
) -> None:
    body = json.dumps(content).encode()
    handler.send_response(status)
    for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)
