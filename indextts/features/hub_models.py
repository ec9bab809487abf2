"""Models of the Hugging Face hub by name: download one, and upload one in a single commit.

Both use the library's login (`hf auth login`, or HF_TOKEN); no token passes through this code. An upload
hashes its files first and sends only those that the hub lacks, so a repeated upload resumes.
"""

import logging
import sys
from collections.abc import Mapping
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi, constants, get_token, snapshot_download
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

from indextts.commands.base import REPOSITORY_NAME
from indextts.commands.bases import BASES
from indextts.errors import UserError
from indextts.features.hub_files import hub_errors, quiet_libraries

logger = logging.getLogger(__name__)

WEIGHTS, CONFIG, BACKEND = "gpt.safetensors", "config.yaml", "builtin.npz"
TOKENIZERS = tuple(base.tokenizer_file for base in BASES.values())
OPTIONS = "spoken_text/*.json"  # for a tokenizer that cannot contain them
DOWNLOADED = (WEIGHTS, *TOKENIZERS, OPTIONS, CONFIG, BACKEND)


def local_model(path: Path) -> Path:
    """Return the folder of a model of the hub, in the Hugging Face cache; any other path unchanged.

    Args:
        path: a file or folder, or USER/NAME of a repository that tools/publish.py filled.

    Raises:
        UserError: the hub refuses or does not answer, or the repository has no such model.
    """
    name = path.as_posix()
    if path.exists() or path.suffix == ".pth" or not REPOSITORY_NAME.fullmatch(name):
        return path
    quiet_libraries()
    logger.info("%s is no file or folder here: looking for this model at %s", name, constants.ENDPOINT)
    with hub_errors(name):
        found = Path(snapshot_download(name, allow_patterns=list(DOWNLOADED)))
    if not (found / WEIGHTS).is_file():
        raise UserError(
            f"{constants.ENDPOINT}: {name}: contains no {WEIGHTS}; it is not from tools/publish.py"
        )
    return found


def upload_model(repository: str, files: Mapping[str, Path | bytes], message: str, *, private: bool) -> str:
    """Upload files to a model repository in one commit, and return its address.

    Args:
        files: paths or contents by their names in the repository.
        private: create the repository as private; one that exists with another visibility is refused.

    Raises:
        UserError: there is no login, the hub refuses, or the connection breaks.
    """
    if get_token() is None:
        raise UserError("no login: run `hf auth login` with a token that may write, or set HF_TOKEN")
    quiet_libraries()
    if not sys.stderr.isatty():
        disable_progress_bars()
    api = HfApi()
    with hub_errors(repository, access="write"):
        try:
            found = api.model_info(repository)
        except RepositoryNotFoundError:
            api.create_repo(repository, private=private)
            logger.info("Created the %s repository %s", "private" if private else "public", repository)
        else:
            if private and not found.private:
                raise UserError(
                    f"{constants.ENDPOINT}: {repository} is public; pass --public, or make it private in its "
                    "settings"
                )
            if found.private and not private:
                raise UserError(
                    f"{constants.ENDPOINT}: {repository} is private; make it public in its settings, or "
                    "remove --public"
                )
        operations = [CommitOperationAdd(name, content) for name, content in files.items()]
        try:
            api.create_commit(repository, operations, commit_message=message)
        except RuntimeError as error:  # around any error of the transfer of a large file
            raise error.__cause__ or error from None
    return f"{constants.ENDPOINT}/{repository}"
