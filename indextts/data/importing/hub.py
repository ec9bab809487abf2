"""Download a data set of the Hugging Face hub by its name, for the import.

    PROJECT/hub/OWNER--NAME/        OWNER--NAME--SUBSET/ with --hub-subset
      README.md                     the card of the data set
      ...                           the chosen files, with the paths of the repository
      .downloads.json, .tmp-*       chosen and partial files, see indextts.features.hub_files

    list the files -> choose those of subset and splits -> download each

Each import takes the newest commit, or that of --hub-revision, and downloads the files that are missing or
have changed.
"""

import contextlib
import io
import logging
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import soundfile
from huggingface_hub import constants
from huggingface_hub.errors import RevisionNotFoundError

from indextts.commands.base import REPOSITORY_NAME
from indextts.commands.data import ImportDataset
from indextts.data.importing.hub_choice import CARD_NAME, Choice, choose, is_data
from indextts.data.importing.items import PARQUET_SUFFIX, source_name
from indextts.data.sources import DataSource, read_sources
from indextts.errors import UserError
from indextts.features.hub_files import (
    SECONDS_BETWEEN_LOG_LINES,
    HubUnreachableError,
    download_files,
    downloads_to,
    hub_errors,
    list_files,
    remove_outdated,
)
from indextts.features.published_files import Remote, read_record
from indextts.system.amounts import counted, shown_size
from indextts.system.yaml_files import parse_yaml

logger = logging.getLogger(__name__)

HUB_NAME = "hub"  # not in downloads/, which --url imports as one source

_PARQUET_REVISION = "refs/convert/parquet"  # the hub converts data sets with a loading script
_CARD_BLOCK = re.compile(r"\s*---\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|$)", re.DOTALL)
_BIBTEX = re.compile(r"```[^\n]*\n\s*(@\w+\s*\{.*?)\s*```", re.DOTALL)


def dataset_folder(output_dir: Path, repository: str, subset: str) -> Path:
    """Return the folder for a data set of the hub, beside --output-dir."""
    safe_subset = re.sub(r"[^\w.-]+", "_", subset)
    name = "--".join([*repository.split("/"), *([safe_subset] if subset else [])])
    return output_dir.resolve().parent / HUB_NAME / name


def download_dataset(command: ImportDataset, max_hours: float = 0) -> tuple[Path, DataSource]:
    """Download the data set `--hub` and return its folder and origin.

    Args:
        max_hours: stop after the parquet file that reaches so many hours; 0 downloads everything.

    Raises:
        UserError: the data set, subset or split does not exist, the hub refuses or is unreachable, the disk
            is full, or another import uses the folder.
    """
    if not REPOSITORY_NAME.fullmatch(command.hub):
        raise UserError(
            f"--hub {command.hub!r}: not the name of a data set; pass OWNER/NAME as on its page, such as "
            "google/WaxalNLP"
        )
    folder = dataset_folder(command.output_dir, command.hub, command.hub_subset)
    with downloads_to(folder):
        files, text = _listed(command.hub, command.hub_revision, folder)
        card = card_block(text, folder)
        choice = choose(files, card, command.hub_subset, command.hub_split, f"--hub {command.hub}")
        remotes = {name: files[name] for name in choice.names}
        size = shown_size(sum(remote.num_bytes for remote in remotes.values()))
        chosen = f"subset {choice.subset}, splits {', '.join(choice.splits)}"
        logger.info("%s: %s: %s, %s", command.hub, chosen, counted(len(remotes), "file"), size)
        with contextlib.closing(download_files(folder, remotes, is_limited=max_hours > 0)) as downloaded:
            _download_until((folder / place for place, _ in downloaded), len(remotes), max_hours)
    earlier = _earlier_splits(folder, command.output_dir, choice)
    choice = replace(choice, splits=(*choice.splits, *earlier))
    commit = next(iter(remotes.values())).commit
    return folder, _origin(command.hub, commit, choice, card, text)


