"""Loading of micro-batches in order, by this process or by worker processes.

    batches --indices, in turn--> worker 0, worker 1, ... --arrays, a pipe each--> reader thread --> the loop

A worker sends numpy arrays through its own pipe. Tensors would go through /dev/shm, where a worker blocks for
ever once it is full, and Docker gives a container 64 MB of it. Workers share no lock either, so a killed
worker blocks no other.
"""

import ctypes
import io
import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess

import torch
from torch import Tensor

from indextts.errors import CHECK_FAILED, UserError
from indextts.training.batches import Collate, MicroBatch, PairDataset, Sample, Unreadable

PR_SET_PDEATHSIG = 1

BATCHES_AHEAD = 2  # per worker
MAX_SILENCE_S = 300.0  # without a batch that the loop waits for
POLL_INTERVAL_S = 0.2
JOIN_TIMEOUT_S = 5.0


class StoppedWhileLoadingError(Exception):
    """A stop was requested while the loop waited for a worker."""


def load_batches(
    dataset: PairDataset,
    batches: Iterable[Sequence[int]],
    num_workers: int,
    collate: Collate,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[MicroBatch]:
    """Yield the samples of `batches`, built by `collate`; in pinned memory if there is a GPU.

    Args:
        num_workers: processes that read; 0 for this one.
        should_stop: asked while no worker answers.

    Raises:
        UserError: a worker died, or does not answer.
        StoppedWhileLoadingError: `should_stop` became true before a worker answered.
    """
    if num_workers:
        yield from _load_with_workers(dataset, batches, num_workers, collate, should_stop)
        return
    for indices in batches:
        yield _pinned(_read(dataset, indices, collate))


def configure_worker_signals() -> None:
    """Protect this worker from the trainer's stop signals, and let it end with the trainer.

    Ctrl-C goes to the whole process group, and a worker killed by it would break the step in progress. So
    each worker has its own process group, and the kernel kills it when the trainer ends.
    """
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def collate_readable(items: Sequence[Sample | Unreadable], collate: Collate) -> MicroBatch:
    """Return the readable samples as one batch, and the unreadable ones."""
    samples = [item for item in items if isinstance(item, Sample)]
    return MicroBatch(
        batch=collate(samples) if samples else None,
        ids=tuple(item.id for item in items),
        unreadable=tuple(item for item in items if isinstance(item, Unreadable)),
    )


def _load_with_workers(
    dataset: PairDataset,
    batches: Iterable[Sequence[int]],
    num_workers: int,
    collate: Collate,
    should_stop: Callable[[], bool],
) -> Iterator[MicroBatch]:
    workers = [_Worker.start(dataset, collate) for _ in range(num_workers)]
    reader = ThreadPoolExecutor(1, "batches")
    if torch.cuda.is_available():  # in another thread, the first GPU would be the default
        reader.submit(torch.cuda.set_device, torch.cuda.current_device())
    requests = zip(batches, cycle(workers), strict=False)

    def request(indices: Sequence[int], worker: _Worker) -> tuple[_Worker, Future[MicroBatch]]:
        worker.request(indices)
        return worker, reader.submit(worker.receive)

    try:
        pending = deque(request(*each) for each in islice(requests, BATCHES_AHEAD * num_workers))
        while pending:
            micro_batch = _wait_for(*pending.popleft(), workers, should_stop)
            pending.extend(request(*each) for each in islice(requests, 1))
            yield micro_batch
    finally:
        for worker in workers:
            worker.process.kill()  # also ends the reader, whose pipes break
        reader.shutdown(cancel_futures=True)
        for worker in workers:
            worker.close()


@dataclass(frozen=True)
class _Worker:
    """A process that answers requests in order."""

    process: ForkProcess
    requests: Connection
    answers: Connection

    @classmethod
    def start(cls, dataset: PairDataset, collate: Collate) -> "_Worker":
        requests, own_requests = multiprocessing.Pipe(duplex=False)
        own_answers, answers = multiprocessing.Pipe(duplex=False)
        context = multiprocessing.get_context("fork")
        process = context.Process(target=_serve, args=(dataset, collate, requests, answers), daemon=True)
        process.start()
        requests.close()  # so that a dead worker's pipes break
        answers.close()
        return cls(process, own_requests, own_answers)

    def request(self, indices: Sequence[int]) -> None:
        with suppress(BrokenPipeError):  # `receive` reports the death
            self.requests.send(indices)

    def receive(self) -> MicroBatch:
        """Return the next answer, however long it takes.

        Raises:
            UserError: the worker died.
            RuntimeError: it failed, with its traceback.
        """
        try:
            answer: MicroBatch | str = self.answers.recv()
        except (EOFError, OSError):
            self.process.join(JOIN_TIMEOUT_S)
            status = self.process.exitcode
            how = f"killed by signal {-status}" if status is not None and status < 0 else f"status {status}"
            raise UserError(
                f"A data worker (process {self.process.pid}) ended unexpectedly ({how}); perhaps the machine "
                "ran out of memory: use fewer --num-workers. The last checkpoint is valid, resume with "
                "--resume auto",
                CHECK_FAILED,
            ) from None
        if isinstance(answer, str):
            raise RuntimeError(f"A data worker failed:\n{answer}")
        return _pinned(answer)

    def close(self) -> None:
        self.process.join(JOIN_TIMEOUT_S)
        self.requests.close()
        self.answers.close()


def _serve(dataset: PairDataset, collate: Collate, requests: Connection, answers: Connection) -> None:
    """Answer requests; the main function of a worker."""
    configure_worker_signals()
    torch.set_num_threads(1)
    while True:
        indices = requests.recv()
        try:
            answer: MicroBatch | str = _read(dataset, indices, collate)
        except Exception:  # noqa: BLE001 - the trainer raises it
            answer = traceback.format_exc()
        answers.send_bytes(_dumps(answer))


def _wait_for(
    worker: _Worker, answer: Future[MicroBatch], workers: Sequence[_Worker], should_stop: Callable[[], bool]
) -> MicroBatch:
    """Return the answer of `worker`. Raises as `load_batches`."""
    started = time.monotonic()
    while not wait([answer], POLL_INTERVAL_S).done:
        if should_stop():
            raise StoppedWhileLoadingError
        if time.monotonic() - started > MAX_SILENCE_S:
            raise UserError(
                f"No batch for {MAX_SILENCE_S:.0f} s: data worker {workers.index(worker) + 1} of "
                f"{len(workers)} (process {worker.process.pid}) does not answer; check whether the disk of "
                "the features answers and the machine has free memory. The last checkpoint is valid, resume "
                "with --resume auto",
                CHECK_FAILED,
            )
    return answer.result()


def _read(dataset: PairDataset, indices: Sequence[int], collate: Collate) -> MicroBatch:
    return collate_readable([dataset[index] for index in indices], collate)


def _pinned(micro_batch: MicroBatch) -> MicroBatch:
    return micro_batch.pin_memory() if torch.cuda.is_available() else micro_batch


def _dumps(value: object) -> memoryview:
    """Pickle `value` for `Connection.recv`, its tensors as arrays; torch would use shared memory."""
    content = io.BytesIO()
    pickler = pickle.Pickler(content, protocol=5)
    pickler.dispatch_table = {Tensor: lambda tensor: (torch.from_numpy, (tensor.numpy(),))}
    pickler.dump(value)
    return content.getbuffer()
