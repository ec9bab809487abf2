"""Implementation of tools/publish.py: an exported model folder becomes a repository on the hub.

    gpt.safetensors bpe.model config.yaml      the model; gpt.safetensors is written from gpt.pth if missing;
                                               IndexTTS-2.5 has a .tiktoken file in place of bpe.model
    builtin.npz                                the built-in speech backend, if the model has it
    spoken_text/                               the normaliser as a package (export/text_package.py)
    README.md LICENSE-NOTE.txt LICENSE.txt     the card (card.py), the note, and the licence of the base
    losses.png samples/*.wav                   what the card shows

One commit has all files, so a reader never sees a part of a model.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from indextts.commands.base import REPOSITORY_NAME
from indextts.commands.bases import base_in
from indextts.commands.speech import PublishModel
from indextts.errors import UserError
from indextts.features.hub_models import BACKEND, CONFIG, WEIGHTS, upload_model
from indextts.models.checkpoint import read_weights
from indextts.speech.export.text_package import NAME as TEXT_PACKAGE
from indextts.speech.publishing.card import (
    CURVE_NAME,
    LICENCE_NAME,
    draw_losses,
    hub_card,
    read_samples,
    read_scores,
)
from indextts.system.amounts import counted, shown_size
from indextts.system.files import read_object, written_aside

logger = logging.getLogger(__name__)

PICKLED = "gpt.pth"
RECORD = "export.json"
NOTE = "LICENSE-NOTE.txt"
PACKAGE_SUFFIXES = (".py", ".json", ".txt")  # what Python compiled is left out


@dataclass(frozen=True)
class Publication:
    """Files of an upload: paths or contents by their names in the repository."""

    files: dict[str, Path | bytes]
    card: str
    message: str

    def lines(self, repository: str, *, public: bool) -> Iterator[str]:
        """Yield the files with their sizes, then the card."""
        kind = "public" if public else "private"
        yield f"{repository} ({kind}), {counted(len(self.files), 'file')}:"
        for name, content in self.files.items():
            size = len(content) if isinstance(content, bytes) else content.stat().st_size
            yield f"  {name}: {shown_size(size)}"
        yield f"\n{self.card}"


def publish(command: PublishModel) -> Iterator[str]:
    """Upload the model, or only describe the upload; yield the lines to print.

    Raises:
        UserError: the folder is no export, a file of the card cannot be read, the text that the licence
            requires is missing, or the hub refuses.
    """
    if not REPOSITORY_NAME.fullmatch(command.repository):
        raise UserError(f"--repository {command.repository}: write it as USER/NAME")
    if not command.dry_run:
        _write_safetensors(command.model_folder)
    publication = prepare(command)
    if command.dry_run:
        yield from publication.lines(command.repository, public=command.public)
        yield "Dry run: nothing was sent."
        return
    address = upload_model(
        command.repository, publication.files, publication.message, private=not command.public
    )
    yield f"{address}: {'public' if command.public else 'private'}, {counted(len(publication.files), 'file')}"


def prepare(command: PublishModel) -> Publication:
    """Return the files and the card of an upload, without any change on disk."""
    folder = command.model_folder
    weights = _weights_of(folder)
    record = read_object(folder / RECORD)
    files: dict[str, Path | bytes] = {WEIGHTS: weights}
    base = base_in(folder)
    needed = (base.tokenizer_file, CONFIG, NOTE)
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
    scores = [] if command.evaluation is None else read_scores(command.evaluation)
    samples = [] if command.samples is None else read_samples(command.samples)
    if command.run_dir is not None:
        files[CURVE_NAME] = draw_losses(command.run_dir, record.get("part"), record.get("step"))
    files |= {f"samples/{sample.path.name}": sample.path for sample in samples}
    card = hub_card(
        base,
        (folder / "README.md").read_text(encoding="utf-8"),
        command.repository,
        statement="" if BACKEND in files else command.statement,
        scores=scores,
        samples=samples,
        has_curve=CURVE_NAME in files,
    )
    files["README.md"] = card.encode()
    step = record.get("step")
    return Publication(
        files, card, "Upload the model" if step is None else f"Upload the model of step {step}"
    )


def _base_licence(command: PublishModel) -> Path:
    """Return the licence of the published weights, after checking that the card has its statement."""
    if command.base_licence is None or not command.statement.strip():
        raise UserError(
            f"{command.model_folder}: trained from published weights, whose licence must go with the model: "
            "pass its text with --base-licence, and the sentence that its section 4.1a requires with "
            "--statement"
        )
    if not command.base_licence.is_file():
        raise UserError(f"--base-licence {command.base_licence}: no such file")
    return command.base_licence


def _weights_of(folder: Path) -> Path:
    """Return the weights that a model folder has, safetensors first."""
    for name in (WEIGHTS, PICKLED):
        if (folder / name).is_file():
            return folder / name
    raise UserError(
        f"{folder}: contains no {WEIGHTS} or {PICKLED}; pass a folder that tools/export_gpt.py wrote"
    )


def _write_safetensors(folder: Path) -> None:
    """Write gpt.safetensors beside gpt.pth unless it exists; an upload contains no pickled file."""
    source = _weights_of(folder)
    if source.name == WEIGHTS:
        return
    logger.info("Writing %s from %s", folder / WEIGHTS, PICKLED)
    tensors = {
        name: value.contiguous() for name, value in read_weights(source).items() if isinstance(value, Tensor)
    }
    try:
        with written_aside(folder / WEIGHTS) as aside:
            save_file(tensors, aside, metadata={"format": "pt"})
    except OSError as error:
        raise UserError(
            f"{folder / WEIGHTS}: cannot be written ({error.strerror}); free disk space"
        ) from None
