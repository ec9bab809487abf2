"""Models of the Hugging Face hub by name: download one, and upload one in a single commit.

Both use the library's login (`hf auth login`, or HF_TOKEN); no token passes through this code. An upload
hashes its files first and sends only those that the hub lacks, so a repeated upload resumes.
"""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from huggingface_hub import CommitOperationAdd, HfApi, constants, get_token, snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

from indextts.commands.base import REPOSITORY_NAME
from indextts.commands.bases import BASES
from indextts.errors import UserError
from indextts.features.hub_files import NO_CONNECTION, hub_errors, quiet_libraries, reason_of

logger = logging.getLogger(__name__)

WEIGHTS, CONFIG, BACKEND = "gpt.safetensors", "config.yaml", "builtin.npz"
TOKENIZERS = tuple(base.tokenizer_file for base in BASES.values())
OPTIONS = "spoken_text/*.json"  # for a tokenizer that cannot contain them
DOWNLOADED = (WEIGHTS, *TOKENIZERS, OPTIONS, CONFIG, BACKEND)
UNAUTHORIZED, FORBIDDEN = 401, 403


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
    try:
        with hub_errors(name, "model"):
            found = Path(snapshot_download(name, allow_patterns=list(DOWNLOADED)))
    except LocalEntryNotFoundError:
        raise UserError(
            f"{name}: no such file or folder here, and {constants.ENDPOINT} does not answer; check the path "
            "or the connection"
        ) from None
    except NO_CONNECTION as error:
        raise UserError(f"{constants.ENDPOINT}: {name}: {reason_of(error)}; try again") from None
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
    with _upload_errors(repository):
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
        api.create_commit(repository, operations, commit_message=message)
    return f"{constants.ENDPOINT}/{repository}"


@contextmanager
def _upload_errors(repository: str) -> Iterator[None]:
    """Turn errors of an upload into a UserError with what to do."""
    try:
        yield
    except HFValidationError as error:
        raise UserError(f"{repository}: {error}; write the repository as USER/NAME") from None
    except (HfHubHTTPError, *NO_CONNECTION) as error:
        raise _refusal(repository, error) from None
    except RuntimeError as error:  # around any error of the transfer of a large file
        cause = error.__cause__
        if not isinstance(cause, (HfHubHTTPError, *NO_CONNECTION)):
            raise
        raise _refusal(repository, cause) from None


def _refusal(repository: str, error: Exception) -> UserError:
    where = f"{constants.ENDPOINT}: {repository}"
    if not isinstance(error, HfHubHTTPError):
        return UserError(f"{where}: {reason_of(error)}; the same command resumes the upload")
    status = error.response.status_code
    action = {
        UNAUTHORIZED: "the token is invalid; log in again with `hf auth login` or correct HF_TOKEN",
        FORBIDDEN: "the token may not write there; use one with write access to this user or organization",
    }.get(status, "the same command resumes the upload")
    return UserError(f"{where}: HTTP status {status}; {action}")
