"""The address that receives uploads: Gradio's own code, in a folder for each upload.

Gradio alone would keep the files of an upload that breaks off or meets a full disk.
"""

import errno
import logging
import shutil
import tempfile
from pathlib import Path

from gradio.route_utils import upload_fn
from gradio.routes import file_upload_statuses
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from indextts.errors import DISK_FULL_ERRNOS
from indextts.webui.language import t

logger = logging.getLogger(__name__)

PART = ".part-"
NOT_WRITTEN = "data.upload_not_written"


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
        return PlainTextResponse(t(NOT_WRITTEN, problem=error.strerror), status_code=507)


def _kept(path: Path, folder: Path) -> Path:
    """Move a file of an upload to where Gradio looks for it, and return its path there."""
    kept = folder / path.parent.name / path.name
    kept.parent.mkdir(exist_ok=True)
    if path.exists():  # else the upload has the same file twice
        path.replace(kept)
    return kept
