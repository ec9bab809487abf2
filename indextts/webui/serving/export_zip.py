"""Download of an export as one archive: /export/PROJECT.zip, which is written while it is sent.

The weights are not compressed: they would hardly be smaller. It requires the sign-in (guard.py).
"""

import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from indextts.projects.project import Project, project_names

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
