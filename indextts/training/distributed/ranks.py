"""Communication between the ranks of a training run, and the report when a rank is lost.

    torchrun's environment --process_group--> Ranks --broadcast, all_gather, all_reduce--> same on every rank

Numbers for decisions are exchanged over gloo, from host memory to host memory, so that no rank waits for its
GPU. Gradients use the backend of the device, NCCL on GPUs. A single process has no process group.

DistributedDataParallel is not used: it reduces gradients during the backward pass. A rank that runs out of
memory there repeats its shard in smaller parts, and the other ranks would block in an all-reduce that never
comes. So each rank finishes the backward passes of its whole shard, and then all ranks reduce.

A rank that fails writes the reason to torchrun's store, where the other ranks find it when their connections
break. A rank that was killed writes nothing; it is found because its process no longer exists.
"""

import json
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

from indextts.errors import CHECK_FAILED, DISK_FULL, DISK_FULL_ERRNOS, PROCESS_LOST, UserError
from indextts.system.processes import Process, is_alive, this_process
from indextts.system.signals import StopRequest
from indextts.training.distributed.torchrun import RankInfo, log_name

# While the other ranks block, rank 0 may read gigabytes, synthesize samples or wait for a disk.
GROUP_TIMEOUT = timedelta(minutes=30)
EXIT_REASON_TIMEOUT_S = 3.0
SHUTDOWN_TIMEOUT_S = 5.0
STOPPED_BEFORE_LOADING = "Stopped before anything was loaded; run the same command to start again"

ValueT = TypeVar("ValueT")


