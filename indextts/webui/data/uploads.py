"""Uploads: files from a browser, stored in the project as sources of the import. No Gradio here.

    NAME/uploads/
      talks.zip        an archive or a parquet file, a source of its own; the import checks and unpacks it
      files/           single recordings and texts in one folder, so that texts match earlier recordings

    NAME/recordings/     recordings without texts, for the transcription
    NAME/listen/voices/  voice recordings

An upload replaces an existing one of the same name.
"""

import html
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import soundfile
from gradio.utils import get_upload_folder

from indextts.data.importing.archive import ARCHIVE_SUFFIXES
from indextts.data.importing.audio_files import as_readable, readable_by_libsndfile
from indextts.data.importing.items import (
    AUDIO_SUFFIXES,
    PARQUET_SUFFIX,
    SNDFILE_SUFFIXES,
    TEXT_SUFFIXES,
    may_be_read,
)
from indextts.errors import UserError
from indextts.features.audio import require_reference_length
from indextts.projects.project import Project
from indextts.webui.language import t

FILES_NAME = "files"
VOICES_NAME = "voices"

NO_RECORDING = "data.no_recording"
UNREADABLE = "data.upload_unreadable"
NO_UPLOAD = "data.no_upload"
UNWRITABLE = "data.unwritable"
NOT_UPLOADED = "data.not_uploaded"
BAD_NAME = "data.bad_name"
BAD_KIND = "data.bad_kind"
BAD_RECORDING = "data.bad_recording"
ZIP_CORRUPT = "data.zip_corrupt"
ZIP_EMPTY = "data.zip_empty"
AUDIO_EMPTY = "data.audio_empty"
AUDIO_UNREADABLE = "data.audio_unreadable"
MORE_FILES = "data.more_files"

_OWN_SOURCES = (*ARCHIVE_SUFFIXES, PARQUET_SUFFIX)
_MAX_NAME_CHARS = 150
_MIN_AUDIO_BYTES = 100  # no format has a header and sound in fewer
_MAX_PROBLEMS = 5


def store_uploads(project: Project, received: Sequence[str], received_in: Path) -> list[Path]:
    """Move uploaded files into the project and return their sources; remove all of them if one is unreadable.

    Args:
        received_in: the folder that the server stores uploads in; a request can name any file.

    Raises:
        UserError: a file was not uploaded, has an unsupported name or type, is unreadable, or cannot be
            written; except for a write error, no file was moved.
    """
    moves = [(Path(path), _target(project, Path(path), received_in)) for path in received]
    problems = [problem for source, _ in moves if (problem := problem_of(source))]
    if problems:
        for source, _ in moves:
            source.unlink(missing_ok=True)
        more = len(problems) - _MAX_PROBLEMS
        shown = problems[:_MAX_PROBLEMS] + ([t(MORE_FILES, count=more)] if more > 0 else [])
        raise UserError("; ".join(shown))
    _move(moves)
    return sorted({project.uploads / target.relative_to(project.uploads).parts[0] for _, target in moves})


def store_recordings(project: Project, received: Sequence[str], received_in: Path) -> list[Path]:
    """Move uploaded recordings without texts into the project and return them.

    Args:
        received_in: as for `store_uploads`.

    Raises:
        UserError: as for `store_uploads`; also for a file that is no recording.
    """
    paths = [Path(path) for path in received]
    for path in paths:
        _require_upload(path, received_in)
    problems = [
        t(BAD_RECORDING, name=path.name) if path.suffix.lower() not in AUDIO_SUFFIXES else problem_of(path)
        for path in paths
    ]
    if any(problems):
        for path in paths:
            path.unlink(missing_ok=True)
        raise UserError("; ".join(list(filter(None, problems))[:_MAX_PROBLEMS]))
    moves = [(path, project.recordings / path.name) for path in paths]
    _move(moves)
    return [target for _, target in moves]


def upload_message(
    project: Project,
    received: Sequence[str],
    store: Callable[[Project, Sequence[str], Path], list[Path]],
) -> str:
    """Store uploaded files; return the result as HTML, or the problem with the name of the file.

    Args:
        store: `store_uploads` or `store_recordings`.
    """
    if not received:
        return ""
    try:
        stored = store(project, received, Path(get_upload_folder()))
    except UserError as error:
        text = f"{t('data.nothing_stored')} {error}"
        return f'<ul class="notices" role="alert"><li class="bad">{html.escape(text)}</li></ul>'
    names = ", ".join(path.name for path in stored)
    return f'<p class="is-ready" role="status">{html.escape(t("data.stored", names=names))}</p>'


