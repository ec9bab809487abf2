"""Generated codes on disk that a later process renders as audio, so that the trainer does not wait.

    ROOT/FOLDER/   pending.pth          plain values and tensors:
                     made_by         the fields about the model in each line of spoken.jsonl
                     texts           [{"text": as given, "recording": of the voice, "segments": [{"text": ...,
                                     "codes": (M,), "latents": (M, D), "has_stopped": ..., "seed": ...}]}]
      becomes      001.wav ... spoken.jsonl, in the format of tools/synthesize.py

If the process is killed, pending.pth stays, and the next process renders the folder again.

Axes: M codes, D width of the GPT.
"""

import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from indextts.errors import UserError, disk_errors
from indextts.models.checkpoint import read_file
from indextts.speech.synthesis.renderer import Reference, Renderer, Segment
from indextts.speech.synthesis.synthesize import speech_record, write_wav
from indextts.speech.synthesis.text_to_speech import render_lines
from indextts.system.files import write_bytes
from indextts.system.json_lines import write_json_lines

logger = logging.getLogger(__name__)

PENDING_NAME = "pending.pth"


@dataclass(frozen=True)
class PendingText:
    """The codes that a model generated for a text in the voice of a recording."""

    text: str
    recording: Path
    segments: tuple[Segment, ...]


def write_pending(folder: Path, pending: Sequence[PendingText], made_by: Mapping[str, Any]) -> None:
    """Write pending.pth into `folder`, atomically.

    Raises:
        UserError: the folder cannot be written.
    """
    texts = [
        {
            "text": item.text,
            "recording": str(item.recording),
            "segments": [
                {**vars(segment), "codes": segment.codes.cpu(), "latents": segment.latents.cpu()}
                for segment in item.segments
            ],
        }
        for item in pending
    ]
    content = io.BytesIO()
    torch.save({"made_by": dict(made_by), "texts": texts}, content)
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / PENDING_NAME, content.getvalue())


def pending_folders(root: Path) -> list[Path]:
    """Return the folders in `root` with codes still to render, oldest first."""
    found: dict[Path, int] = {}
    for path in root.glob(f"*/{PENDING_NAME}"):
        with suppress(FileNotFoundError):  # rendered or deleted since
            found[path.parent] = path.stat().st_mtime_ns
    return sorted(found, key=lambda folder: (found[folder], folder.name))


def render_pending(folder: Path, renderer: Renderer) -> int:
    """Render the codes in `folder` as WAV files; return the number of texts written.

    A text whose reference recording cannot be used is skipped with a warning.

    Raises:
        UserError: pending.pth cannot be read, or the audio cannot be written.
    """
    content = read_file(folder / PENDING_NAME)
    spoken: list[tuple[int, PendingText, Reference]] = []
    for number, item in enumerate(_texts(content), 1):
        try:
            spoken.append((number, item, renderer.read_reference(item.recording)))
        except UserError as error:
            logger.warning("Skipped text %d in %s: %s", number, folder, error)
    speeches = render_lines([(item.segments, reference) for _, item, reference in spoken], renderer)
    records = []
    for (number, item, _), speech in zip(spoken, speeches, strict=True):
        path = folder / f"{number:03}.wav"
        if speech.num_codes:
            write_wav(path, speech)
        records.append(speech_record(item.text, speech, path, content["made_by"]))
    write_json_lines(folder / "spoken.jsonl", records)
    (folder / PENDING_NAME).unlink()
    return len(records)


def _texts(content: Mapping[str, Any]) -> Iterator[PendingText]:
    for item in content["texts"]:
        segments = tuple(Segment(**segment) for segment in item["segments"])
        yield PendingText(item["text"], Path(item["recording"]), segments)
