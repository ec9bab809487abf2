"""Download a data set of the Hugging Face hub by its name, for the import.

    PROJECT/hub/OWNER--NAME/        OWNER--NAME--SUBSET/ with --hub-subset
      README.md                     the card of the data set
      ...                           the chosen files, with the paths of the repository
      .hub.json                     the files of the repository at one commit, see `_State`
      .downloads.json, .tmp-*       verified and partial files, see indextts.features.hub_files

    list the files -> choose those of subset and splits -> download each

An import that was interrupted continues with the listing in .hub.json. After a complete one, the next import
asks for the newest commit and downloads the files that changed.
"""

import contextlib
import io
import logging
import re
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import soundfile
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import RevisionNotFoundError
from pydantic import BaseModel, ValidationError

from indextts.commands.base import REPOSITORY_NAME
from indextts.commands.data import ImportDataset
from indextts.data.importing.hub_choice import CARD_NAME, Choice, choose, is_data
from indextts.data.importing.items import PARQUET_SUFFIX, source_name
from indextts.data.sources import DataSource, read_sources
from indextts.errors import UserError
from indextts.features.hub_files import (
    SECONDS_BETWEEN_LOG_LINES,
    HubUnreachableError,
    Listing,
    disk_errors,
    download_files,
    hub_errors,
    list_files,
    quiet_libraries,
    require_disk_space,
)
from indextts.features.published_files import Remote, partial_path, read_record, stamp, write_record
from indextts.system.amounts import counted, shown_size
from indextts.system.files import write_bytes
from indextts.system.locks import locked_folder
from indextts.system.yaml_files import parse_yaml

logger = logging.getLogger(__name__)

HUB_NAME = "hub"  # not in downloads/, which --url imports as one source

_STATE_NAME = ".hub.json"
_PARQUET_REVISION = "refs/convert/parquet"  # the hub converts data sets with a loading script
_CARD_BLOCK = re.compile(r"\s*---\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|$)", re.DOTALL)
_BIBTEX = re.compile(r"```[^\n]*\n\s*(@\w+\s*\{.*?)\s*```", re.DOTALL)


class _State(BaseModel, frozen=True):
    """Commit that a folder is downloaded from.

    Args:
        card: the README.md of the data set, on its main branch.
        is_complete: everything that was asked for has been downloaded.
    """

    listing: Listing
    card: Remote | None
    is_complete: bool = False


def dataset_folder(output_dir: Path, repository: str, subset: str) -> Path:
    """Return the folder for a data set of the hub, beside --output-dir."""
    safe_subset = re.sub(r"[^\w.-]+", "_", subset)
    name = "--".join([*repository.split("/"), *([safe_subset] if subset else [])])
    return output_dir.resolve().parent / HUB_NAME / name


def download_dataset(command: ImportDataset, max_hours: float = 0) -> tuple[Path, DataSource]:
    """Download the data set `--hub` and return its folder and origin; without the hub, use what is there.

    Args:
        max_hours: stop after the parquet file that reaches so many hours; 0 downloads everything.

    Raises:
        UserError: the data set, subset or split does not exist, the hub refuses or is unreachable while files
            are missing, the disk is full, or another import uses the folder.
    """
    if not REPOSITORY_NAME.fullmatch(command.hub):
        raise UserError(
            f"--hub {command.hub!r}: not the name of a data set; pass OWNER/NAME as on its page, such as "
            "google/WaxalNLP"
        )
    quiet_libraries()
    folder = dataset_folder(command.output_dir, command.hub, command.hub_subset)
    in_use = f"{folder}: another import downloads to this folder; wait for it or stop it"
    with locked_folder(folder / ".downloads.lock", in_use=in_use), disk_errors(folder):
        state, unreachable = _state(folder, command.hub)
        listing = state.listing
        text = _read_card(folder)
        card = card_block(text, folder)
        choice = choose(listing.files, card, command.hub_subset, command.hub_split, f"--hub {command.hub}")
        remotes = {name: listing.remote(name) for name in choice.names}
        if unreachable:
            files = _files_without_hub(folder, remotes, command.hub, unreachable)
        else:
            _remove_outdated(folder, listing, remotes)
            _announce(folder, command.hub, choice, remotes, is_limited=max_hours > 0)
            files = download_files(folder, remotes, is_ours=True)
        with contextlib.closing(files):
            _download_until((folder / place for place, _ in files), len(remotes), max_hours)
        if not unreachable:
            _write_state(folder, state.model_copy(update={"is_complete": True}))
    earlier = _earlier_splits(folder, command.output_dir, choice)
    return folder, _origin(listing, replace(choice, splits=(*choice.splits, *earlier)), card, text)


