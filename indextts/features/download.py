"""Download the published files; interrupted downloads resume, and every file is verified.

    metadata of every file from the hub -> skip files that are valid -> check the disk space -> for each file:
        copy from the Hugging Face cache, or download to `.tmp-NAME.ETAG` -> verify the digest -> rename

`hf_hub_download` of huggingface_hub 2.4 deletes a partial file when it is interrupted and verifies only the
size. This module therefore uses that library for URLs, login, redirects and the cache, and writes the files
itself. The library reads HF_ENDPOINT, HF_HOME, HF_TOKEN and HF_HUB_OFFLINE.
"""

import hashlib
import logging
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import httpx2
from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    hf_raise_for_status,
    http_stream_backoff,
)

from indextts.commands.data import DownloadCheckpoints
from indextts.errors import DISK_FULL, DISK_FULL_ERRNOS, UserError
from indextts.features.published_files import (
    PublishedFile,
    Remote,
    files_for,
    partial_path,
    read_record,
    stamp,
    write_record,
)
from indextts.system.amounts import counted, shown_size
from indextts.system.files import link_or_copy, sync
from indextts.system.locks import locked_folder

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LOG_LINES = 5.0
BLOCK_BYTES = 1 << 20
MAX_TRIES = 5  # in a row without any data
SECONDS_BETWEEN_TRIES = 1.0
PARTIAL_CONTENT = 206
SHA256_CHARS, GIT_SHA1_CHARS = 64, 40
# Exceptions of a missing or broken connection.
NO_CONNECTION = (httpx2.TransportError, httpx2.InvalidURL, OfflineModeIsEnabled)


class HubUnreachableError(Exception):
    """The hub does not answer; the message has the reason."""


@dataclass(frozen=True)
class DownloadResult:
    """Place, size in bytes and origin of each file."""

    folder: Path
    rows: tuple[tuple[str, int, str], ...]

    def __str__(self) -> str:
        width = max(len(place) for place, _, _ in self.rows)
        return f"{self.folder}:\n" + "\n".join(
            f"  {place:<{width}}  {shown_size(size):>10}  {origin}" for place, size, origin in self.rows
        )


def download(command: DownloadCheckpoints) -> DownloadResult:
    """Download the published files that are missing or differ from those on the hub.

    Raises:
        UserError: files are missing and the hub is unreachable, refuses, or sends other content; the disk is
            full (status 4); another download writes to the folder (status 5).
    """
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs a line for each request
    logging.getLogger("huggingface_hub").handlers.clear()  # the root logger already has its messages
    folder, files = command.output_dir, files_for(command.what)
    in_use = f"--output-dir {folder}: another download writes to this folder; wait for it or stop it"
    with locked_folder(folder / ".downloads.lock", in_use=in_use), _disk_errors(folder):
        try:
            remotes = [_metadata(file) for file in files]
        except HubUnreachableError as error:
            return _without_hub(folder, files, str(error))
        record = read_record(folder)
        states = {}
        for file, remote in zip(files, remotes, strict=True):
            is_valid = _is_valid(folder / file.place, remote, record.get(file.place))
            states[file] = "present" if is_valid else ""
            checked = stamp(folder / file.place) if is_valid else None
            record[file.place] = remote.model_copy(update={"checked": checked})
        write_record(folder, record)
        to_fetch = [(file, remote) for file, remote in zip(files, remotes, strict=True) if not states[file]]
        _require_disk_space(folder, to_fetch)
        for file, remote in to_fetch:
            states[file] = _get(folder / file.place, file, remote)
            checked = stamp(folder / file.place)
            record[file.place] = remote.model_copy(update={"checked": checked})
            write_record(folder, record)
    return _result(folder, states)