def problem_of(path: Path) -> str:
    """Return why the import could not use an uploaded file; "" if its content is plausible.

    The import checks the content of an archive, and formats that libsndfile cannot read by their name.
    """
    suffix, size = path.suffix.lower(), path.stat().st_size
    if suffix == ".zip":
        return _problem_of_archive(path)
    if suffix not in AUDIO_SUFFIXES:
        return ""
    if size < _MIN_AUDIO_BYTES:
        return t(AUDIO_EMPTY, name=path.name, bytes=size)
    if suffix not in SNDFILE_SUFFIXES:
        return ""
    if readable_by_libsndfile(path):
        return "" if soundfile.info(path).frames else t(AUDIO_EMPTY, name=path.name, bytes=size)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # often m4a with the name of another format
        decoded = as_readable(path, Path(folder) / "decoded.flac")
    return "" if isinstance(decoded, Path) else t(AUDIO_UNREADABLE, name=path.name, bytes=size)


def store_voice(project: Project, received: str, received_in: Path) -> Path:
    """Move an uploaded recording into the voices folder and return its path.

    Args:
        received_in: as for `store_uploads`.

    Raises:
        UserError: the file was not uploaded, is not a recording, has an unsuitable duration, or cannot be
            written.
    """
    source = Path(received)
    _require_upload(source, received_in)
    if source.suffix.lower() not in AUDIO_SUFFIXES:
        raise UserError(t(NO_RECORDING, name=source.name))
    try:
        duration_s = soundfile.info(source).duration
    except (OSError, soundfile.LibsndfileError):
        raise UserError(t(UNREADABLE, name=source.name)) from None
    require_reference_length(Path(source.name), duration_s)
    target = project.listen / VOICES_NAME / source.name
    _move([(source, target)])
    return target


def remove(project: Project, name: str) -> None:
    """Remove an upload; imported data stay.

    Raises:
        UserError: there is no such upload.
    """
    found = [path for path in project.uploaded() if path.name == name]
    if not found:
        raise UserError(t(NO_UPLOAD, name=name, project=project.root.name))
    if found[0].is_dir():
        shutil.rmtree(found[0])
    else:
        found[0].unlink()


def described(project: Project) -> list[list[str]]:
    """Return name, number of files and size of each upload."""
    rows = []
    for path in project.uploaded():
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        size = sum(file.stat().st_size for file in files)
        rows.append([path.name, str(len(files)), f"{size / 1e6:.1f} MB"])
    return rows


def _problem_of_archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
    # UnicodeDecodeError for a name that is flagged as UTF-8 and is not
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, OSError):
        return t(ZIP_CORRUPT, name=path.name)
    is_usable = any(may_be_read(Path(name)) for name in names)
    return "" if is_usable else t(ZIP_EMPTY, name=path.name)


def _move(moves: Sequence[tuple[Path, Path]]) -> None:
    for source, target in moves:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            aside = target.with_name(f".part-{target.name}")
            shutil.move(source, aside)
            aside.replace(target)
        except OSError as error:
            raise UserError(t(UNWRITABLE, folder=target.parent, problem=error.strerror)) from None


def _require_upload(path: Path, received_in: Path) -> None:
    name = path.name
    if not path.resolve().is_relative_to(received_in.resolve()) or not path.is_file():
        raise UserError(t(NOT_UPLOADED, name=name))
    if name.startswith(".") or len(name) > _MAX_NAME_CHARS or not name.isprintable():
        raise UserError(t(BAD_NAME, name=name))


def _target(project: Project, path: Path, received_in: Path) -> Path:
    _require_upload(path, received_in)
    name = path.name
    if name.lower().endswith(_OWN_SOURCES):
        return project.uploads / name
    if path.suffix.lower() not in AUDIO_SUFFIXES | TEXT_SUFFIXES:
        raise UserError(t(BAD_KIND, name=name))
    return project.uploads / FILES_NAME / name