def _earlier_splits(folder: Path, output_dir: Path, choice: Choice) -> list[str]:
    """Return the splits of earlier imports, whose files are still in the folder and are read too."""
    stored = read_sources(output_dir).get(source_name(folder, output_dir))
    if stored is None or stored.subset != choice.subset:
        return []
    earlier = [split for split in stored.splits if split not in choice.splits]
    if earlier:
        logger.info("%s: also reading what was downloaded before, splits %s", folder, ", ".join(earlier))
    return earlier


def _download_until(paths: Iterator[Path], total: int, max_hours: float) -> None:
    """Take files from an iterator that downloads them.

    Args:
        total: the number of files, for the log.
        max_hours: stop after the file that reaches so many hours; 0 takes all files and counts nothing.
    """
    hours = 0.0
    last_line = time.monotonic()
    for number, path in enumerate(paths, start=1):
        if time.monotonic() - last_line >= SECONDS_BETWEEN_LOG_LINES:
            last_line = time.monotonic()
            logger.info("Downloading: %d/%d files", number, total)
        if max_hours and path.suffix == PARQUET_SUFFIX:
            hours += parquet_hours(path)
            if hours >= max_hours:
                logger.info("%.2f hours downloaded; the remaining files are not needed", hours)
                break


def parquet_hours(path: Path) -> float:
    """Return the hours of audio in a parquet file, by the headers of the recordings.

    Recordings that libsndfile cannot read count as nothing.
    """
    from indextts.data.importing.parquet import CORRUPT, open_parquet  # only for a limit of hours

    seconds = 0.0
    try:
        with open_parquet(path) as file:
            leaves = (column.path for column in map(file.schema.column, range(len(file.schema.names))))
            if (leaf := next((leaf for leaf in leaves if leaf.endswith(".bytes")), None)) is not None:
                for batch in file.iter_batches(batch_size=1, columns=[leaf]):
                    row = batch[0][0].as_py() or {}
                    seconds += _duration_s(row.get("bytes"))
    except CORRUPT as error:
        logger.warning("%s: not a readable parquet file (%s)", path, error)
    return seconds / 3600


def _duration_s(content: bytes | None) -> float:
    try:
        return float(soundfile.info(io.BytesIO(content or b"")).duration)
    except soundfile.LibsndfileError:
        return 0.0


def _state(folder: Path, repository: str) -> tuple[_State, str]:
    """Return what to download, and the reason why the hub is unreachable or "".

    An interrupted download continues with its commit, unless a rewritten history has lost it.
    """
    stored = _read_state(folder, repository)
    try:
        with hub_errors(repository, "dataset"):
            state = _interrupted(repository, stored) or _newest(repository)
    except HubUnreachableError as error:
        if stored is None:
            raise UserError(
                f"{constants.ENDPOINT}: unreachable ({error.reason}), and nothing of {repository} was "
                "downloaded; run the same command with a connection, or pass a copy with --source"
            ) from None
        return stored, error.reason
    _write_state(folder, state)
    if state.card is not None:
        dict(download_files(folder, {CARD_NAME: state.card}, is_ours=True))
    return state, ""


