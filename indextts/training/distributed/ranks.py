"""The processes of a training as one: what they tell each other, and what is said when one of them is gone.

    torchrun's environment --joined--> Ranks --agree, from_first, gathered, add_up--> the same on all of them

Numbers for decisions travel over gloo, from host memory to host memory, so that no card is waited for;
gradients over the device's own backend, NCCL on cards. One process alone has no group at all.

Not the DistributedDataParallel wrapper: it sums inside of the backward pass. A process whose memory runs out
there does its share again in smaller parts, and the others would wait for sums that nobody sends. So each
process does its whole share first, and then all of them add up.

A process that ends for a reason writes it to torchrun's store before, where the others find it when their
connections break. One that was killed writes nothing: it is found by its absence.
"""

import json
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore, Store, rendezvous  # type: ignore[attr-defined]

from indextts.errors import CHECK_FAILED, DISK_FULL, DISK_FULL_ERRNOS, PROCESS_LOST, UserError
from indextts.system.processes import Process, is_alive, this_process
from indextts.system.signals import StopRequest
from indextts.training.distributed.torchrun import Place, log_name

# The first process may read gigabytes, speak samples or wait for a disk while the others wait for it.
PATIENCE = timedelta(minutes=30)
LOOK_FOR_REASON_S = 3.0
PARTING_S = 5.0
STOPPED_EARLY = "Stopped before anything was loaded; the same command starts again"

ValueT = TypeVar("ValueT")


class Ranks:
    """This process among those that train together; alone, everything is what it is here."""

    def __init__(self, place: Place = Place()) -> None:  # noqa: B008 - frozen
        self.place = place

    @property
    def rank(self) -> int:
        return self.place.rank

    @property
    def size(self) -> int:
        return self.place.size

    @property
    def is_first(self) -> bool:
        """Whether this process writes the run directory."""
        return self.place.is_first

    @property
    def is_alone(self) -> bool:
        return self.place.size == 1

    @property
    def seed(self) -> tuple[int, ...]:
        """What this process adds to the seeds of what must differ between processes."""
        return () if self.is_alone else (self.rank,)

    def agree(self, numbers: Sequence[int]) -> list[int]:
        """Return the sums of `numbers` over all processes."""
        if self.is_alone:
            return list(numbers)
        sums = torch.tensor(numbers, dtype=torch.int64)
        with self._together():
            dist.all_reduce(sums)
        return sums.tolist()

    def is_any(self, is_so: bool) -> bool:
        """Return whether it is so in any process."""
        return self.agree([is_so])[0] > 0

    def wait_for_all(self) -> None:
        """Return when all processes have come here."""
        self.agree([0])

    def from_first(self, value: ValueT | None) -> ValueT:
        """Return what the first process has; `value` does not count in the others."""
        values = [value]
        if not self.is_alone:
            with self._together():
                dist.broadcast_object_list(values, src=0)
        return values[0]  # type: ignore[return-value]

    def gathered(self, value: ValueT) -> list[ValueT]:
        """Return what each process has, by rank."""
        if self.is_alone:
            return [value]
        values: list[Any] = [None] * self.size
        with self._together():
            dist.all_gather_object(values, value)
        return values

    def add_up(self, tensor: Tensor) -> None:
        """Replace a contiguous `tensor` by its sum over all processes; a card's host does not wait for it."""
        if not self.is_alone:
            with self._together():
                dist.all_reduce(tensor)

    @contextmanager
    def _together(self) -> Iterator[None]:
        """Say of a broken connection that a process is gone."""
        try:
            yield
        except RuntimeError as error:  # all errors of torch.distributed are
            raise LostProcessError(str(error).splitlines()[0]) from error


ALONE = Ranks()


class LostProcessError(Exception):
    """Another process can be reached no more."""


@contextmanager
def joined(place: Place, stop: StopRequest) -> Iterator[Ranks]:
    """Join the others; at the end of an own mistake tell them why.

    The group is not taken down: the process shall end by `os._exit`. Taking it down may hang on a card that
    waits for a process that is gone, and on the CPU it was seen to abort now and then.

    Raises:
        UserError: this process was asked to stop before; or one of the others ended, for its reason and with
            its status, PROCESS_LOST where it gave none.
    """
    if place.size == 1:
        yield ALONE
        return
    if stop.signal is not None:  # the others may be gone, and would be waited for
        raise UserError(STOPPED_EARLY, 128 + stop.signal)
    with stop.suspended():  # nothing is loaded yet, and the C++ that waits here would not see a note
        try:
            store = _meet(place)
        except RuntimeError as error:  # all errors of torch.distributed are
            raise UserError(
                f"The processes did not find each other ({str(error).splitlines()[0]}): see what the others "
                "say; with several machines, whether the address is right, its port open, and "
                "GLOO_SOCKET_IFNAME the network between them (docs/several-gpus.md)",
                PROCESS_LOST,
            ) from error
    ranks = Ranks(place)
    reasons = Reasons(PrefixStore("reasons", store), ranks)
    try:
        reasons.meet()
        yield ranks
        ranks.wait_for_all()
        reasons.part()
    except LostProcessError as error:
        lost = reasons.of_the_lost(str(error))
        reasons.pass_on(lost)
        raise lost from error
    except BaseException as error:
        reasons.tell(error)
        raise


