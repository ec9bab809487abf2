"""Implementation of tools/publish.py: an exported model folder becomes a repository on the hub.

    gpt.safetensors bpe.model config.yaml      the model; gpt.safetensors is written from gpt.pth if missing;
                                               IndexTTS-2.5 has a .tiktoken file in place of bpe.model
    builtin.npz                                the built-in speech backend, if the model has it
    spoken_text/                               the normaliser as a package (export/text_package.py)
    adapter.safetensors                        instead of these: a LoRA
    README.md LICENSE-NOTE.txt LICENSE.txt     the card (card.py), the note, and the licence of the base
    losses.png samples/*.wav                   what the card shows

One commit has all files, so a reader never sees a part of a model. An upload hashes its files first and sends
only those that the hub lacks, so a repeated upload resumes. The library does the login; no token passes
through this code.
"""

import logging
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, HfApi, constants, get_token
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.utils import disable_progress_bars  # type: ignore[attr-defined]

from indextts.commands.base import REPOSITORY_NAME
from indextts.commands.bases import base_in
from indextts.commands.speech import PublishModel
from indextts.data.networks import BACKEND_NAME as BACKEND
from indextts.errors import UserError, disk_errors
from indextts.features.hub_files import hub_errors, quiet_libraries
from indextts.models.adapter_file import NAME as ADAPTER
from indextts.models.checkpoint import read_file, read_weights
from indextts.models.gpt.config import parse_config
from indextts.speech.evaluation.scores import read_rows
from indextts.speech.export.model_folder import RECORD, write_safetensors
from indextts.speech.export.text_package import NAME as TEXT_PACKAGE
from indextts.speech.publishing.card import CURVE_NAME, LICENCE_NAME, draw_losses, hub_card, read_samples
from indextts.system.amounts import counted, shown_size
from indextts.system.files import read_object, written_aside

logger = logging.getLogger(__name__)

WEIGHTS, CONFIG = "gpt.safetensors", "config.yaml"
PICKLED = "gpt.pth"
NOTE = "LICENSE-NOTE.txt"
PACKAGE_SUFFIXES = (".py", ".json", ".toml", ".txt")  # what Python compiled is left out


def publish(command: PublishModel) -> Iterator[str]:
    """Upload the model, or only describe the upload; yield the lines to print.

    Raises:
        UserError: the folder is no export, a file of the card cannot be read, the text that the licence
            requires is missing, or the hub refuses.
    """
    if not REPOSITORY_NAME.fullmatch(command.repository):
        raise UserError(f"--repository {command.repository}: write it as USER/NAME")
    if not command.dry_run:
        _add_safetensors(command.model_folder)
    record = read_object(command.model_folder / RECORD)
    files = _files(command, record)
    kind, amount = "public" if command.public else "private", counted(len(files), "file")
    if command.dry_run:
        yield f"{command.repository} ({kind}), {amount}:"
        for name, content in files.items():
            size = len(content) if isinstance(content, bytes) else content.stat().st_size
            yield f"  {name}: {shown_size(size)}"
        card = files["README.md"]
        assert isinstance(card, bytes)
        yield f"\n{card.decode()}"
        yield "Dry run: nothing was sent."
        return
    step = record.get("step")
    message = "Upload the model" if step is None else f"Upload the model of step {step}"
    address = upload_model(command.repository, files, message, private=not command.public)
    yield f"{address}: {kind}, {amount}"


def _files(command: PublishModel, record: Mapping[str, Any]) -> dict[str, Path | bytes]:
    """Return paths or contents by their names in the repository, without any change on disk."""
    folder = command.model_folder
    weights, base = _weights_of(folder), base_in(folder)
    if is_adapter := weights.name == ADAPTER:
        base = parse_config(read_file(weights)["meta"]["gpt_config"], weights).of_base
    files: dict[str, Path | bytes] = {ADAPTER if is_adapter else WEIGHTS: weights}
    needed = (NOTE,) if is_adapter else (base.tokenizer_file, CONFIG, NOTE)
    files |= {name: folder / name for name in needed}
    missing = [name for name in (*needed, "README.md", RECORD) if not (folder / name).is_file()]
    if missing:
        raise UserError(f"{folder}: {', '.join(missing)} missing; export the model again")
    package = sorted((folder / TEXT_PACKAGE).rglob("*"))
    files |= {str(path.relative_to(folder)): path for path in package if path.suffix in PACKAGE_SUFFIXES}
    if (folder / BACKEND).is_file():
        files[BACKEND] = folder / BACKEND
    else:
        files[LICENCE_NAME] = _base_licence(command)
    scores = [] if command.evaluation is None else read_rows(command.evaluation)
    samples = {} if command.samples is None else read_samples(command.samples)
    if command.run_dir is not None:
        files[CURVE_NAME] = draw_losses(command.run_dir, record.get("part"), record.get("step"))
    files |= {f"samples/{path.name}": path for path in samples}
    card = hub_card(
        base,
        (folder / "README.md").read_text(encoding="utf-8"),
        command.repository,
        statement="" if BACKEND in files else command.statement,
        scores=scores,
        samples=samples,
        has_curve=CURVE_NAME in files,
        is_adapter=is_adapter,
    )
    files["README.md"] = card.encode()
    return files


def _base_licence(command: PublishModel) -> Path:
    """Return the licence of the published weights, after checking that the card has its statement."""
    if command.base_licence is None or not command.statement.strip():
        raise UserError(
            f"{command.model_folder}: trained from published weights, whose licence must go with the model: "
            "pass its text with --base-licence, and the sentence that its section 4.1a requires with "
            "--statement"
        )
    if not command.base_licence.is_file():
        raise UserError(f"--base-licence {command.base_licence}: no such file; check the path")
    return command.base_licence


def _weights_of(folder: Path) -> Path:
    """Return the weights that a model folder has, safetensors first."""
    for name in (WEIGHTS, PICKLED, ADAPTER):
        if (folder / name).is_file():
            return folder / name
    raise UserError(f"{folder}: contains no {WEIGHTS}, {PICKLED} or {ADAPTER}; export a checkpoint again")


def _add_safetensors(folder: Path) -> None:
    """Write gpt.safetensors beside gpt.pth unless it exists; an upload contains no pickled file."""
    source = _weights_of(folder)
    if source.name != PICKLED:
        return
    logger.info("Writing %s from %s", folder / WEIGHTS, PICKLED)
    weights = read_weights(source)
    with disk_errors(folder / WEIGHTS), written_aside(folder / WEIGHTS) as aside:
        write_safetensors(aside, {name: tensor.contiguous() for name, tensor in weights.items()})


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