def _interrupted(repository: str, stored: _State | None) -> _State | None:
    if stored is None or stored.is_complete:
        return None
    commit = stored.listing.commit
    try:
        HfApi().dataset_info(repository, revision=commit, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except RevisionNotFoundError:
        logger.warning("%s: revision %s no longer exists; using the newest", repository, commit)
        return None
    logger.info("%s: resuming the download of revision %s", repository, commit)
    return stored


def _newest(repository: str) -> _State:
    """Return the data files of the main branch, or of the hub's conversion to parquet."""
    main = list_files(repository, "dataset")
    card = main.remote(CARD_NAME) if CARD_NAME in main.files else None
    listings = [main]
    if not any(map(is_data, main.files)):
        with contextlib.suppress(RevisionNotFoundError):
            listings.append(list_files(repository, "dataset", _PARQUET_REVISION))
            logger.info("%s: using the hub's conversion to parquet", repository)
    files = {name: file for name, file in listings[-1].files.items() if is_data(name)}
    if not files:
        scripts = [name for name in main.files if name.endswith(".py")]
        content = f"only the loading script {scripts[0]}, which is never run" if scripts else "no data files"
        raise UserError(
            f"--hub {repository}: has {content}, and no conversion to parquet; download the data as "
            f"{constants.ENDPOINT}/datasets/{repository} describes, and pass the folder with --source"
        )
    return _State(listing=listings[-1].model_copy(update={"files": files}), card=card)


def _read_state(folder: Path, repository: str) -> _State | None:
    try:
        state = _State.model_validate_json((folder / _STATE_NAME).read_bytes())
    except (OSError, ValidationError):
        return None
    return state if state.listing.repository == repository else None


def _write_state(folder: Path, state: _State) -> None:
    write_bytes(folder / _STATE_NAME, state.model_dump_json().encode())


def _read_card(folder: Path) -> str:
    try:
        return (folder / CARD_NAME).read_text(encoding="utf-8-sig", errors="replace")
    except FileNotFoundError:
        return ""


def card_block(text: str, folder: Path) -> dict[str, Any]:
    """Return the YAML block of a card; empty if there is none or it is invalid."""
    found = _CARD_BLOCK.match(text)
    try:
        block = parse_yaml(found[1]) if found else {}
    except ValueError as error:
        logger.warning("%s: the YAML block is invalid and ignored (%s)", folder / CARD_NAME, error)
        return {}
    return block if isinstance(block, dict) else {}


def _files_without_hub(
    folder: Path, remotes: Mapping[str, Remote], repository: str, reason: str
) -> Generator[tuple[str, str], None, None]:
    """Yield the files of an earlier download.

    Raises:
        UserError: a file is missing or incomplete.
    """
    logger.warning(
        "%s: unreachable (%s); importing what was downloaded of %s before",
        constants.ENDPOINT,
        reason,
        repository,
    )
    for place, remote in remotes.items():
        if not _has_size(folder / place, remote):
            raise UserError(
                f"{constants.ENDPOINT}: unreachable ({reason}), and {folder / place} is missing; run the "
                "same command with a connection"
            )
        yield place, "present"


def _has_size(path: Path, remote: Remote) -> bool:
    return path.is_file() and path.stat().st_size == remote.num_bytes


def _remove_outdated(folder: Path, listing: Listing, remotes: Mapping[str, Remote]) -> None:
    """Remove downloads that the repository no longer has in this form, and their partial files."""
    record = read_record(folder)
    kept = {}
    for place, known in record.items():
        path = folder / place
        is_current = place == CARD_NAME or listing.files.get(place, (0, ""))[1] == known.etag
        if is_current or place in remotes:
            kept[place] = known
        elif path.is_file() and known.checked == stamp(path):
            path.unlink()
            logger.info("%s: removed, the data set no longer has this version of it", path)
    if len(kept) < len(record):
        write_record(folder, kept)
    partials = {partial_path(folder / place, remote.etag) for place, remote in remotes.items()}
    for partial in folder.rglob(".tmp-*"):
        if partial not in partials:
            partial.unlink()


def _announce(
    folder: Path, repository: str, choice: Choice, remotes: Mapping[str, Remote], *, is_limited: bool
) -> None:
    """Log what is downloaded; raise a UserError if it does not fit on the disk."""
    total = sum(remote.num_bytes for remote in remotes.values())
    logger.info(
        "%s: subset %s, splits %s: %s, %s",
        repository,
        choice.subset,
        ", ".join(choice.splits),
        counted(len(remotes), "file"),
        shown_size(total),
    )
    if not is_limited:
        missing = {p: remote for p, remote in remotes.items() if not _has_size(folder / p, remote)}
        require_disk_space(folder, missing)


def _origin(listing: Listing, choice: Choice, card: Mapping[str, Any], text: str) -> DataSource:
    """Return name, licence and citation of the data set for sources.json."""
    licences = card.get("license") or card.get("licence") or ""
    citation = _BIBTEX.search(text)
    return DataSource(
        name=listing.repository,
        url=f"{constants.ENDPOINT}/datasets/{listing.repository}",
        subset=choice.subset,
        splits=choice.splits,
        revision=listing.commit,
        licence=", ".join(map(str, licences)) if isinstance(licences, list) else str(licences),
        licence_name=str(card.get("license_name") or ""),
        licence_link=str(card.get("license_link") or ""),
        citation=citation[1] if citation else "",
    )
