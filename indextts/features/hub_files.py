"""Files of the Hugging Face hub: resumable, verified downloads of models and data sets into a folder.

    for each file: skip it if it is valid -> copy it from the Hugging Face cache, or download it to
        `.tmp-NAME.ETAG` -> verify the digest -> rename

`hf_hub_download` of huggingface_hub 2.4 deletes a partial file when it is interrupted and verifies only the
size. This module therefore uses that library for URLs, login, redirects and the cache, and writes the files
itself. The library reads HF_ENDPOINT, HF_HOME, HF_TOKEN and HF_HUB_OFFLINE.
"""

import glob
import hashlib
import logging
import re
import shutil
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import httpx2
from huggingface_hub import HfApi, constants, get_token, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    hf_raise_for_status,
    http_stream_backoff,
)

from indextts.errors import DISK_FULL, DISK_FULL_ERRNOS, UserError
from indextts.features.published_files import (
    Remote,
    RepoType,
    partial_path,
    read_record,
    stamp,
    write_record,
)
from indextts.system.amounts import counted, shown_size
from indextts.system.files import link_or_copy, sync

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LOG_LINES = 5.0
SECONDS_BETWEEN_RECORDS = 2.0
BLOCK_BYTES = 1 << 20
MAX_TRIES = 5  # in a row without any data
SECONDS_BETWEEN_TRIES = 1.0
PARTIAL_CONTENT = 206
UNAUTHORIZED, FORBIDDEN, TOO_MANY_REQUESTS = 401, 403, 429
SHA256_CHARS, GIT_SHA1_CHARS = 64, 40
_UNSAFE = re.compile(r"^/|(^|/)\.\.(/|$)|[\\\x00-\x1f]")
# Exceptions of a missing or broken connection.
NO_CONNECTION = (httpx2.TransportError, httpx2.InvalidURL, OfflineModeIsEnabled)


class HubUnreachableError(Exception):
    """The hub does not answer; the message has the reason."""


def quiet_libraries() -> None:
    """Silence the log lines of the hub's library that repeat those of this module."""
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs a line for each request
    logging.getLogger("huggingface_hub").handlers.clear()  # the root logger already has its messages


def download_files(
    folder: Path, remotes: Mapping[str, Remote], *, is_ours: bool = False
) -> Generator[tuple[str, str], None, None]:
    """Download the files that are missing or differ, in order; yield the place and origin of each.

    The record of the folder is kept up to date. A file counts as present in the folder when it is yielded.

    Args:
        remotes: the hub's files by their places in `folder`.
        is_ours: earlier downloads are replaced; by default they are renamed to NAME.old1, as are files
            that somebody else wrote.

    Raises:
        UserError: the hub refuses or sends other content, the connection breaks, or the disk is full.
    """
    record = read_record(folder)
    written = time.monotonic()
    try:
        for place, remote in remotes.items():
            path = folder / place
            known = record.get(place)
            if is_valid(path, remote, known):
                origin = "present"
            else:
                is_replaced = is_ours and known is not None and _is_unchanged(path, known)
                origin = get(path, place, remote, is_replaced=is_replaced)
            record[place] = remote.model_copy(update={"checked": stamp(path)})
            if time.monotonic() - written > SECONDS_BETWEEN_RECORDS:  # not for each of 10,000 small files
                write_record(folder, record)
                written = time.monotonic()
            yield place, origin
    finally:
        write_record(folder, record)


@contextmanager
def hub_errors(repository: str, repo_type: RepoType, name: str = "") -> Iterator[None]:
    """Turn HTTP errors of the hub into a UserError with what to do.

    Args:
        name: the file that is asked for; "" for the repository itself.
    """
    where = f"{constants.ENDPOINT}: {repository}"
    of_file = f" for {name}" if name else ""
    try:
        yield
    except HFValidationError as error:
        raise UserError(f"{repository}: {error}; write the repository as OWNER/NAME") from None
    except RemoteEntryNotFoundError:
        raise UserError(
            f"{where}: the repository has no file {name}; check whether it was renamed and download it "
            "by hand"
        ) from None
    except GatedRepoError:
        kind = "datasets/" if repo_type == "dataset" else ""
        login = "" if get_token() else ", log in with `hf auth login` or set HF_TOKEN"
        token = "; the token in use (hf auth whoami, HF_TOKEN) has no access yet" if get_token() else ""
        raise UserError(
            f"{where}: gated{token}; open {constants.ENDPOINT}/{kind}{repository} in a browser, log in and "
            f"accept its terms{login}, and run the same command again"
        ) from None
    except RepositoryNotFoundError:  # also the answer for a private repository
        raise UserError(
            f"{where}: does not exist or is private; check the name and HF_ENDPOINT; for a private one log "
            "in with `hf auth login` or set HF_TOKEN"
        ) from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        action = {
            UNAUTHORIZED: "the token is invalid; log in again with `hf auth login` or correct HF_TOKEN",
            FORBIDDEN: "the token may not read it; give a token with read access to `hf auth login` or "
            "HF_TOKEN",
            TOO_MANY_REQUESTS: "too many requests; wait some minutes and run the same command again to "
            "resume; a login with `hf auth login` raises the limit",
        }.get(status, "try again later; the same command resumes")
        raise UserError(f"{where}: HTTP status {status}{of_file}; {action}") from None


