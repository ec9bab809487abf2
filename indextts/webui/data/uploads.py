"""Uploads: files from a browser, stored in the project as sources of the import. No Gradio here.

    NAME/uploads/
      talks.zip        an archive or a parquet file, a source of its own; the import checks and unpacks it
      files/           single recordings and texts in one folder, so that texts match earlier recordings

    NAME/recordings/     recordings without texts, for the transcription
    NAME/listen/voices/  voice recordings
    NAME/listen/adapters/  adapters

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
from indextts.data.importing.items import (
    AUDIO_SUFFIXES,
    PARQUET_SUFFIX,
    SNDFILE_SUFFIXES,
    TEXT_SUFFIXES,
    may_be_read,
)
from indextts.errors import UserError
from indextts.features.audio import require_reference_length
from indextts.features.decoding import Readable, as_readable, readable_by_libsndfile
from indextts.projects.project import Project
from indextts.webui.language import t
from indextts.webui.markup import table_html

FILES_NAME = "files"
VOICES_NAME = "voices"
ADAPTERS_NAME = "adapters"


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
    _refuse_all([source for source, _ in moves], problem_of)
    _move(moves)
    return sorted({project.uploads / target.relative_to(project.uploads).parts[0] for _, target in moves})


def store_recordings(project: Project, received: Sequence[str], received_in: Path) -> list[Path]:
    """Move uploaded recordings into the project and return them; errors as for `store_uploads`."""
    paths = [Path(path) for path in received]
    for path in paths:
        _require_upload(path, received_in)
    _refuse_all(paths, _problem_of_recording)
    moves = [(path, project.recordings / path.name) for path in paths]
    _move(moves)
    return [target for _, target in moves]


def _refuse_all(paths: Sequence[Path], problem_of_path: Callable[[Path], str]) -> None:
    """Remove all files and name the problems if a file has one."""
    problems = list(filter(None, map(problem_of_path, paths)))
    if not problems:
        return
    for path in paths:
        path.unlink(missing_ok=True)
    more = len(problems) - _MAX_PROBLEMS
    raise UserError(
        "; ".join(problems[:_MAX_PROBLEMS] + ([t("data.more_files", count=more)] if more > 0 else []))
    )


def _problem_of_recording(path: Path) -> str:
    is_audio = path.suffix.lower() in AUDIO_SUFFIXES
    return problem_of(path) if is_audio else t("data.bad_recording", name=path.name)


def upload_message(
    project: Project, received: Sequence[str], store: Callable[[Project, Sequence[str], Path], list[Path]]
) -> str:
    """Store uploads by `store_uploads` or `store_recordings`; return the result or the problem as HTML."""
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
    """Return why an uploaded file is unusable, "" if plausible; the import checks the content of archives."""
    suffix, size = path.suffix.lower(), path.stat().st_size
    if suffix == ".zip":
        return _problem_of_archive(path)
    if suffix not in AUDIO_SUFFIXES:
        return ""
    if size < _MIN_AUDIO_BYTES:
        return t("data.audio_empty", name=path.name, bytes=size)
    if suffix not in SNDFILE_SUFFIXES:
        return ""
    if readable_by_libsndfile(path):
        return "" if soundfile.info(path).frames else t("data.audio_empty", name=path.name, bytes=size)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:  # often m4a with the name of another format
        decoded = as_readable(path, Path(folder) / "decoded.flac", "mean")
    return "" if isinstance(decoded, Readable) else t("data.audio_unreadable", name=path.name, bytes=size)


def store_voice(project: Project, received: str, received_in: Path) -> Path:
    """Move an uploaded recording into the voices folder; a UserError if it has no suitable duration."""
    source = Path(received)
    _require_upload(source, received_in)
    if source.suffix.lower() not in AUDIO_SUFFIXES:
        raise UserError(t("data.no_recording", name=source.name))
    try:
        duration_s = soundfile.info(source).duration
    except (OSError, soundfile.LibsndfileError):
        raise UserError(t("data.upload_unreadable", name=source.name)) from None
    require_reference_length(Path(source.name), duration_s)
    target = project.listen / VOICES_NAME / source.name
    _move([(source, target)])
    return target


def store_adapter(
    project: Project, received: str, received_in: Path, check: Callable[[Path], object]
) -> Path:
    """Move an uploaded adapter into its folder; `check` raises a UserError for another file."""
    source = Path(received)
    _require_upload(source, received_in)
    check(source)
    target = project.listen / ADAPTERS_NAME / source.name
    _move([(source, target)])
    return target


def remove(project: Project, name: str) -> None:
    """Remove an upload; imported data stay; a UserError if there is no such upload."""
    found = [path for path in project.uploaded() if path.name == name]
    if not found:
        raise UserError(t("data.no_upload", name=name, project=project.root.name))
    if found[0].is_dir():
        shutil.rmtree(found[0])
    else:
        found[0].unlink()


def uploads_html(project: Project) -> str:
    """Return name, number of files and size of each upload as a table; "" without any."""
    heads = [(t("data.upload"), ""), (t("data.files"), "number"), (t("data.size"), "number")]
    rows = []
    for path in project.uploaded():
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        size = sum(file.stat().st_size for file in files)
        rows.append([html.escape(path.name), str(len(files)), f"{size / 1e6:.1f} MB"])
    return table_html(heads, rows) if rows else ""


def _problem_of_archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as file:
            names = file.namelist()
    # UnicodeDecodeError for a name that is flagged as UTF-8 and is not
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, OSError):
        return t("data.zip_corrupt", name=path.name)
    is_usable = any(may_be_read(Path(name)) for name in names)
    return "" if is_usable else t("data.zip_empty", name=path.name)


def _move(moves: Sequence[tuple[Path, Path]]) -> None:
    for source, target in moves:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            aside = target.with_name(f".part-{target.name}")
            shutil.move(source, aside)
            aside.replace(target)
        except OSError as error:
            raise UserError(t("data.unwritable", folder=target.parent, problem=error.strerror)) from None


def _require_upload(path: Path, received_in: Path) -> None:
    name = path.name
    if not path.resolve().is_relative_to(received_in.resolve()) or not path.is_file():
        raise UserError(t("data.not_uploaded", name=name))
    if name.startswith(".") or len(name) > _MAX_NAME_CHARS or not name.isprintable():
        raise UserError(t("data.bad_name", name=name))


def _target(project: Project, path: Path, received_in: Path) -> Path:
    _require_upload(path, received_in)
    name = path.name
    if name.lower().endswith(_OWN_SOURCES):
        return project.uploads / name
    if path.suffix.lower() not in AUDIO_SUFFIXES | TEXT_SUFFIXES:
        raise UserError(t("data.bad_kind", name=name))
    return project.uploads / FILES_NAME / name
