"""What the page serves beside Gradio: uploads, exports as archives, and the TensorBoard of a project.

    /gradio_api/upload        Gradio's code in a folder for each upload: alone, it would keep the files of one
                              that breaks off or meets a full disk
    /export/PROJECT.zip       written while it is sent; compressed weights would hardly be smaller
    /tensorboard/PROJECT/...  the project must be in the workspace, and the port is the one that its running
                              TensorBoard recorded; passes no cookies, and only the headers listed below

All require the sign-in (guard.py).
"""

import errno
import io
import logging
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
from gradio.route_utils import upload_fn
from gradio.routes import file_upload_statuses
from starlette.background import BackgroundTask
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from indextts.errors import DISK_FULL_ERRNOS
from indextts.projects.project import Project, project_names
from indextts.projects.tensorboard import live_port
from indextts.webui.language import t

logger = logging.getLogger(__name__)

PART = ".part-"


async def receive_upload(request: Request, folder: Path, max_file_bytes: int) -> Response:
    """Store the files of an upload in the folder, each in a folder named by its digest."""
    upload_id = request.query_params.get("upload_id")
    progress = file_upload_statuses if upload_id else None
    try:
        # at once, instead of after hours and with no space left for the checkpoints of a run
        if int(request.headers.get("content-length", "0")) > shutil.disk_usage(folder).free:
            raise OSError(errno.ENOSPC, "no space left on the disk")
        with tempfile.TemporaryDirectory(prefix=PART, dir=folder, ignore_cleanup_errors=True) as part:
            paths, _, _ = await upload_fn(request, part, max_file_bytes, upload_id, upload_progress=progress)
            return JSONResponse([str(_kept(Path(path), folder)) for path in paths])
    except MultiPartException as error:
        return PlainTextResponse(error.message, 413 if "maximum allowed size" in error.message else 400)
    except ClientDisconnect:
        logger.info("an upload broke off; what had arrived is removed")
        return Response()  # for nobody
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        logger.warning("%s: an upload cannot be written: %s", folder, error.strerror)
        return PlainTextResponse(t("data.upload_not_written", problem=error.strerror), status_code=507)


def _kept(path: Path, folder: Path) -> Path:
    """Move a file of an upload to where Gradio looks for it, and return its path there."""
    kept = folder / path.parent.name / path.name
    kept.parent.mkdir(exist_ok=True)
    if path.exists():  # else the upload has the same file twice
        path.replace(kept)
    return kept


PACKAGE = "spoken_text"  # indextts/speech/export/text_package.py
BLOCK_BYTES = 1 << 20


class _Sent(io.RawIOBase):
    """Bytes written since the last `take`; without seeking, each size in the archive follows its file."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self.parts.append(bytes(data))  # type: ignore[call-overload]
        return len(self.parts[-1])

    def take(self) -> bytes:
        taken, self.parts = b"".join(self.parts), []
        return taken


def exported_files(folder: Path) -> list[Path]:
    """Return the files of an export, without links and compiled Python."""
    found = [*sorted(folder.glob("*")), *sorted((folder / PACKAGE).rglob("*[!c]"))]
    return [path for path in found if path.is_file() and not path.is_symlink()]


def zipped(folder: Path, files: Sequence[Path]) -> Iterator[bytes]:
    """Yield an archive of files, with their names in the folder."""
    sent = _Sent()
    with zipfile.ZipFile(sent, "w") as archive:
        for path in files:
            entry = zipfile.ZipInfo.from_file(path, path.relative_to(folder))
            with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                while block := source.read(BLOCK_BYTES):
                    target.write(block)
                    yield sent.take()
    yield sent.take()


def send_export(request: Request, workspace: Path) -> Response:
    name = request.path_params["project"]
    folder = Project(workspace / name).export
    files = exported_files(folder) if name in project_names(workspace) else []
    if not files:
        return PlainTextResponse("Not Found", status_code=404)
    headers = {"Content-Disposition": f'attachment; filename="{name}.zip"'}
    return StreamingResponse(zipped(folder, files), media_type="application/zip", headers=headers)


ADDRESS = re.compile(r"/tensorboard/([^/]+)/.*", re.DOTALL)
METHODS = ("GET", "HEAD", "POST")
PASSED_ON = ("accept", "accept-encoding", "content-type", "if-none-match", "if-modified-since")
PASSED_BACK = (
    "content-type",
    "content-encoding",
    "content-length",
    "cache-control",
    "etag",
    "expires",
    "last-modified",
    "vary",
)
TIMEOUT_S = 30.0

NOT_RUNNING = "TensorBoard does not run in this project; start it in tab 7."
NO_ANSWER = "TensorBoard does not answer; stop it and start it again."


async def ask_tensorboard(request: Request, workspace: Path, transport: httpx.AsyncHTTPTransport) -> Response:
    """Return the answer of a project's TensorBoard.

    Args:
        transport: not a client: it stores no cookies, follows no redirects and uses no proxy.
    """
    port = tensorboard_port(workspace, request.url.path)
    if port is None:
        return PlainTextResponse(NOT_RUNNING, status_code=404)
    query: bytes = request.scope["query_string"]
    target = request.scope["raw_path"] + (b"?" + query if query else b"")
    asked = httpx.Request(
        request.method,
        httpx.URL(scheme="http", host="127.0.0.1", port=port, raw_path=target),
        headers=[(name, request.headers[name]) for name in PASSED_ON if name in request.headers],
        content=await request.body(),
        extensions={"timeout": httpx.Timeout(TIMEOUT_S).as_dict()},
    )
    try:
        answer = await transport.handle_async_request(asked)
    except httpx.HTTPError:
        return PlainTextResponse(NO_ANSWER, status_code=502)
    return StreamingResponse(
        answer.aiter_raw(),
        status_code=answer.status_code,
        headers={name: answer.headers[name] for name in PASSED_BACK if name in answer.headers},
        background=BackgroundTask(answer.aclose),
    )


def tensorboard_port(workspace: Path, path: str) -> int | None:
    """Return the TensorBoard port for a path of the page; None if none runs."""
    found = ADDRESS.fullmatch(path)
    if not found or found[1] not in project_names(workspace):
        return None
    return live_port(Project(workspace / found[1]).tensorboard_address)