@contextmanager
def asked_hub(repository: str, repo_type: RepoType) -> Iterator[None]:
    """Turn errors of a question to the hub's interface into HubUnreachableError and UserError."""
    try:
        with hub_errors(repository, repo_type):
            yield
    except NO_CONNECTION as error:
        raise HubUnreachableError(reason_of(error)) from None
    except (ValueError, KeyError, TypeError):  # from the library, for the page of a proxy
        raise UserError(
            f"{constants.ENDPOINT}: the answer is not that of a hub; check HF_ENDPOINT and the proxy"
        ) from None


def list_files(
    api: HfApi, repository: str, repo_type: RepoType, revision: str
) -> tuple[str, dict[str, tuple[int, str]]]:
    """Return the commit of a revision, and size and digest of its files by name; call it in `asked_hub`."""
    info = api.repo_info(
        repository, revision=revision, repo_type=repo_type, timeout=constants.HF_HUB_ETAG_TIMEOUT
    )
    assert info.sha is not None
    files = {}
    for entry in api.list_repo_tree(repository, recursive=True, revision=info.sha, repo_type=repo_type):
        if isinstance(entry, RepoFile):
            if _UNSAFE.search(entry.path):
                raise UserError(
                    f"{constants.ENDPOINT}: {repository}: the file name {entry.path!r} points outside the "
                    "folder; do not use this repository"
                )
            files[entry.path] = (entry.size, entry.lfs.sha256 if entry.lfs else entry.blob_id)
    return info.sha, files


def is_valid(path: Path, remote: Remote, known: Remote | None) -> bool:
    """Return whether the file at `path` equals the hub's; a verified file is not read again."""
    if not path.is_file() or path.stat().st_size != remote.num_bytes:
        return False
    if known is not None and known.etag == remote.etag and _is_unchanged(path, known):
        return True
    logger.info("Verifying %s", path)
    return has_digest(path, remote)


def _is_unchanged(path: Path, known: Remote) -> bool:
    """Return whether the file at `path` is the one that was verified."""
    return path.is_file() and known.checked == stamp(path)


def has_digest(path: Path, remote: Remote) -> bool:
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


def require_disk_space(folder: Path, to_fetch: Mapping[str, Remote]) -> None:
    """Raise a UserError unless the disk has space for all remaining downloads.

    Args:
        to_fetch: the hub's files by their places in `folder`.
    """
    needed = 0
    for place, remote in to_fetch.items():
        partial = partial_path(folder / place, remote.etag)
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


def get(path: Path, place: str, remote: Remote, *, is_replaced: bool = False) -> str:
    """Put the hub's file at `path` and return its origin.

    Args:
        place: the name of the file in messages.
        is_replaced: an earlier file is replaced; by default it is renamed to NAME.old1.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    cached = try_to_load_from_cache(
        remote.repository, remote.name, revision=remote.commit, repo_type=remote.repo_type
    )
    if isinstance(cached, str) and has_digest(Path(cached), remote):
        if not is_replaced:
            _rename_existing(path)
        place_cached(Path(cached), path)
        return "from the Hugging Face cache"
    partial = partial_path(path, remote.etag)
    for other in path.parent.glob(f".tmp-{glob.escape(path.name)}.*"):
        if other != partial:  # of an older version of the file
            other.unlink()
    with hub_errors(remote.repository, remote.repo_type, remote.name), disk_errors(path):
        _fetch(partial, place, remote)
        if not has_digest(partial, remote):
            partial.unlink()
            raise UserError(
                f"{path}: the download from {constants.ENDPOINT} does not have the published digest "
                f"{remote.etag} and was deleted; run the same command again, or use another network"
            )
        sync(partial)
        if not is_replaced:
            _rename_existing(path)
        partial.replace(path)
    return "downloaded"


def _fetch(partial: Path, place: str, remote: Remote) -> None:
    """Append the rest of the file to `partial`; reconnect while data still arrives."""
    if partial.is_file() and partial.stat().st_size > remote.num_bytes:
        partial.unlink()
    tries = 0
    with partial.open("ab") as output:
        if output.tell():
            logger.info("%s: resuming at %s", place, shown_size(output.tell()))
        while (before := output.tell()) < remote.num_bytes:
            try:
                _append(output, place, remote)
                reason = "the transfer ended early"
            except NO_CONNECTION as error:
                reason = reason_of(error)
            if output.tell() > before:
                tries = 0
                continue
            tries += 1
            if tries == MAX_TRIES:
                raise UserError(
                    f"{place}: the connection to {constants.ENDPOINT} broke ({reason}) after "
                    f"{shown_size(before)} of {shown_size(remote.num_bytes)}; run the same command again to "
                    "resume"
                )
            time.sleep(SECONDS_BETWEEN_TRIES)


def _append(output: BinaryIO, place: str, remote: Remote) -> None:
    """Append the data of one HTTP response, until it ends or breaks."""
    # identity: a compressed response could not be resumed.
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if output.tell():
        headers["Range"] = f"bytes={output.tell()}-"
    last_line = time.monotonic()
    with http_stream_backoff(
        "GET",
        hf_hub_url(remote.repository, remote.name, revision=remote.commit, repo_type=remote.repo_type),
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
                logger.info("%s: %s of %s", place, done, total)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn errors of the disk into a UserError."""
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


def place_cached(cached: Path, path: Path) -> None:
    """Put a file of the Hugging Face cache at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with disk_errors(path):
        link_or_copy(cached, path)


def reason_of(error: BaseException) -> str:
    """Return the reason of an exception of NO_CONNECTION."""
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set"
    return " ".join(str(error).split()) or type(error).__name__