def _metadata(file: PublishedFile) -> Remote:
    """Return the hub's metadata of a file.

    Raises:
        HubUnreachableError: the hub does not answer.
        UserError: the hub refuses, or the answer lacks metadata.
    """
    url = hf_hub_url(file.repository, file.name)
    with _http_errors(file):
        try:
            metadata = get_hf_file_metadata(url, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        except NO_CONNECTION as error:
            raise HubUnreachableError(_reason(error)) from None
    if metadata.commit_hash is None or metadata.etag is None or metadata.size is None:
        raise UserError(f"{url}: the answer lacks commit, digest or size; check HF_ENDPOINT and the proxy")
    return Remote(
        repository=file.repository,
        name=file.name,
        commit=metadata.commit_hash,
        num_bytes=metadata.size,
        etag=metadata.etag,
    )


@contextmanager
def _http_errors(file: PublishedFile) -> Iterator[None]:
    """Turn HTTP errors of the hub into a UserError."""
    where = f"{constants.ENDPOINT}: {file.repository}"
    try:
        yield
    except RemoteEntryNotFoundError:
        raise UserError(
            f"{where}: the repository has no file {file.name}; check whether it was renamed and download it "
            "by hand"
        ) from None
    except RepositoryNotFoundError:  # also the answer of a repository that requires a login
        raise UserError(
            f"{where}: the repository does not exist or requires a login; check HF_ENDPOINT and HF_TOKEN"
        ) from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise UserError(f"{where}: HTTP status {status} for {file.name}; try again later") from None


def _without_hub(folder: Path, files: Sequence[PublishedFile], reason: str) -> DownloadResult:
    """Copy missing files from the Hugging Face cache; raise a UserError that lists the remaining ones."""
    states, missing = {}, []
    for file in files:
        path = folder / file.place
        states[file] = "present, not verified"
        if path.is_file():
            continue
        cached = try_to_load_from_cache(file.repository, file.name)
        if isinstance(cached, str):
            _place_cached(Path(cached), path)
            states[file] = "from the Hugging Face cache, not verified"
        else:
            missing.append(f"{path} ({file.name} of {file.repository})")
    if missing:
        raise UserError(
            f"{constants.ENDPOINT}: unreachable ({reason}), and {len(missing)} of {len(files)} files are "
            f"missing: {', '.join(missing)}; copy them to these paths, or run the same command with a "
            "connection"
        )
    return _result(folder, states)


def _is_valid(path: Path, remote: Remote, known: Remote | None) -> bool:
    """Return whether the file at `path` equals the hub's; a verified file is not read again."""
    if not path.is_file() or path.stat().st_size != remote.num_bytes:
        return False
    if known is not None and known.etag == remote.etag and known.checked == stamp(path):
        return True
    logger.info("Verifying %s", path)
    return _has_digest(path, remote)


def _has_digest(path: Path, remote: Remote) -> bool:
    """Return whether the file at `path` has the digest, or the size if there is no digest, of the hub's."""
    if len(remote.etag) == SHA256_CHARS:
        digest = hashlib.sha256()
    elif len(remote.etag) == GIT_SHA1_CHARS:
        digest = hashlib.sha1(f"blob {remote.num_bytes}\0".encode(), usedforsecurity=False)
    else:
        logger.warning("%s: the hub publishes no digest, so only the size was compared", path)
        return path.stat().st_size == remote.num_bytes
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest() == remote.etag


def _require_disk_space(folder: Path, to_fetch: Sequence[tuple[PublishedFile, Remote]]) -> None:
    """Raise a UserError unless the disk has space for all remaining downloads."""
    needed = 0
    for file, remote in to_fetch:
        partial = partial_path(folder / file.place, remote.etag)
        needed += remote.num_bytes - (partial.stat().st_size if partial.is_file() else 0)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{folder}: {counted(len(to_fetch), 'file')} of {shown_size(needed)} to download, "
            f"{shown_size(free)} free on the disk; free some space, or choose another --output-dir",
            DISK_FULL,
        )
    if to_fetch:
        logger.info("Downloading %s, %s", counted(len(to_fetch), "file"), shown_size(needed))


