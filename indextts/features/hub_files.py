"""Files of the Hugging Face hub: resumable, verified downloads of models and data sets into a folder.

    list the files of a repository at one commit -> for each file: skip it if it is valid -> copy it from the
        Hugging Face cache, or append the rest to `.tmp-NAME.ETAG` -> verify the digest -> rename

huggingface_hub does the requests, the login, the retries and the cache; it reads HF_ENDPOINT, HF_HOME,
HF_TOKEN and HF_HUB_OFFLINE. Its `hf_hub_download` (2.4) writes to a new temporary file in each process, so a
killed download of 3 GB would begin again: this module gives its `http_get` the partial file instead.
"""

import glob
import hashlib
import logging
import re
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
from huggingface_hub import HfApi, constants, get_token, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.file_download import http_get
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from indextts.errors import UserError, disk_errors
from indextts.features.published_files import Remote, RepoType, partial_path, read_record, stamp, write_record
from indextts.system.amounts import counted, shown_size
from indextts.system.disk import locked_folder, require_space
from indextts.system.files import first_free, link_or_copy, sync

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LOG_LINES = 5.0
SECONDS_BETWEEN_RECORDS = 2.0
SHA256_CHARS, GIT_SHA1_CHARS = 64, 40
# When a connection breaks, `http_get` loses what has arrived of a chunk, which is 10 MB by default.
constants.DOWNLOAD_CHUNK_SIZE = 1 << 16
_UNSAFE = re.compile(r"^/|(^|/)\.\.(/|$)|[\\\x00-\x1f]")


class HubUnreachableError(UserError):
    """The hub does not answer; `reason` says why."""

    def __init__(self, repository: str, reason: str) -> None:
        super().__init__(
            f"{constants.ENDPOINT}: {repository}: no answer ({reason}); the same command resumes"
        )
        self.reason = reason


def quiet_libraries() -> None:
    """Silence the log lines of the hub's library that repeat those of this module."""
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs a line for each request
    logging.getLogger("huggingface_hub").handlers.clear()  # the root logger already has its messages


@contextmanager
def downloads_to(folder: Path) -> Iterator[None]:
    """Lock a folder for a download, and turn errors of its disk into a UserError.

    Raises:
        UserError: another download writes to the folder (status 5), or the disk is full (status 4).
    """
    quiet_libraries()
    in_use = f"{folder}: another download writes to this folder; wait for it or stop it"
    with locked_folder(folder / ".downloads.lock", in_use=in_use), disk_errors(folder):
        yield


@contextmanager
def hub_errors(
    repository: str, repo_type: RepoType = "model", access: Literal["read", "write"] = "read"
) -> Iterator[None]:
    """Turn errors of the hub's library into a UserError with what to do.

    Raises:
        HubUnreachableError: there is no connection, or it broke.
        UserError: the hub refuses.
    """
    where = f"{constants.ENDPOINT}: {repository}"
    try:
        yield
    except HFValidationError as error:
        raise UserError(f"{repository}: {error}; write the repository as OWNER/NAME") from None
    except OfflineModeIsEnabled:
        raise HubUnreachableError(repository, "HF_HUB_OFFLINE is set") from None
    except (httpx2.TransportError, httpx2.InvalidURL, LocalEntryNotFoundError) as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise HubUnreachableError(repository, reason or type(error).__name__) from None
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
            401: "the token is invalid; log in again with `hf auth login` or correct HF_TOKEN",
            403: f"the token has no access; give one with {access} access to `hf auth login` or HF_TOKEN",
            429: "too many requests; wait some minutes; a login with `hf auth login` raises the limit",
        }.get(status, "try again later; the same command resumes")
        raise UserError(f"{where}: HTTP status {status} for {error.response.url.path}; {action}") from None


