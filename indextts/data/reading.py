"""Reader processes: decode and prepare recordings. No torch here, so they start quickly and stay small.

Axes: S samples.

    utterance -> decode, average channels, resample (S,) -> `SpeechBackend.prepare` -> clip

The processes start once. A process that dies (killed for its memory, or by a bug in a decoder) takes its pool
with it. The reader then reads the affected recordings again, each alone in a process, to find the recording
that kills its process, and rejects only that recording.
"""

import itertools
import logging
import multiprocessing
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from indextts.data.manifest import Utterance
from indextts.data.rejected import Rejected
from indextts.errors import UserError
from indextts.features.audio import RecordingError, load_audio
from indextts.system.digest import file_sha256
from indextts.system.process_pool import ProcessPool

logger = logging.getLogger(__name__)

Samples = NDArray[np.float32]
MAX_DEATHS_IN_A_ROW = 5


@dataclass(frozen=True)
class Clip:
    """A decoded recording."""

    id: str
    audio: Path
    audio_sha256: str
    duration_s: float  # of its samples
    prepared: Samples  # the output of the backend's `prepare`


@dataclass(frozen=True)
class Reading:
    """The task of the reader processes."""

    sample_rate_hz: int  # the backend's input rate
    max_duration_s: float  # longer recordings are rejected without decoding
    prepare: Callable[[Samples], Samples]  # that of the backend, which another process can import

    def __call__(self, utterance: Utterance) -> Clip | Rejected:
        """Return the clip of an utterance, or its rejection."""
        try:
            samples = load_audio(utterance.audio, self.sample_rate_hz, self.max_duration_s)
            duration_s = len(samples) / self.sample_rate_hz
            digest = file_sha256(utterance.audio)
            return Clip(utterance.id, utterance.audio, digest, duration_s, self.prepare(samples))
        except RecordingError as error:
            return Rejected.from_error(utterance, error)
        except OSError as error:
            return Rejected.of(utterance, "unreadable", f"cannot be read ({error.strerror})")
        except MemoryError:
            reason = "does not fit into the memory of its reader process; cut the recording or free memory"
            return Rejected.of(utterance, "out_of_memory", reason)


_Task = tuple[Utterance, "Future[Clip | Rejected]"]


class ClipReader:
    """Reader of batches of utterances that reads ahead; use it in a `with` statement.

    Args:
        num_workers: at least 1.
        ahead_s: seconds of audio to read ahead, of at most 96 kB each.
    """

    def __init__(self, reading: Reading, num_workers: int, ahead_s: float) -> None:
        self.reading = reading
        self.num_workers = num_workers
        self.ahead_s = ahead_s
        self._pool = _start(num_workers)
        self._alone: ProcessPool | None = None
        self._deaths_in_a_row = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pool in filter(None, (self._pool, self._alone)):
            pool.shutdown(wait=True, cancel_futures=True)

    def read(self, batches: Iterable[Sequence[Utterance]]) -> Iterator[list[Clip | Rejected]]:
        """Yield the clips of each batch, in order; a UserError if several processes in a row die."""
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
            return utterance, self._pool.submit(self.reading, utterance)
        except BrokenProcessPool:
            logger.warning("A reader process died; reading its recordings again")
            self._pool.shutdown()
            self._pool = _start(self.num_workers)
            return utterance, self._pool.submit(self.reading, utterance)

    def _result(self, task: _Task) -> Clip | Rejected:
        utterance, clip = task
        try:
            result = clip.result()
        except BrokenProcessPool:
            return self._read_alone(utterance)
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
            if self._deaths_in_a_row == MAX_DEATHS_IN_A_ROW:
                raise UserError(
                    f"{utterance.audio}: {MAX_DEATHS_IN_A_ROW} reader processes in a row died, the last one "
                    "with this file; check whether the machine is out of memory, then run the same command "
                    "again"
                ) from None
            return Rejected.of(
                utterance, "reader_died", "the process that read it died twice; convert the file again"
            )
        self._deaths_in_a_row = 0
        return result


def _start(num_workers: int) -> ProcessPool:
    # Not forked from this process, which may have threads and use CUDA.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    # One thread each: on 2 busy cores, several made a clip 8 times as slow.
    return ProcessPool(num_workers, context, partial(threadpool_limits, 1))
