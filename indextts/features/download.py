"""Fetching the published files: resumed after a kill, compared with what the hub says of them.

ask the hub for size and digest of each file --> keep what is there and right --> is there room? --> per file:
    from the hub's cache, or from the hub into `.tmp-NAME.ETAG` --> digest --> rename

`hf_hub_download` of huggingface_hub 2.4 deletes what it has when it is interrupted, and compares sizes alone.
So the parts of that library which speak to the hub are used (addresses, login, redirects, cache), and the
file itself is kept here. HF_ENDPOINT, HF_HOME, HF_TOKEN and HF_HUB_OFFLINE are read by the library.
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
    shown_size,
    stamp,
    write_record,
)
from indextts.system.files import link_or_copy, sync
from indextts.system.locks import locked_folder

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 5.0
BLOCK_BYTES = 1 << 20
MOST_TRIES = 5  # in a row, to which nothing came
SECONDS_BETWEEN_TRIES = 1.0
PARTIAL_CONTENT = 206
SHA256_CHARS, GIT_SHA1_CHARS = 64, 40
# What a connection that is not there, or breaks, raises.
NO_CONNECTION = (httpx2.TransportError, httpx2.InvalidURL, OfflineModeIsEnabled)


class HubOutOfReachError(Exception):
    """The hub cannot be asked; the message says why."""


@dataclass(frozen=True)
class DownloadResult:
    """What became of each file: its place, its size in bytes, and whether it was fetched or there."""

    folder: Path
    rows: tuple[tuple[str, int, str], ...]

    def __str__(self) -> str:
        width = max(len(place) for place, _, _ in self.rows)
        return f"{self.folder}:\n" + "\n".join(
            f"  {place:<{width}}  {shown_size(size):>10}  {what}" for place, size, what in self.rows
        )


def download(command: DownloadCheckpoints) -> DownloadResult:
    """Fetch what is missing of the published files, or differs from what the hub has.

    Raises:
        UserError: the hub cannot be reached and something is missing, refuses, or sends something else; the
            disk is full (status 4); another download writes into the folder (status 5).
    """
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line for each request
    logging.getLogger("huggingface_hub").handlers.clear()  # what it says is in our log already
    folder, files = command.output_dir, files_for(command.what)
    in_use = f"--output-dir {folder}: another download writes there; wait for it or stop it"
    with locked_folder(folder / ".downloads.lock", in_use=in_use), _disk_errors(folder):
        try:
            remotes = [_ask(file) for file in files]
        except HubOutOfReachError as error:
            return _without_hub(folder, files, str(error))
        record = read_record(folder)
        states = {}
        for file, remote in zip(files, remotes, strict=True):
            is_right = _is_right(folder / file.place, remote, record.get(file.place))
            states[file] = "there" if is_right else ""
            checked = stamp(folder / file.place) if is_right else None
            record[file.place] = remote.model_copy(update={"checked": checked})
        write_record(folder, record)
        to_fetch = [(file, remote) for file, remote in zip(files, remotes, strict=True) if not states[file]]
        _require_room(folder, to_fetch)
        for file, remote in to_fetch:
            states[file] = _get(folder / file.place, file, remote)
            checked = stamp(folder / file.place)
            record[file.place] = remote.model_copy(update={"checked": checked})
            write_record(folder, record)
    return _result(folder, states)


def _ask(file: PublishedFile) -> Remote:
    """Return what the hub says of a file.

    Raises:
        HubOutOfReachError: it does not answer.
        UserError: it answers that it will not, or not as a hub does.
    """
    url = hf_hub_url(file.repository, file.name)
    with _refusals(file):
        try:
            said = get_hf_file_metadata(url, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        except NO_CONNECTION as error:
            raise HubOutOfReachError(_reason(error)) from None
    if said.commit_hash is None or said.etag is None or said.size is None:
        raise UserError(
            f"{url} does not answer as a hub does, without commit, digest or size; check HF_ENDPOINT and the "
            "proxy"
        )
    return Remote(
        repository=file.repository,
        name=file.name,
        commit=said.commit_hash,
        num_bytes=said.size,
        etag=said.etag,
    )


@contextmanager
def _refusals(file: PublishedFile) -> Iterator[None]:
    """Turn what the hub refuses into a sentence."""
    where = f"{constants.ENDPOINT}: {file.repository}"
    try:
        yield
    except RemoteEntryNotFoundError:
        raise UserError(f"{where} has no file {file.name}; was it renamed? Fetch it by hand") from None
    except RepositoryNotFoundError:  # also what a repository that wants a login answers
        raise UserError(
            f"{where} is not there, or not for you; check HF_ENDPOINT, or log in (HF_TOKEN)"
        ) from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise UserError(f"{where} answers with status {status} for {file.name}; try again later") from None


def _without_hub(folder: Path, files: Sequence[PublishedFile], reason: str) -> DownloadResult:
    """Take what is missing from the hub's cache; a UserError names the rest, and where to put it."""
    states, missing = {}, []
    for file in files:
        path = folder / file.place
        states[file] = "there, not compared with the hub"
        if path.is_file():
            continue
        cached = try_to_load_from_cache(file.repository, file.name)
        if isinstance(cached, str):
            _place_cached(Path(cached), path)
            states[file] = "from the hub's cache, not compared with the hub"
        else:
            missing.append(f"{path} ({file.name} of {file.repository})")
    if missing:
        raise UserError(
            f"{constants.ENDPOINT} is out of reach ({reason}) and {len(missing)} of {len(files)} files are "
            f"missing: {', '.join(missing)}; put them there, or run this again where the hub can be reached"
        )
    return _result(folder, states)