def _get(path: Path, file: PublishedFile, remote: Remote) -> str:
    """Put the hub's file at `path` and return its origin; an earlier file is renamed to NAME.old1."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cached = try_to_load_from_cache(file.repository, file.name, revision=remote.commit)
    if isinstance(cached, str) and _has_digest(Path(cached), remote):
        _rename_existing(path)
        _place_cached(Path(cached), path)
        return "from the Hugging Face cache"
    partial = partial_path(path, remote.etag)
    for other in path.parent.glob(f".tmp-{path.name}.*"):
        if other != partial:  # of an older version of the file
            other.unlink()
    with _http_errors(file), _disk_errors(path):
        _fetch(partial, file, remote)
        if not _has_digest(partial, remote):
            partial.unlink()
            raise UserError(
                f"{path}: the download from {constants.ENDPOINT} does not have the published digest "
                f"{remote.etag} and was deleted; run the same command again, or use another network"
            )
        sync(partial)
        _rename_existing(path)
        partial.replace(path)
    return "downloaded"


def _fetch(partial: Path, file: PublishedFile, remote: Remote) -> None:
    """Append the rest of the file to `partial`; reconnect while data still arrives."""
    if partial.is_file() and partial.stat().st_size > remote.num_bytes:
        partial.unlink()
    tries = 0
    with partial.open("ab") as output:
        if output.tell():
            logger.info("%s: resuming at %s", file.place, shown_size(output.tell()))
        while (before := output.tell()) < remote.num_bytes:
            try:
                _append(output, file, remote)
                reason = "the transfer ended early"
            except NO_CONNECTION as error:
                reason = _reason(error)
            if output.tell() > before:
                tries = 0
                continue
            tries += 1
            if tries == MAX_TRIES:
                raise UserError(
                    f"{file.place}: the connection to {constants.ENDPOINT} broke ({reason}) after "
                    f"{shown_size(before)} of {shown_size(remote.num_bytes)}; run the same command again to "
                    "resume"
                )
            time.sleep(SECONDS_BETWEEN_TRIES)


def _append(output: BinaryIO, file: PublishedFile, remote: Remote) -> None:
    """Append the data of one HTTP response, until it ends or breaks."""
    # identity: a compressed response could not be resumed.
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if output.tell():
        headers["Range"] = f"bytes={output.tell()}-"
    last_line = time.monotonic()
    with http_stream_backoff(
        "GET",
        hf_hub_url(file.repository, file.name, revision=remote.commit),
        headers=headers,
        timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
        retry_on_exceptions=(),
    ) as response:
        hf_raise_for_status(response)
        if "Range" in headers and response.status_code != PARTIAL_CONTENT:  # the server sends the entire file
            output.seek(0)
            output.truncate()
        for block in response.iter_bytes():
            output.write(block)
            if time.monotonic() - last_line >= SECONDS_BETWEEN_LOG_LINES:
                last_line = time.monotonic()
                done, total = shown_size(output.tell()), shown_size(remote.num_bytes)
                logger.info("%s: %s of %s", file.place, done, total)


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except HfHubHTTPError:  # a subclass of OSError
        raise
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:
            raise UserError(
                f"{path}: the disk is full; free some space and run the same command again to resume",
                DISK_FULL,
            ) from None
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


def _rename_existing(path: Path) -> None:
    """Rename a file that differs from the hub's: it may belong to the user."""
    if not path.exists():
        return
    number = 1
    while (old := path.with_name(f"{path.name}.old{number}")).exists():
        number += 1
    path.rename(old)
    logger.warning("%s differs from the file on the hub; renamed it to %s", path, old.name)


def _place_cached(cached: Path, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _disk_errors(path):
        link_or_copy(cached, path)


def _result(folder: Path, states: dict[PublishedFile, str]) -> DownloadResult:
    rows = [(file.place, (folder / file.place).stat().st_size, state) for file, state in states.items()]
    return DownloadResult(folder, tuple(rows))


def _reason(error: BaseException) -> str:
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    return " ".join(str(error).split()) or type(error).__name__