class Ranks(RankInfo):
    """Collectives between the ranks; without torchrun, each returns the value of the only process."""

    @property
    def is_distributed(self) -> bool:
        return self.world_size > 1

    @property
    def seed_parts(self) -> tuple[int, ...]:
        """Parts that this rank adds to seeds that must differ between ranks."""
        return (self.rank,) if self.is_distributed else ()

    def all_reduce_ints(self, numbers: Sequence[int]) -> list[int]:
        """Return the sum of each of `numbers` over all ranks."""
        if not self.is_distributed:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.int64)
        with self._detecting_lost_ranks():
            dist.all_reduce(sums)
        return sums.tolist()

    def any_rank(self, condition: bool) -> bool:
        """Return whether `condition` is true on any rank."""
        return self.all_reduce_ints([condition])[0] > 0

    def barrier(self) -> None:
        """Block until all ranks have called this."""
        self.all_reduce_ints([0])

    def broadcast(self, value: ValueT | None) -> ValueT:
        """Return the value of rank 0; the `value` of other ranks is ignored."""
        values = [value]
        if self.is_distributed:
            with self._detecting_lost_ranks():
                dist.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[return-value]

    def all_gather(self, value: ValueT) -> list[ValueT]:
        """Return the value of each rank, indexed by rank."""
        if not self.is_distributed:
            return [value]
        values: list[Any] = [None] * self.world_size
        with self._detecting_lost_ranks():
            dist.all_gather_object(values, value)
        return values

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum a contiguous `tensor` over all ranks in place; the host does not wait for a GPU."""
        if self.is_distributed:
            with self._detecting_lost_ranks():
                dist.all_reduce(tensor)

    @contextmanager
    def _detecting_lost_ranks(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # the base class of all errors of torch.distributed
            raise LostRankError(str(error).splitlines()[0]) from error


SINGLE_PROCESS = Ranks()


class LostRankError(Exception):
    """The connection to another rank broke."""


@contextmanager
def process_group(info: RankInfo, stop: StopRequest) -> Iterator[Ranks]:
    """Join the process group; if this rank fails, publish the reason for the other ranks.

    The group is never destroyed, so the process must end with `os._exit`. Destroying it can hang on a GPU
    that waits for a lost rank, and on the CPU it sometimes aborts.

    Raises:
        UserError: this process was asked to stop before it joined; or another rank ended, with that rank's
            reason and exit status, or PROCESS_LOST where it gave none.
    """
    if info.world_size == 1:
        yield SINGLE_PROCESS
        return
    if stop.signal is not None:  # the other ranks may have stopped already, and this one would wait for them
        raise UserError(STOPPED_BEFORE_LOADING, 128 + stop.signal)
    # nothing is loaded yet, and the C++ code that blocks here would not see a recorded signal
    with stop.suspended():
        try:
            store = _initialize(info)
        except RuntimeError as error:  # the base class of all errors of torch.distributed
            raise UserError(
                f"The ranks could not connect ({str(error).splitlines()[0]}): read the logs of the other "
                "ranks; with several machines, check the address, that its port is open, and that "
                "GLOO_SOCKET_IFNAME names the network between them (docs/distributed.md)",
                PROCESS_LOST,
            ) from error
    ranks = Ranks(**vars(info))
    reasons = ExitReasons(PrefixStore("reasons", store), ranks)
    try:
        reasons.exchange_processes()
        yield ranks
        ranks.barrier()
        reasons.wait_for_shutdown()
    except LostRankError as error:
        lost = reasons.find_lost_rank(str(error))
        reasons.publish(lost)
        raise lost from error
    except BaseException as error:
        reasons.publish_failure(error)
        raise


def _initialize(info: RankInfo) -> Store:
    """Initialize the process group; return the store that the ranks share."""
    store, _, _ = next(rendezvous("env://", timeout=GROUP_TIMEOUT))
    # torchrun keeps the store across restarts; the prefix hides addresses and reasons of earlier starts
    store = PrefixStore(f"start{info.num_restarts}-of{info.world_size}", store)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(
        backend, store=store, rank=info.rank, world_size=info.world_size, timeout=GROUP_TIMEOUT
    )
    return store


class ExitReasons:
    """Reasons why ranks ended, in a store that outlives them."""

    def __init__(self, store: Store, ranks: Ranks) -> None:
        self._store, self._ranks = store, ranks
        self._processes: list[tuple[str, Process]] = []  # host and process of each rank

    def exchange_processes(self) -> None:
        """Gather the host and process of every rank, to find out later which of them is lost."""
        self._processes = self._ranks.all_gather((socket.gethostname(), this_process()))

    def wait_for_shutdown(self) -> None:
        """Wait until all ranks are done: a rank that exits early may break the others' connections."""
        deadline = time.monotonic() + SHUTDOWN_TIMEOUT_S
        with suppress(RuntimeError):  # the launcher ended, and the store with it
            self._store.add("done", 1)
            while self._store.add("done", 0) < self._ranks.world_size and time.monotonic() < deadline:
                time.sleep(0.01)

    def publish_failure(self, error: BaseException) -> None:
        """Publish that this rank ends because of `error`."""
        if isinstance(error, UserError):
            status, reason = error.exit_status, str(error)
        else:
            is_full = isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS
            status = DISK_FULL if is_full else CHECK_FAILED
            reason = f"{type(error).__name__}: {error}"
        rank = self._ranks.rank
        self.publish(UserError(f"Rank {rank} failed: {reason} ({log_name(rank)})", status))

    def publish(self, error: UserError) -> None:
        """Publish the reason and the status for the other ranks.

        Of a lost rank too: otherwise the neighbors of this rank would report this one as lost.
        """
        record = json.dumps({"status": error.exit_status, "reason": str(error)})
        with suppress(RuntimeError):  # the launcher ended too
            self._store.set(str(self._ranks.rank), record)

    def find_lost_rank(self, problem: str) -> UserError:
        """Return an error that explains, as far as possible, why a connection broke."""
        deadline = time.monotonic() + EXIT_REASON_TIMEOUT_S
        while time.monotonic() < deadline:
            published = self._published()
            if published is not None:
                return published
            ended = self._ended_on_this_host()
            if ended:
                return self._lost(f"Rank {ended[0]} ended without an error message, as if killed", ended[0])
            time.sleep(0.05)
        here = socket.gethostname()
        elsewhere = [rank for rank, (host, _) in enumerate(self._processes) if host != here]
        if elsewhere:
            hosts = sorted({self._processes[rank][0] for rank in elsewhere})
            return self._lost(f"A rank on {' or '.join(hosts)} is lost ({problem})", elsewhere[0])
        return self._lost(f"The connection to a rank broke ({problem})", None)

    def _published(self) -> UserError | None:
        with suppress(RuntimeError):
            for rank in range(self._ranks.world_size):
                if self._store.check([str(rank)]):
                    record = json.loads(self._store.get(str(rank)))
                    return UserError(record["reason"], record["status"])
        return None

    def _ended_on_this_host(self) -> list[int]:
        here = socket.gethostname()
        return [
            rank
            for rank, (host, process) in enumerate(self._processes)
            if host == here and rank != self._ranks.rank and not _is_running(process)
        ]

    def _lost(self, problem: str, rank: int | None) -> UserError:
        logs = log_name(rank) if rank is not None else "train.log and train_rank*.log"
        return UserError(
            f"{problem}; see {logs} and the output of torchrun for the cause. The last checkpoint is intact: "
            "resume with --resume auto",
            PROCESS_LOST,
        )


def _is_running(process: Process) -> bool:
    try:
        return is_alive(process)
    except OSError:
        return True
