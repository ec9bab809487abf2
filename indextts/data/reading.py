"""Recordings into clips, in processes of their own. No torch here: they start at once and stay small.

Axes: S samples.

    utterance -> decode, average channels, resample (S,) -> what the speech backend makes of samples
                                                            (`SpeechBackend.prepare`) -> clip

The processes are started once. One that dies (killed by the system for its memory, or by a bug of a decoder)
takes the others of its pool with it; then what was being read is read again, each recording alone in a
process, so that it is certain which one kills its reader. That one is rejected, and nothing else.
"""

import itertools
import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indextts.data.feature_shards import file_sha256
from indextts.data.manifest import Utterance
from indextts.data.rejected import Rejected
from indextts.errors import UserError
from indextts.features.audio import RecordingError, load_audio

logger = logging.getLogger(__name__)

Samples = NDArray[np.float32]
MOST_DEATHS_IN_A_ROW = 5


@dataclass(frozen=True)
class Clip:
    """A recording that was read.

    Args:
        id: of the utterance.
        audio: the file that the clip is from.
        audio_sha256: of the file.
        duration_s: of its samples.
        prepared: what the backend's `prepare` made of its samples.
    """

    id: str
    audio: Path
    audio_sha256: str
    duration_s: float
    prepared: Samples


@dataclass(frozen=True)
class Reading:
    """How recordings are read.

    Args:
        sample_rate_hz: that the backend takes.
        max_duration_s: of a recording; of a longer one nothing is decoded.
        prepare: what becomes of the samples (S,); a function that another process can import.
    """

    sample_rate_hz: int
    max_duration_s: float
    prepare: Callable[[Samples], Samples]

    def __call__(self, utterance: Utterance) -> Clip | Rejected:
        """Return the clip of an utterance, or why there is none."""
        try:
            samples = load_audio(utterance.audio, self.sample_rate_hz, self.max_duration_s)
            duration_s = len(samples) / self.sample_rate_hz
            digest = file_sha256(utterance.audio)
            return Clip(utterance.id, utterance.audio, digest, duration_s, self.prepare(samples))
        except RecordingError as error:
            return Rejected.because(utterance, error)
        except OSError as error:
            return Rejected.of(utterance, "unreadable", f"cannot be read ({error.strerror})")
        except MemoryError:
            return Rejected.of(utterance, "out_of_memory", "does not fit into the memory of its reader")


@dataclass(frozen=True)
class _Task:
    utterance: Utterance
    pool: ProcessPoolExecutor
    clip: "Future[Clip | Rejected]"


class ClipReader:
    """Reads batches of utterances ahead of whoever takes them; use it in a `with` statement.

    Args:
        reading: what the processes do.
        num_workers: processes, at least 1.
        ahead_s: seconds of audio that are read ahead; 96 kB a second at most.
    """

    def __init__(self, reading: Reading, num_workers: int, ahead_s: float) -> None:
        self.reading = reading
        self.num_workers = num_workers
        self.ahead_s = ahead_s
        self._pool = _start(num_workers)
        self._alone: ProcessPoolExecutor | None = None
        self._deaths_in_a_row = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for pool in filter(None, (self._pool, self._alone)):
            pool.shutdown(wait=True, cancel_futures=True)

    def read(self, batches: Iterable[Sequence[Utterance]]) -> Iterator[list[Clip | Rejected]]:
        """Yield the clips of each batch, in order.

        Raises:
            UserError: one reader after the other dies, whatever it reads.
        """
        waiting: deque[tuple[float, list[_Task]]] = deque()
        waiting_s = 0.0
        for batch in itertools.chain(batches, itertools.repeat(())):
            if batch:
                seconds = sum(utterance.duration_s for utterance in batch)
                waiting.append((seconds, [self._submit(utterance) for utterance in batch]))
                waiting_s += seconds
            while waiting and (waiting_s > self.ahead_s or not batch):
                seconds, tasks = waiting.popleft()
                waiting_s -= seconds
                yield [self._result(task) for task in tasks]
            if not batch:
                return

    def _submit(self, utterance: Utterance) -> _Task:
        try:
            return _Task(utterance, self._pool, self._pool.submit(self.reading, utterance))
        except BrokenProcessPool:
            self._replace(self._pool)
            return _Task(utterance, self._pool, self._pool.submit(self.reading, utterance))

    def _result(self, task: _Task) -> Clip | Rejected:
        try:
            result = task.clip.result()
        except BrokenProcessPool:
            self._replace(task.pool)
            result = self._read_alone(task.utterance)
        else:
            self._deaths_in_a_row = 0
        return result

    def _read_alone(self, utterance: Utterance) -> Clip | Rejected:
        self._alone = self._alone or _start(1)
        try:
            result = self._alone.submit(self.reading, utterance).result()
        except BrokenProcessPool:
            self._alone.shutdown()
            self._alone = None
            self._deaths_in_a_row += 1
            if self._deaths_in_a_row == MOST_DEATHS_IN_A_ROW:
                raise UserError(
                    f"{MOST_DEATHS_IN_A_ROW} processes that read recordings died one after the other, the "
                    f"last with {utterance.audio}: look whether the machine is out of memory, then run the "
                    "same command again"
                ) from None
            return Rejected.of(
                utterance, "reader_died", "the process that read it died, twice; convert the file anew"
            )
        self._deaths_in_a_row = 0
        return result

    def _replace(self, broken: ProcessPoolExecutor) -> None:
        """Start a new pool, unless the broken one was replaced already."""
        if broken is self._pool:
            logger.warning("A process that reads recordings died; what it read is read again")
            broken.shutdown()
            self._pool = _start(self.num_workers)


def _start(num_workers: int) -> ProcessPoolExecutor:
    # From a server process and not forked from this one: it may have threads, and CUDA in use.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return ProcessPoolExecutor(num_workers, mp_context=context, initializer=_begin_reading)


def _begin_reading() -> None:
    """Leave Ctrl-C to the parent, never outlive it however it ends, and compute on one thread."""
    threadpool_limits(1)  # the processes are many; on 2 busy cores threads made a clip 8 times as slow
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent: Any = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()