def _is_right(path: Path, remote: Remote, known: Remote | None) -> bool:
    """Return whether the file at `path` is the hub's; one that was compared before is not read again."""
    if not path.is_file() or path.stat().st_size != remote.num_bytes:
        return False
    if known is not None and known.etag == remote.etag and known.checked == stamp(path):
        return True
    logger.info("Comparing %s with what the hub says of it", path)
    return _has_digest(path, remote)


def _has_digest(path: Path, remote: Remote) -> bool:
    """Return whether the bytes at `path` are those of the hub's file, as far as it publishes a digest."""
    if len(remote.etag) == SHA256_CHARS:
        digest = hashlib.sha256()
    elif len(remote.etag) == GIT_SHA1_CHARS:
        digest = hashlib.sha1(f"blob {remote.num_bytes}\0".encode(), usedforsecurity=False)
    else:
        logger.warning("%s: the hub publishes no digest, only its size was compared", path)
        return path.stat().st_size == remote.num_bytes
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest() == remote.etag


def _require_room(folder: Path, to_fetch: Sequence[tuple[PublishedFile, Remote]]) -> None:
    """Raise a UserError unless the disk has room for all that is still to come."""
    needed = 0
    for file, remote in to_fetch:
        partial = partial_path(folder / file.place, remote.etag)
        needed += remote.num_bytes - (partial.stat().st_size if partial.is_file() else 0)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(
            f"{folder}: {len(to_fetch)} files need {shown_size(needed)}, the disk has {shown_size(free)} "
            "left; free some, or choose another --output-dir",
            DISK_FULL,
        )
    if to_fetch:
        logger.info("%d files to fetch, %s", len(to_fetch), shown_size(needed))


def _get(path: Path, file: PublishedFile, remote: Remote) -> str:
    """Put the hub's file at `path`; return where it came from. What was there before is kept as NAME.old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cached = try_to_load_from_cache(file.repository, file.name, revision=remote.commit)
    if isinstance(cached, str) and _has_digest(Path(cached), remote):
        _keep_other(path)
        _place_cached(Path(cached), path)
        return "from the hub's cache"
    partial = partial_path(path, remote.etag)
    for other in path.parent.glob(f".tmp-{path.name}.*"):
        if other != partial:  # of a file that the hub has no longer
            other.unlink()
    with _refusals(file), _disk_errors(path):
        _fetch(partial, file, remote)
        if not _has_digest(partial, remote):
            partial.unlink()
            raise UserError(
                f"{path}: what {constants.ENDPOINT} sent is not the file that it says it is (digest "
                f"{remote.etag}); nothing of it was kept: run the same command again, or use another network"
            )
        sync(partial)
        _keep_other(path)
        partial.replace(path)
    return "fetched"


def _fetch(partial: Path, file: PublishedFile, remote: Remote) -> None:
    """Write the file to `partial`, behind what is there of it; go on as long as anything comes."""
    if partial.is_file() and partial.stat().st_size > remote.num_bytes:
        partial.unlink()
    tries = 0
    with partial.open("ab") as output:
        if output.tell():
            logger.info("%s: going on at %s", file.place, shown_size(output.tell()))
        while (before := output.tell()) < remote.num_bytes:
            try:
                _append(output, file, remote)
                reason = "it ended early"
            except NO_CONNECTION as error:
                reason = _reason(error)
            if output.tell() > before:
                tries = 0
                continue
            tries += 1
            if tries == MOST_TRIES:
                raise UserError(
                    f"{file.place}: the connection to {constants.ENDPOINT} broke ({reason}), "
                    f"{shown_size(before)} of {shown_size(remote.num_bytes)} are here; run the same command "
                    "again to go on"
                )
            time.sleep(SECONDS_BETWEEN_TRIES)


def _append(output: BinaryIO, file: PublishedFile, remote: Remote) -> None:
    """Write what comes of the file in one answer, until it ends or breaks."""
    # identity: a compressed answer could not be resumed
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
    ) as answer:
        hf_raise_for_status(answer)
        if "Range" in headers and answer.status_code != PARTIAL_CONTENT:  # all of it comes once more
            output.seek(0)
            output.truncate()
        for block in answer.iter_bytes():
            output.write(block)
            if time.monotonic() - last_line >= SECONDS_BETWEEN_LINES:
                last_line = time.monotonic()
                done, total = shown_size(output.tell()), shown_size(remote.num_bytes)
                logger.info("%s: %s of %s", file.place, done, total)


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except HfHubHTTPError:  # is an OSError too
        raise
    except OSError as error:
        if error.errno in DISK_FULL_ERRNOS:
            raise UserError(
                f"{path}: the disk is full; free some and run the same command again to go on", DISK_FULL
            ) from None
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


def _keep_other(path: Path) -> None:
    """Rename a file that is not the hub's: it may be somebody's own."""
    if not path.exists():
        return
    number = 1
    while (old := path.with_name(f"{path.name}.old{number}")).exists():
        number += 1
    path.rename(old)
    logger.warning("%s is not the file that the hub has: it is kept as %s", path, old.name)


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
