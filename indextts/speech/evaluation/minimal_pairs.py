"""Minimal pairs for blind listening: differences that the spelling hides, so that no program can score them.

The file of --minimal-pairs has a pair in each line, two texts with a tab between them, and its comments begin
with #. Both texts of a pair are spoken in the same voice with the same seed.

OUTPUT_DIR/minimal_pairs/
  001.wav ...    the texts of all pairs by all checkpoints, in random order
  sheet.tsv      file, first, second, heard (empty): for the listener, who enters 1 or 2
  answers.tsv    file, checkpoint, line, spoken (1 or 2), text: to open afterwards
"""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from indextts.commands.sampling_options import Sampling
from indextts.errors import UserError
from indextts.speech.synthesis.segments import VoicePrompt
from indextts.speech.synthesis.synthesize import write_wav
from indextts.speech.synthesis.text_to_speech import TextToSpeech
from indextts.system.amounts import counted
from indextts.system.disk import read_text_lines
from indextts.system.files import write_bytes

logger = logging.getLogger(__name__)

FOLDER = "minimal_pairs"


class MinimalPair(NamedTuple):
    """Two texts, and the line of the file that they are from."""

    line: int
    texts: tuple[str, str]


class Answer(NamedTuple):
    """Content of a sound file: `spoken`, 0 or 1, is the text of the pair."""

    file: str
    checkpoint: str
    pair: MinimalPair
    spoken: int


def read_minimal_pairs(path: Path) -> list[MinimalPair]:
    """Return the pairs of a file.

    Raises:
        UserError: the file cannot be read, has no pairs, or a line that is not two texts.
    """
    pairs = []
    for number, line in enumerate(read_text_lines(path, "--minimal-pairs"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        texts = [text.strip() for text in line.split("\t")]
        if len(texts) != 2 or not all(texts) or texts[0] == texts[1]:
            raise UserError(
                f"{path}:{number}: a line needs two different texts with a tab between them, got {line!r}"
            )
        pairs.append(MinimalPair(number, (texts[0], texts[1])))
    if not pairs:
        raise UserError(f"--minimal-pairs {path}: no pair; write two texts with a tab between them in a line")
    return pairs


def speak_pairs(
    tts: TextToSpeech,
    checkpoint: str,
    pairs: Sequence[MinimalPair],
    voices: Sequence[VoicePrompt],
    sampling: Sampling,
    files: Sequence[Path],
) -> list[Answer]:
    """Speak both texts of each pair; a text without speech gets no file and no answer.

    Args:
        voices: used by the pairs in turn.
        files: 2 for each pair, for its first and its second text.
    """
    items = [(pair, spoken) for pair in pairs for spoken in (0, 1)]
    lines = [
        tts.line(pair.texts[spoken], voices[number // 2 % len(voices)], sampling.seed)
        for number, (pair, spoken) in enumerate(items)
    ]
    answers = []
    for index, speech in tts.speak(lines, sampling):
        if speech.num_codes:
            write_wav(files[index], speech)
            answers.append(Answer(files[index].name, checkpoint, *items[index]))
    if len(answers) < len(items):
        logger.warning(
            "%s: %s of --minimal-pairs without speech", checkpoint, counted(len(items) - len(answers), "text")
        )
    return answers


def shuffled_files(folder: Path, number: int, seed: int) -> list[Path]:
    """Return this many names of sound files in random order."""
    names = [folder / f"{index:03}.wav" for index in range(1, number + 1)]
    Random(f"minimal pairs {seed}").shuffle(names)
    return names


def write_sheet(folder: Path, answers: Iterable[Answer]) -> None:
    """Write the sheet for the listener and the answers, in the order of the files."""
    sheet: list[Sequence[str]] = [("file", "first", "second", "heard")]
    solution: list[Sequence[str]] = [("file", "checkpoint", "line", "spoken", "text")]
    for file, checkpoint, pair, spoken in sorted(answers):
        sheet.append((file, *pair.texts, ""))
        solution.append((file, checkpoint, str(pair.line), str(spoken + 1), pair.texts[spoken]))
    for name, rows in (("sheet.tsv", sheet), ("answers.tsv", solution)):
        write_bytes(folder / name, "".join("\t".join(row) + "\n" for row in rows).encode())
