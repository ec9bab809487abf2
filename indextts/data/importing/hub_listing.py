"""Listing of a data set of the Hugging Face hub: its files at one commit, with sizes and digests.

    .hub.json    {"repository", "revision", "commit", "files": {name: [size, digest]}, "card", "is_complete"}

It is stored so that an interrupted download continues with the same commit.
"""

import logging
from pathlib import Path

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import RevisionNotFoundError
from pydantic import BaseModel, ValidationError

from indextts.data.importing.hub_choice import CARD_NAME, is_data
from indextts.errors import UserError
from indextts.features.hub_files import asked_hub, list_files
from indextts.features.published_files import Remote
from indextts.system.files import write_bytes

logger = logging.getLogger(__name__)

LISTING_NAME = ".hub.json"
MAIN_REVISION = "main"
PARQUET_REVISION = "refs/convert/parquet"  # the hub converts data sets with a loading script


class Listing(BaseModel, frozen=True):
    """Files of a data set at one commit.

    Args:
        revision: the branch of the commit.
        files: size and digest by name, of the files that can hold data.
        card: the README.md of the data set, on its main branch.
        is_complete: everything that was asked for has been downloaded.
    """

    repository: str
    revision: str
    commit: str
    files: dict[str, tuple[int, str]]
    card: Remote | None = None
    is_complete: bool = False

    def remote(self, name: str) -> Remote:
        """Return the metadata of a file for its download."""
        num_bytes, etag = self.files[name]
        return _remote(self.repository, self.commit, name, num_bytes, etag)


def current_listing(repository: str, stored: Listing | None) -> Listing:
    """Return the listing of an interrupted download, if its commit still exists, or the newest one.

    Raises:
        HubUnreachableError: the hub does not answer.
        UserError: the hub refuses, or there is nothing to download.
    """
    api = HfApi()
    with asked_hub(repository, "dataset"):
        if stored is not None and not stored.is_complete and _exists(api, stored):
            logger.info("%s: resuming the download of revision %s", repository, stored.commit)
            return stored
        return _newest_listing(api, repository)


def _exists(api: HfApi, listing: Listing) -> bool:
    try:
        api.dataset_info(listing.repository, revision=listing.commit, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except RevisionNotFoundError:
        logger.warning(
            "%s: revision %s no longer exists; using the newest", listing.repository, listing.commit
        )
        return False
    return True


def _newest_listing(api: HfApi, repository: str) -> Listing:
    commit, files = list_files(api, repository, "dataset", MAIN_REVISION)
    card = _remote(repository, commit, CARD_NAME, *files[CARD_NAME]) if CARD_NAME in files else None
    data = {name: file for name, file in files.items() if is_data(name)}
    if data:
        return Listing(repository=repository, revision=MAIN_REVISION, commit=commit, files=data, card=card)
    try:
        commit, converted = list_files(api, repository, "dataset", PARQUET_REVISION)
    except RevisionNotFoundError:
        converted = {}
    data = {name: file for name, file in converted.items() if is_data(name)}
    if not data:
        scripts = [name for name in files if name.endswith(".py")]
        content = f"only the loading script {scripts[0]}, which is never run" if scripts else "no data files"
        raise UserError(
            f"--hub {repository}: has {content}, and no conversion to parquet; download the data as "
            f"{constants.ENDPOINT}/datasets/{repository} describes, and pass the folder with --source"
        )
    logger.info("%s: using the hub's conversion to parquet", repository)
    return Listing(repository=repository, revision=PARQUET_REVISION, commit=commit, files=data, card=card)


def _remote(repository: str, commit: str, name: str, num_bytes: int, etag: str) -> Remote:
    return Remote(
        repository=repository, name=name, commit=commit, num_bytes=num_bytes, etag=etag, repo_type="dataset"
    )


def read_listing(folder: Path, repository: str) -> Listing | None:
    """Return the stored listing of a data set; None if there is none or it is corrupt."""
    try:
        listing = Listing.model_validate_json((folder / LISTING_NAME).read_bytes())
    except (OSError, ValidationError):
        return None
    return listing if listing.repository == repository else None


def write_listing(folder: Path, listing: Listing) -> None:
    write_bytes(folder / LISTING_NAME, listing.model_dump_json().encode())
