"""Compilation of the blocks before the first step.

The blocks become one graph, with the attention as an operator of it (`GPT2.compile_blocks`). With
--batch-tokens it has one length, to which a batch is padded with a tail that no sample sees. The batches of
an epoch differ by up to the longest sample, so a graph for the longest batch would pad all the others. Its
length is the mean batch and half of the longest sample:

    mean batch       graph   --batch-tokens
    |------------------|----------|            longer batches, about 5 %, do without the graph

So do batches that would fill at most half of it, such as parts after a lack of memory. With --batch-size, or
several ranks, the graph takes any length.

    batch of training samples --forward and backward--> compiled, or the reason why --compile is off

Only training steps use the graph. What is compiled is cached, so that the next start takes seconds.
"""

import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import shorten
from threading import Event, Thread

from indextts.runs.schedule import EpochSize
from indextts.training.batches import Batch, Sample
from indextts.training.gradients import TokenCounts
from indextts.training.run import Inputs, Run

logger = logging.getLogger(__name__)

CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"  # of torch
CACHE = Path(".cache/torch/inductor")  # in the home folder; torch's own default does not survive a restart
MULTIPLE = 128  # of the graph's length, for the tiles of matrix products
SECONDS_BETWEEN_LINES = 20
MAX_REASON = 400  # characters


def compile_blocks(
    run: Run, batch_tokens: int, compute: Callable[[TokenCounts, Sequence[Batch]], object]
) -> None:
    """Compile the blocks of the model; where that is impossible or fails, log the reason and do without.

    Args:
        compute: forward and backward of a step; adds to the gradients, which are cleared here.
    """
    inputs, gpt = run.inputs, run.model.gpt
    has_one_length = inputs.ranks.world_size == 1
    num_positions = graph_length(inputs.train_set.size, batch_tokens if has_one_length else 0)
    batch, reason = None, _why_impossible(inputs)
    if not reason:
        batch = _first_batch(inputs, num_positions)
        if batch is None or batch.num_positions <= num_positions // 2:
            reason = f"no readable pairs fill over half of its {num_positions:,} positions"
    if inputs.ranks.any_rank(bool(reason)) or batch is None:
        logger.warning("--compile is off: %s", reason or "another rank cannot compile")
        return
    folder = _use_cache()
    gpt.compile_blocks(num_positions)
    shape = f"{num_positions:,} positions" if num_positions else "any length"
    logger.info("Compiling the blocks for sequences of %s; cache: %s", shape, folder)
    started = time.perf_counter()
    try:
        with _progress(started), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler's, about parts of torch
            compute(TokenCounts(batch.num_text, batch.num_mel), [batch])
    except RuntimeError as error:  # every error of torch's compilers is one, and a lack of memory
        reason = shorten(str(error).strip().split("\n\n")[0], MAX_REASON)  # its advice for developers follows
    run.trained.clear_gradients()
    if inputs.ranks.any_rank(bool(reason)):
        gpt.do_not_compile()
        logger.warning(
            "--compile is off, steps run uncompiled: %s", reason or "the compilation failed on another rank"
        )
        return
    logger.info("Compiled the blocks in %.1f s", time.perf_counter() - started)


def graph_length(size: EpochSize, batch_tokens: int) -> int:
    """Return the positions of the graph's sequences, the same for every start of a run; 0 for any length."""
    if not batch_tokens:
        return 0
    mean = size.num_positions / size.num_batches(0, batch_tokens)
    length = math.ceil((mean + size.longest / 2) / MULTIPLE) * MULTIPLE
    return min(length, batch_tokens)


def _why_impossible(inputs: Inputs) -> str:
    if not inputs.is_packed:
        return "it needs --padding none"
    if not inputs.attention.can_compile:
        return (
            f"a compiled graph cannot contain the attention {inputs.attention.name!r}; use --amp on a GPU of "
            "compute capability 8.0 or higher"
        )
    return ""


def _first_batch(inputs: Inputs, num_positions: int) -> Batch | None:
    """Return readable samples that fill `num_positions`, by default at least two; None without any."""
    lengths = inputs.train_set.lengths
    limit, samples, total = num_positions or 2 * int(lengths.max()), list[Sample](), 0
    for index, length in enumerate(lengths.tolist()):
        if total + length > limit:
            continue
        sample = inputs.train_set[index]
        if isinstance(sample, Sample):
            samples.append(sample)
            total += length
    return inputs.collate(samples) if samples else None


def _use_cache() -> str:
    """Return the folder of compiled code, in the home folder unless the environment names one."""
    if CACHE_VARIABLE not in os.environ:
        folder = Path.home() / CACHE
        with suppress(OSError):  # no writable home: torch's default, a temporary folder
            folder.mkdir(parents=True, exist_ok=True)
            os.environ[CACHE_VARIABLE] = str(folder)
    return os.environ.get(CACHE_VARIABLE, "a temporary folder")


@contextmanager
def _progress(started: float) -> Iterator[None]:
    """Log the time since `started` every 20 seconds."""
    is_done = Event()

    def report() -> None:
        while not is_done.wait(SECONDS_BETWEEN_LINES):
            logger.info("Compiling the blocks: %.0f s so far", time.perf_counter() - started)

    thread = Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