def list_files(repository: str, repo_type: RepoType = "model", revision: str = "main") -> dict[str, Remote]:
    """Return the files of a repository at the commit of a revision, by name.

    Raises:
        RevisionNotFoundError: the repository has no such revision.
        HubUnreachableError: the hub does not answer.
        UserError: the hub refuses, or another server answers.
    """
    api = HfApi()
    try:
        info = api.repo_info(
            repository, revision=revision, repo_type=repo_type, timeout=constants.HF_HUB_ETAG_TIMEOUT
        )
        assert info.sha is not None
        tree = api.list_repo_tree(repository, recursive=True, revision=info.sha, repo_type=repo_type)
        files = {
            entry.path: Remote(
                repository=repository,
                repo_type=repo_type,
                name=entry.path,
                commit=info.sha,
                num_bytes=entry.size,
                etag=entry.lfs.sha256 if entry.lfs else entry.blob_id,
            )
            for entry in tree
            if isinstance(entry, RepoFile)
        }
    except HFValidationError:
        raise
    except (ValueError, KeyError, TypeError):  # from the library, for the page of a proxy
        raise UserError(
            f"{constants.ENDPOINT}: the answer does not come from a hub; check HF_ENDPOINT and the proxy"
        ) from None
    for name in filter(_UNSAFE.search, files):
        raise UserError(
            f"{constants.ENDPOINT}: {repository}: the file name {name!r} points outside the folder; do not "
            "use this repository"
        )
    return files


def download_files(
    folder: Path, remotes: Mapping[str, Remote], *, is_limited: bool = False
) -> Generator[tuple[str, str], None, None]:
    """Download the files that are missing or differ, in order; yield the place and origin of each.

    The record of the folder has all files from the start, and is kept up to date. A file counts as present in
    the folder when it is yielded. A file that differs from the hub's is renamed to NAME.old1.

    Args:
        remotes: the hub's files by their places in `folder`.
        is_limited: the caller may stop before the last file, so the disk need not have space for all.

    Raises:
        UserError: the hub refuses or sends other content, the connection breaks, or the disk is full.
    """
    record = read_record(folder)
    missing = {}
    for place, remote in remotes.items():
        path = folder / place
        is_there = is_valid(path, remote, record.get(place))
        record[place] = remote.model_copy(update={"checked": stamp(path) if is_there else None})
        if not is_there:
            missing[place] = remote
    write_record(folder, record)
    if missing and not is_limited:
        _require_disk_space(folder, missing)
    written = time.monotonic()
    try:
        for place, remote in remotes.items():
            origin = "present"
            if place in missing:
                origin = _get(folder / place, place, remote)
                record[place] = remote.model_copy(update={"checked": stamp(folder / place)})
            if time.monotonic() - written > SECONDS_BETWEEN_RECORDS:  # not for each of 10,000 small files
                write_record(folder, record)
                written = time.monotonic()
            yield place, origin
    finally:
        write_record(folder, record)


def remove_outdated(folder: Path, files: Mapping[str, Remote]) -> None:
    """Remove downloads that a repository no longer has in this form, and their partial files."""
    record = read_record(folder)
    kept = {name: known for name, known in record.items() if name in files and files[name].etag == known.etag}
    for name in record.keys() - kept:
        if _is_unchanged(folder / name, record[name]):
            (folder / name).unlink()
            logger.info("%s: removed, the repository no longer has this version of it", folder / name)
    if len(kept) < len(record):
        write_record(folder, kept)
    partials = {partial_path(folder / name, remote.etag) for name, remote in files.items()}
    for partial in folder.rglob(".tmp-*"):
        if partial not in partials:
            partial.unlink()


def is_valid(path: Path, remote: Remote, known: Remote | None) -> bool:
    """Return whether the file at `path` equals the hub's; a verified file is not read again."""
    if not path.is_file() or path.stat().st_size != remote.num_bytes:
        return False
    if known is not None and known.etag == remote.etag and _is_unchanged(path, known):
        return True
    logger.info("Verifying %s", path)
    return _has_digest(path, remote)


