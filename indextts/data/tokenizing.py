"""Tokenize many texts with all cores. No torch here."""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.data.pair_columns import Ragged
from indextts.data.progress import Progress
from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.system.process_pool import ProcessPool
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
    # Not forked: the parent has threads. The path and not the tokenizer: a stop signal that kills a process
    # while it starts must not leave this one writing to a full pipe.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPool(num_processes, context, _begin, (tokenizer.path, tokenizer.options))
    try:
        yield from pool.map(_encode_in_worker, chunks)
    except BrokenProcessPool:
        if should_stop():  # the signal went to all processes
            raise BuildStoppedError from None
        raise UserError(
            "a process that tokenizes the texts was killed, probably because memory ran out; free memory and "
            "start again"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


_tokenizers: list[Tokenizer] = []  # of a worker process, set when it starts


def _begin(path: Path, options: NormalizerOptions) -> None:
    """Prepare a worker process: it ends with its parent, and stop signals to the group are for the parent."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
    _tokenizers.append(load_tokenizer(path, options))


def _encode_in_worker(texts: Sequence[str]) -> Ragged:
    return _encode(texts, _tokenizers[0])


def _encode(texts: Sequence[str], tokenizer: Tokenizer) -> Ragged:
    return Ragged.of([tokenizer.encode(text) for text in texts], np.int32)
