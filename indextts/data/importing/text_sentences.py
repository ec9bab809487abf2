"""Sentences of a text file, for recordings whose text has no times.

Each line is cut after the marks that end a sentence. A sentence of fewer letters than MIN_LETTERS, such as
a number before a verse, is joined with the next one of its line, else with the one before.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.data.importing.items import Rejection
from indextts.data.importing.text_lines import text_lines
from indextts.text.transcripts import scored

MIN_LETTERS = 8
MAX_SENTENCES = 100_000
_SENTENCE = re.compile(r""".+?(?:[።፨፧?!…]+|፡፡|(?<=[^\W\d_]{2})\.(?=["'”’»)\]]*(?:\s|$)))["'”’»)\]]*|.+$""")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a text file; `letters` as `text.transcripts.scored`."""

    line: int
    text: str
    letters: str


def read_sentences(path: Path, options: NormalizerOptions) -> tuple[list[Sentence], list[Rejection]]:
    """Return the sentences of a text file that have letters, and the lines that cannot be used.

    Raises:
        OSError: the file cannot be read.
    """
    found: list[Sentence] = []
    rejections = []
    for where, line in text_lines(path):
        if isinstance(line, Rejection):
            rejections.append(line)
            continue
        found += _of_line(where.line or 1, line, options)
        if len(found) > MAX_SENTENCES:
            reason = f"more than {MAX_SENTENCES:,} sentences for one recording; the rest is not used"
            return found[:MAX_SENTENCES], [*rejections, Rejection(where, "not_text", reason)]
    return found, rejections


def split_sentences(line: str) -> list[str]:
    """Return the sentences of a line, with their marks."""
    return [part for match in _SENTENCE.finditer(line) if (part := match.group().strip())]


def _of_line(number: int, line: str, options: NormalizerOptions) -> Iterator[Sentence]:
    texts: list[str] = []
    pending = ""
    for part in split_sentences(line):
        pending = f"{pending} {part}".strip()
        if len(scored(pending, options)) >= MIN_LETTERS:
            texts.append(pending)
            pending = ""
    if pending and texts:
        texts[-1] += f" {pending}"
    elif pending:
        texts.append(pending)
    for text in texts:
        if letters := scored(text, options):
            yield Sentence(number, text, letters)


def word_ends(sentence: Sentence, options: NormalizerOptions) -> list[tuple[str, int]]:
    """Return each word of a sentence, and the number of letters up to its end; -1 within a reading.

    A word may be read together with the next, such as a number with its unit: no place to cut.
    """
    words = sentence.text.split()
    found = []
    for count, word in enumerate(words, start=1):
        before, after = (scored(" ".join(part), options) for part in (words[:count], words[count:]))
        found.append((word, len(before) if before + after == sentence.letters else -1))
    return found