def _is_unchanged(path: Path, known: Remote) -> bool:
    """Return whether the file at `path` is the one that was verified."""
    return path.is_file() and known.checked == stamp(path)


def _has_digest(path: Path, remote: Remote) -> bool:
    """Return whether the file at `path` has the digest, or the size if there is no digest, of the hub's."""
    digests: dict[int, Any] = {
        SHA256_CHARS: hashlib.sha256,
        GIT_SHA1_CHARS: lambda: hashlib.sha1(f"blob {remote.num_bytes}\0".encode(), usedforsecurity=False),
    }
    if len(remote.etag) not in digests:
        logger.warning("%s: the hub publishes no digest, so only the size was compared", path)
        return path.stat().st_size == remote.num_bytes
    with path.open("rb") as file:
        return hashlib.file_digest(file, digests[len(remote.etag)]).hexdigest() == remote.etag


def _require_disk_space(folder: Path, to_fetch: Mapping[str, Remote]) -> None:
    """Raise a UserError unless the disk has space for all remaining downloads."""
    needed = 0
    for place, remote in to_fetch.items():
        partial = partial_path(folder / place, remote.etag)
        needed += remote.num_bytes - (partial.stat().st_size if partial.is_file() else 0)
    files = counted(len(to_fetch), "file")
    require_space(folder, folder, f"{files} to download need", needed)
    logger.info("Downloading %s, %s", files, shown_size(needed))


def _get(path: Path, place: str, remote: Remote) -> str:
    """Put the hub's file at `path` and return its origin."""
    with disk_errors(path), hub_errors(remote.repository, remote.repo_type):
        path.parent.mkdir(parents=True, exist_ok=True)
        cached = try_to_load_from_cache(
            remote.repository, remote.name, revision=remote.commit, repo_type=remote.repo_type
        )
        if isinstance(cached, str) and _has_digest(Path(cached), remote):
            _rename_existing(path)
            link_or_copy(Path(cached), path)
            return "from the Hugging Face cache"
        partial = partial_path(path, remote.etag)
        for other in path.parent.glob(f".tmp-{glob.escape(path.name)}.*"):
            if other != partial:  # of an older version of the file
                other.unlink()
        _fetch(partial, place, remote)
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


def _fetch(partial: Path, place: str, remote: Remote) -> None:
    """Append the rest of the file to `partial`; the library reconnects while data still arrives."""
    url = hf_hub_url(remote.repository, remote.name, revision=remote.commit, repo_type=remote.repo_type)
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}  # a compressed response has other sizes
    with partial.open("ab") as output:
        while (before := output.tell()) < remote.num_bytes:
            try:
                http_get(
                    url,
                    output,
                    resume_size=before,
                    headers=headers,
                    displayed_filename=place,
                    tqdm_class=_LogLines,  # has what http_get calls
                )
            except httpx2.NetworkError:  # the only errors of a connection after which http_get does not try
                if output.tell() == before:
                    raise


class _LogLines:
    """Progress of a transfer as a log line every few seconds, in place of the library's bar."""

    def __init__(self, *, desc: str, total: int | None, initial: int, **_: object) -> None:
        self._place, self._total, self._done = desc, total or 0, initial
        self._last_line = time.monotonic()
        if initial:
            logger.info("%s: resuming at %s", desc, shown_size(initial))

    def update(self, num_bytes: int) -> None:
        self._done += num_bytes
        if time.monotonic() - self._last_line >= SECONDS_BETWEEN_LOG_LINES:
            self._last_line = time.monotonic()
            logger.info("%s: %s of %s", self._place, shown_size(self._done), shown_size(self._total))

    def __enter__(self) -> "_LogLines":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _rename_existing(path: Path) -> None:
    """Rename a file that differs from the hub's: it may belong to the user."""
    if not path.exists():
        return
    old = first_free(lambda number: path.with_name(f"{path.name}.old{number}"))
    path.rename(old)
    logger.warning("%s differs from the file on the hub; renamed it to %s", path, old.name)
