"""Tokenize many texts with all cores. No torch here."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.data.pair_columns import Ragged
from indextts.data.progress import Progress
from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.system.process_pool import map_in_processes
from indextts.system.processes import num_cores
from indextts.text.bases import load_tokenizer
from indextts.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

CHUNK = 500  # texts of a task, which take about half a second
MIN_TEXTS_PER_PROCESS = 2_000  # with fewer, a process takes longer to start than to tokenize
MAX_PROCESSES = 32


class BuildStoppedError(Exception):
    """A stop was requested during the build of an index."""


def tokenize(
    texts: Sequence[str], tokenizer: Tokenizer, should_stop: Callable[[], bool] = lambda: False
) -> Ragged:
    """Return the token ids of texts.

    Args:
        should_stop: asked about twice a second.

    Raises:
        UserError: a process was killed.
        BuildStoppedError: `should_stop` became true.
    """
    parts = []
    progress = Progress("Tokenizing", len(texts), noun="texts")
    for part in _tokenized(texts, tokenizer, should_stop):
        if should_stop():
            raise BuildStoppedError
        parts.append(part)
        for _ in range(len(part)):
            progress.advance()
    return Ragged.joined(parts) if parts else Ragged.of([], np.int32)


def _tokenized(
    texts: Sequence[str], tokenizer: Tokenizer, should_stop: Callable[[], bool]
) -> Iterator[Ragged]:
    """Yield the token ids of one chunk of texts after another."""
    chunks = [texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK)]
    num_processes = max(1, min(num_cores(), len(texts) // MIN_TEXTS_PER_PROCESS, MAX_PROCESSES))
    if len(texts) >= MIN_TEXTS_PER_PROCESS:
        logger.info("Tokenizing %d texts with %s", len(texts), counted(num_processes, "process", "processes"))
    if num_processes == 1:
        yield from (_encode(chunk, tokenizer) for chunk in chunks)
        return
    try:
        yield from map_in_processes(_Tokenizing(tokenizer.path, tokenizer.options), chunks, num_processes)
    except UserError:
        if should_stop():  # the signal went to all processes
            raise BuildStoppedError from None
        raise


@dataclass(frozen=True)
class _Tokenizing:
    """Work of a process: the path and not the tokenizer, which each process loads.

    A stop signal that kills a process while it starts must not leave this one writing to a full pipe.
    """

    path: Path
    options: NormalizerOptions

    @cached_property
    def tokenizer(self) -> Tokenizer:
        os.setpgid(0, 0)  # a stop signal for the group is for the parent
        return load_tokenizer(self.path, self.options)

    def __call__(self, texts: Sequence[str]) -> Ragged:
        return _encode(texts, self.tokenizer)


def _encode(texts: Sequence[str], tokenizer: Tokenizer) -> Ragged:
    return Ragged.of([tokenizer.encode(text) for text in texts], np.int32)