def _earlier_splits(folder: Path, output_dir: Path, choice: Choice) -> list[str]:
    """Return the splits of earlier imports, whose files are still in the folder and are read too."""
    stored = read_sources(output_dir).get(source_name(folder, output_dir))
    if stored is None or stored.subset != choice.subset:
        return []
    earlier = [split for split in stored.splits if split not in choice.splits]
    if earlier:
        logger.info("%s: also reading earlier downloads, splits %s", folder, ", ".join(earlier))
    return earlier


def _download_until(paths: Iterator[Path], total: int, max_hours: float) -> None:
    """Take files from an iterator that downloads them until they have `max_hours`; 0 takes all."""
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
                    content = (batch[0][0].as_py() or {}).get("bytes") or b""
                    with contextlib.suppress(soundfile.LibsndfileError):
                        seconds += soundfile.info(io.BytesIO(content)).duration
    except CORRUPT as error:
        logger.warning("%s: not a readable parquet file (%s)", path, error)
    return seconds / 3600


def _listed(repository: str, revision: str, folder: Path) -> tuple[dict[str, Remote], str]:
    """Return the data files of a revision, or of the hub's conversion to parquet, and the card's text.

    The card is downloaded, and what the data set no longer has is removed.
    """
    try:
        with hub_errors(repository, "dataset"):
            try:
                main = list_files(repository, "dataset", revision or "main")
            except RevisionNotFoundError:
                reason = f"{repository} has no such commit, tag or branch; its page lists them"
                raise UserError(f"--hub-revision {revision or 'main'}: {reason}") from None
            files = _data_of(main)
            if not files and not revision:
                with contextlib.suppress(RevisionNotFoundError):
                    files = _data_of(list_files(repository, "dataset", _PARQUET_REVISION))
                    logger.info("%s: using the hub's conversion to parquet", repository)
    except HubUnreachableError as error:
        if not read_record(folder):
            raise
        raise UserError(f"{error}; --source {folder} imports the earlier download") from None
    if not files:
        scripts = [name for name in main if name.endswith(".py")]
        content = f"only the loading script {scripts[0]}, which is never run" if scripts else "no data files"
        raise UserError(
            f"--hub {repository}: has {content}, and no conversion to parquet; download the data as "
            f"{constants.ENDPOINT}/datasets/{repository} describes, and pass the folder with --source"
        )
    cards = {CARD_NAME: main[CARD_NAME]} if CARD_NAME in main else {}
    remove_outdated(folder, files | cards)
    dict(download_files(folder, cards))
    card = folder / CARD_NAME
    return files, card.read_text(encoding="utf-8-sig", errors="replace") if cards else ""


def _data_of(files: Mapping[str, Remote]) -> dict[str, Remote]:
    return {name: remote for name, remote in files.items() if is_data(name)}


def card_block(text: str, folder: Path) -> dict[str, Any]:
    """Return the YAML block of a card; empty if there is none or it is invalid."""
    found = _CARD_BLOCK.match(text)
    try:
        block = parse_yaml(found[1]) if found else {}
    except ValueError as error:
        logger.warning("%s: the YAML block is invalid and ignored (%s)", folder / CARD_NAME, error)
        return {}
    return block if isinstance(block, dict) else {}


def _origin(repository: str, commit: str, choice: Choice, card: Mapping[str, Any], text: str) -> DataSource:
    """Return name, licence and citation of the data set for sources.json."""
    licences = card.get("license") or card.get("licence") or ""
    citation = _BIBTEX.search(text)
    return DataSource(
        name=repository,
        url=f"{constants.ENDPOINT}/datasets/{repository}",
        subset=choice.subset,
        splits=choice.splits,
        revision=commit,
        licence=", ".join(map(str, licences)) if isinstance(licences, list) else str(licences),
        licence_name=str(card.get("license_name") or ""),
        licence_link=str(card.get("license_link") or ""),
        citation=citation[1] if citation else "",
    )
