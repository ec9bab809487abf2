"""SAID: codes that wait until somebody makes sound of them, so that the model need not wait.

    ROOT/FOLDER/   said.pth          plain values and tensors:
                     made_by         what stands in each line of spoken.jsonl about the model
                     texts           [{"text": as given, "recording": whose voice, "segments": [{"text": ...,
                                     "codes": (M,), "latents": (M, D), "has_stopped": ..., "seed": ...}]}]
      becomes      001.wav ... spoken.jsonl, as tools/synthesize.py writes them

A kill in between leaves the said.pth, and whoever comes next goes on with it.

Axes: M codes, D width of the GPT.
"""

import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from indextts.errors import UserError
from indextts.models.checkpoint import read_file
from indextts.speech.synthesis.sound import Sound
from indextts.speech.synthesis.speak import Segment, sound_of
from indextts.speech.synthesis.synthesize import record_of, write_wav
from indextts.system.files import write_bytes
from indextts.system.json_lines import write_json_lines

logger = logging.getLogger(__name__)

SAID_NAME = "said.pth"


@dataclass(frozen=True)
class Said:
    """A text as a model said it in the voice of a recording, in codes."""

    text: str
    recording: Path
    segments: tuple[Segment, ...]


def write_said(folder: Path, said: Sequence[Said], made_by: Mapping[str, Any]) -> None:
    """Write what was said, aside and renamed.

    Raises:
        UserError: the folder cannot be written.
    """
    texts = [
        {
            "text": one.text,
            "recording": str(one.recording),
            "segments": [
                {**vars(segment), "codes": segment.codes.cpu(), "latents": segment.latents.cpu()}
                for segment in one.segments
            ],
        }
        for one in said
    ]
    content = io.BytesIO()
    torch.save({"made_by": dict(made_by), "texts": texts}, content)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(folder / SAID_NAME, content.getvalue())
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); look at rights and space") from None


def waiting(root: Path) -> list[Path]:
    """Return the folders in `root` whose codes are no sound yet, the oldest first."""
    found = {path.parent: path.stat().st_mtime_ns for path in root.glob(f"*/{SAID_NAME}")}
    return sorted(found, key=lambda folder: (found[folder], folder.name))


def make_sound(folder: Path, sound: Sound) -> int:
    """Write the sounds of what waits in `folder`; return how many texts there are.

    A voice that cannot be heard is named, and its text left out.

    Raises:
        UserError: what was said cannot be read, or the sounds cannot be written.
    """
    content = read_file(folder / SAID_NAME)
    records = []
    for number, one in enumerate(_texts(content), 1):
        try:
            heard = sound.hear(one.recording)
        except UserError as error:
            logger.warning("No sound of text %d in %s: %s", number, folder, error)
            continue
        spoken = sound_of(one.segments, sound, heard)
        path = folder / f"{number:03}.wav"
        if spoken.num_codes:
            write_wav(path, spoken)
        records.append(record_of(one.text, spoken, path, content["made_by"]))
    write_json_lines(folder / "spoken.jsonl", records)
    (folder / SAID_NAME).unlink()
    return len(records)


def _texts(content: Mapping[str, Any]) -> Iterator[Said]:
    for one in content["texts"]:
        yield Said(one["text"], Path(one["recording"]), tuple(Segment(**part) for part in one["segments"]))
