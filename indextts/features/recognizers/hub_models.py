"""Recognizers on the Hugging Face hub: the files that transformers reads, in a folder.

    FOLDER/OWNER--NAME/    config.json, model.safetensors ...; .downloads.json and partial files as for all
                           downloads (indextts/features/hub_files.py)

Of the many adapters of MMS, only that of the language is downloaded.
"""

import logging
import re
from collections.abc import Iterable
from pathlib import Path

from huggingface_hub import constants

from indextts.errors import UserError
from indextts.features.hub_files import (
    HubUnreachableError,
    disk_errors,
    download_files,
    hub_errors,
    list_files,
    quiet_libraries,
    require_disk_space,
)
from indextts.features.published_files import read_record
from indextts.system.language_codes import standard_code
from indextts.system.locks import locked_folder

logger = logging.getLogger(__name__)

ADAPTER = "adapter.{}.{}"  # of MMS: language and suffix
_WEIGHTS = (re.compile(r"model(-\d+-of-\d+)?\.safetensors"), re.compile(r"pytorch_model(-\d+-of-\d+)?\.bin"))
_SMALL = re.compile(r"[^/]+\.(json|txt|model)")
_NOT_READ = frozenset(["trainer_state.json", "all_results.json", "train_results.json", "eval_results.json"])


def download_recognizer(repository: str, folder: Path, language: str) -> None:
    """Download a recognizer that is missing or differs from the hub's; without the hub, use what is there.

    Raises:
        UserError: the model does not exist or has no usable weights, the hub refuses or is unreachable while
            files are missing, or the disk is full.
    """
    quiet_libraries()
    in_use = f"{folder}: another download writes to this folder; wait for it or stop it"
    with locked_folder(folder / ".downloads.lock", in_use=in_use), disk_errors(folder):
        try:
            with hub_errors(repository):
                listing = list_files(repository)
        except HubUnreachableError as error:
            _require_complete(repository, folder, error.reason)
            return
        remotes = {name: listing.remote(name) for name in needed_files(listing.files, language)}
        if not _weights_in(remotes):
            raise UserError(
                f"--asr {repository}: has no model.safetensors or pytorch_model.bin at the top level; use "
                "another model"
            )
        present = read_record(folder)
        require_disk_space(folder, {name: each for name, each in remotes.items() if name not in present})
        for _ in download_files(folder, remotes, is_ours=True):
            pass


def needed_files(names: Iterable[str], language: str) -> list[str]:
    """Return the files that transformers reads, the weights last."""
    names = sorted(names)
    codes = adapter_codes(language, (name.split(".")[1] for name in names if name.startswith("adapter.")))
    adapters = {ADAPTER.format(code, suffix) for code in codes for suffix in ("safetensors", "bin")}
    small = [name for name in names if _SMALL.fullmatch(name) and name not in _NOT_READ]
    return [*small, *(name for name in names if name in adapters), *_weights_in(names)]


def adapter_codes(language: str, names: Iterable[str]) -> list[str]:
    """Return the adapters of a language: amh for am, swh for sw, azj-script_latin and others for az."""
    code = language.split("-")[0]
    return sorted({name for name in names if standard_code(name.split("-")[0]) == code})


def _weights_in(names: Iterable[str]) -> list[str]:
    """Return the weights among files, safetensors if there are any."""
    of_kinds = ([name for name in names if kind.fullmatch(name)] for kind in _WEIGHTS)
    return next(filter(None, of_kinds), [])


def _require_complete(repository: str, folder: Path, reason: str) -> None:
    record = read_record(folder)
    if not _weights_in(record) or not all((folder / name).is_file() for name in record):
        raise UserError(
            f"{constants.ENDPOINT}: unreachable ({reason}), and {folder} has no complete copy of "
            f"{repository}; run the same command with a connection, or pass the folder of a copy"
        )
    logger.warning("%s: unreachable (%s); using %s", constants.ENDPOINT, reason, folder)
