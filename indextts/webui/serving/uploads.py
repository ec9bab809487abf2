"""Uploads: what a browser sends arrives in a folder of its own, and nothing of a broken one stays.

This takes the place of Gradio's address, with Gradio's parser: Gradio keeps the files of an upload that
breaks off, collects fields that are not files in memory without a limit, and answers a full disk with a
traceback.
"""

import inspect
import logging
import shutil
import tempfile
from pathlib import Path

from gradio.route_utils import GradioMultiPartParser, GradioUploadFile
from gradio.routes import file_upload_statuses
from gradio_client.utils import strip_invalid_filename_characters
from python_multipart.exceptions import FormParserError
from starlette.concurrency import run_in_threadpool
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from indextts.errors import DISK_FULL_ERRNOS
from indextts.webui.language import language_of, t, use_language
from indextts.webui.serving.received import PART

logger = logging.getLogger(__name__)

ADDRESSES = ("/gradio_api/upload", "/gradio_api/upload/")
MAX_FILES = 1000
MAX_ID_CHARS = 64
PARSER_NEEDS = {"max_files", "max_fields", "upload_dir", "upload_id", "upload_progress", "max_file_size"}

NOT_WRITTEN = "data.upload_not_written"
INSUFFICIENT_STORAGE = 507
NO_UPLOAD = "This is no upload of the page."


class Uploads:
    """Middleware that receives uploads, and passes the rest to the page.

    Args:
        folder: where complete files go, each into a folder named by its digest.
        max_file_bytes: limit of a file.
    """

    def __init__(self, app: ASGIApp, folder: Path, max_file_bytes: int) -> None:
        # fails here instead of at the first upload if Gradio changes its parser
        assert inspect.signature(GradioMultiPartParser).parameters.keys() >= PARSER_NEEDS
        self.app = app
        self.folder = folder
        self.max_file_bytes = max_file_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in ADDRESSES:
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive)
        upload_id = request.query_params.get("upload_id", "")[:MAX_ID_CHARS]
        try:
            with use_language(language_of(request.headers.get("cookie"))):
                response = await self._answer(request, upload_id)
        except ClientDisconnect:
            file_upload_statuses.stop_tracking(upload_id)
            logger.info("an upload broke off; what had arrived is removed")
            return
        await response(scope, receive, send)

    async def _answer(self, request: Request, upload_id: str) -> Response:
        part = None
        try:
            # at once, instead of after hours and with no space left for the checkpoints of a run
            if _announced_bytes(request) > shutil.disk_usage(self.folder).free:
                return self._not_written("no space left on the disk")
            part = Path(tempfile.mkdtemp(prefix=PART, dir=self.folder))
            return JSONResponse([str(path) for path in await self._receive(request, part, upload_id)])
        except (MultiPartException, FormParserError) as error:
            is_large = "maximum allowed size" in str(getattr(error, "message", error))
            text = str(getattr(error, "message", error)) if is_large else NO_UPLOAD
            return PlainTextResponse(text, status_code=413 if is_large else 400)
        except OSError as error:
            logger.warning("%s: an upload cannot be written: %s", self.folder, error.strerror)
            return self._not_written(str(error.strerror), is_full=error.errno in DISK_FULL_ERRNOS)
        finally:
            if upload_id:
                file_upload_statuses.set_done(upload_id)
            if part is not None:
                await run_in_threadpool(shutil.rmtree, part, ignore_errors=True)

    async def _receive(self, request: Request, part: Path, upload_id: str) -> list[Path]:
        """Return the files of an upload, complete and in the folder."""
        if not request.headers.get("content-type", "").startswith("multipart/form-data"):
            raise MultiPartException(NO_UPLOAD)
        parser = GradioMultiPartParser(
            request.headers,
            request.stream(),
            max_files=MAX_FILES,
            max_fields=0,  # the page sends files only, and other fields would be kept in memory
            upload_dir=part,
            upload_id=upload_id or None,
            upload_progress=file_upload_statuses if upload_id else None,
            max_file_size=self.max_file_bytes,
        )
        uploads = (await parser.parse()).getlist("files")
        return [self._keep(upload) for upload in uploads if isinstance(upload, GradioUploadFile)]

    def _keep(self, upload: GradioUploadFile) -> Path:
        """Move a file to its place by digest and name, where Gradio looks for it, and return its path."""
        name = strip_invalid_filename_characters(Path(upload.filename or "").name)
        if name in ("", ".", ".."):
            raise MultiPartException(NO_UPLOAD)
        path = self.folder / upload.sha.hexdigest() / name
        upload.file.close()
        path.parent.mkdir(exist_ok=True)
        return Path(upload.file.name).replace(path)

    def _not_written(self, problem: str, *, is_full: bool = True) -> Response:
        text = t(NOT_WRITTEN, problem=problem)
        return PlainTextResponse(text, status_code=INSUFFICIENT_STORAGE if is_full else 500)


def _announced_bytes(request: Request) -> int:
    """Return the size of a request as its head says it; 0 if it says none."""
    announced = request.headers.get("content-length", "")
    return int(announced) if announced.isdecimal() else 0