def _meet(place: Place) -> Store:
    """Make the group of processes; return the store that they share."""
    store, _, _ = next(rendezvous("env://", timeout=PATIENCE))
    # torchrun keeps one store over its restarts: addresses and reasons of before shall not be found in it
    store = PrefixStore(f"start{place.restarts}-of{place.size}", store)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, timeout=PATIENCE)
    return store


class Reasons:
    """Why processes ended, in a store that outlives them."""

    def __init__(self, store: Store, ranks: Ranks) -> None:
        self._store, self._ranks = store, ranks
        self._everybody: list[tuple[str, Process]] = []

    def meet(self) -> None:
        """Learn who the others are, to see later who is gone."""
        self._everybody = self._ranks.gathered((socket.gethostname(), this_process()))

    def part(self) -> None:
        """Return when all came to the end: who closes connections first may break those of the others."""
        deadline = time.monotonic() + PARTING_S
        try:
            self._store.add("parted", 1)
            while self._store.add("parted", 0) < self._ranks.size and time.monotonic() < deadline:
                time.sleep(0.01)
        except RuntimeError:  # the launcher is gone, and the store with it
            return

    def tell(self, error: BaseException) -> None:
        """Leave word that this process ends by `error`."""
        if isinstance(error, UserError):
            status, reason = error.exit_status, str(error)
        else:
            is_full = isinstance(error, OSError) and error.errno in DISK_FULL_ERRNOS
            status = DISK_FULL if is_full else CHECK_FAILED
            reason = f"{type(error).__name__}: {error}"
        rank = self._ranks.rank
        self._leave(UserError(f"Process {rank} ended: {reason} ({log_name(rank)})", status))

    def pass_on(self, lost: UserError) -> None:
        """Leave word of whose loss this process ends by: its own end would hide that from its neighbours."""
        self._leave(lost)

    def _leave(self, end: UserError) -> None:
        word = json.dumps({"status": end.exit_status, "reason": str(end)})
        try:
            self._store.set(str(self._ranks.rank), word)
        except RuntimeError:  # the launcher is gone too
            return

    def of_the_lost(self, problem: str) -> UserError:
        """Return why another process can be reached no more, as far as it can be known.

        Args:
            problem: what this process saw of it.
        """
        deadline = time.monotonic() + LOOK_FOR_REASON_S
        while time.monotonic() < deadline:
            told = self._told()
            if told is not None:
                return told
            gone = self._gone_from_this_host()
            if gone:
                return self._lost(f"Process {gone[0]} is gone without a word, as when it is killed", gone[0])
            time.sleep(0.05)
        here = socket.gethostname()
        elsewhere = [rank for rank, (host, _) in enumerate(self._everybody) if host != here]
        if elsewhere:
            hosts = sorted({self._everybody[rank][0] for rank in elsewhere})
            return self._lost(f"A process on {' or '.join(hosts)} is gone ({problem})", elsewhere[0])
        return self._lost(f"A process can be reached no more ({problem})", None)

    def _told(self) -> UserError | None:
        for rank in range(self._ranks.size):
            try:
                if not self._store.check([str(rank)]):
                    continue
                word = json.loads(self._store.get(str(rank)))
            except RuntimeError:
                return None
            return UserError(word["reason"], word["status"])
        return None

    def _gone_from_this_host(self) -> list[int]:
        here = socket.gethostname()
        return [
            rank
            for rank, (host, process) in enumerate(self._everybody)
            if host == here and rank != self._ranks.rank and not _lives(process)
        ]

    def _lost(self, what: str, rank: int | None) -> UserError:
        logs = log_name(rank) if rank is not None else "train.log, train_rank*.log"
        return UserError(
            f"{what}; its log is {logs}, and torchrun's own lines say how it ended. The last checkpoint is "
            "untouched: go on with --resume auto",
            PROCESS_LOST,
        )


def _lives(process: Process) -> bool:
    try:
        return is_alive(process)
    except OSError:
        return True
