"""Download the published files; interrupted downloads resume, and every file is verified.

    metadata of every file from the hub -> skip files that are valid -> check the disk space -> download

In the folder of an official installation, files of its hf_cache/ are linked to their places. Files that
several base models need are linked from the folder of another base beside it. Without the hub, missing files
are linked from there or copied from the Hugging Face cache.
"""

import logging
from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import constants, try_to_load_from_cache

from indextts.commands.bases import BASES, PublishedFile, base_in
from indextts.commands.data import DownloadCheckpoints, PublishedSet
from indextts.errors import UserError
from indextts.features.hub_files import (
    HubUnreachableError,
    download_files,
    downloads_to,
    hub_errors,
    list_files,
)
from indextts.features.published_files import PAGE_FOLDER, Remote, files_for, files_of
from indextts.system.amounts import shown_size
from indextts.system.digest import file_sha256
from indextts.system.files import link_or_copy

logger = logging.getLogger(__name__)


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
    base = BASES[command.base]
    folder, files = command.output_dir, files_for(command.what, base)
    found = base_in(folder)
    if found != base and (folder / found.tokenizer_file).is_file():
        raise UserError(
            f"--output-dir {folder}: contains files of {found.title}, some with the same names as files of "
            f"{base.title}; choose another folder, or pass --base {found.name}"
        )
    with downloads_to(folder):
        try:
            remotes = _remotes(files, command.what)
        except HubUnreachableError as error:
            return _without_hub(folder, files, error.reason)
        for file in files:
            _link_copy(folder, file, remotes[file.place].num_bytes)
        origins = dict(download_files(folder, remotes))
        for file in files:
            path = folder / file.place
            # The hub has other digests of small files.
            is_known = file.sha256 in ("", remotes[file.place].etag)
            if not is_known and file_sha256(path) != file.sha256:
                logger.warning("%s: not the revision that this program knows", path)
    return _result(folder, origins)


def _remotes(files: Sequence[PublishedFile], what: PublishedSet) -> dict[str, Remote]:
    """Return the published files by their places; for "all" also those of the official page alone."""
    listings = {}
    for repository in dict.fromkeys(file.repository for file in files):
        with hub_errors(repository):
            listings[repository] = list_files(repository)
    for file in files:
        if file.name not in listings[file.repository]:
            raise UserError(
                f"{constants.ENDPOINT}: {file.repository}: the repository has no file {file.name}; check "
                "whether it was renamed and download it by hand"
            )
    found = {file.place: listings[file.repository][file.name] for file in files}
    for name, remote in ChainMap(*listings.values()).items():
        if what == "all" and name.startswith(f"{PAGE_FOLDER}/"):
            found[name] = remote
    return found


def _link_copy(folder: Path, file: PublishedFile, num_bytes: int | None = None) -> None:
    """Link a missing file from an official installation, or from another base, if one has it.

    Args:
        num_bytes: the size that it must have; None without the hub.
    """
    path = folder / file.place
    if path.exists():
        return
    for source in _copies(folder, file):
        if num_bytes not in (None, source.stat().st_size):
            logger.warning("%s: not the file that is published now; downloading %s", source, file.place)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(source, path)
        logger.info("%s: linked from %s", file.place, source)
        return


def _copies(folder: Path, file: PublishedFile) -> list[Path]:
    """Return the other places where a file exists."""
    places = [folder / file.official] if file.official else []
    for base in BASES.values():
        other = folder.parent / base.folder
        if other != folder and any(
            (same.repository, same.name) == (file.repository, file.name) for same in files_of(base)
        ):
            places.append(other / file.place)
    return [path for path in places if path.is_file()]


def _without_hub(folder: Path, files: Sequence[PublishedFile], reason: str) -> DownloadResult:
    """Copy missing files from the Hugging Face cache; raise a UserError that lists the remaining ones."""
    states, missing = {}, []
    for file in files:
        path = folder / file.place
        states[file.place] = "present, not verified"
        _link_copy(folder, file)
        if path.is_file():
            if file.sha256 and file_sha256(path) == file.sha256:
                states[file.place] = "present, verified"
            continue
        cached = try_to_load_from_cache(file.repository, file.name)
        if isinstance(cached, str):
            path.parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(Path(cached), path)
            states[file.place] = "from the Hugging Face cache, not verified"
        else:
            missing.append(f"{path} ({file.name} of {file.repository})")
    if missing:
        raise UserError(
            f"{constants.ENDPOINT}: unreachable ({reason}), and {len(missing)} of {len(files)} files are "
            f"missing: {', '.join(missing)}; copy them to these paths, or run the same command with a "
            "connection"
        )
    return _result(folder, states)


def _result(folder: Path, states: dict[str, str]) -> DownloadResult:
    rows = [(place, (folder / place).stat().st_size, state) for place, state in states.items()]
    return DownloadResult(folder, tuple(rows))
