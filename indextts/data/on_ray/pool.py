"""Ordered and fault-tolerant map over the processes of a Ray cluster.

    tasks --> a process for each GPU, machine or core --> results, in the order of the tasks

A process is an actor that initialises once and then runs one task at a time. If the process or its machine
dies, another process runs the task again, and nothing else is lost. Machines that join later get processes
too.

Ray Data is not suitable: it splits and merges its Arrow blocks by size, requires PyArrow and pandas, and does
not count how often a batch kills its process. This pool runs the tasks as given, returns their results
unchanged, and reports a task that always kills its process.
"""

import heapq
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.system.processes import git_commit

logger = logging.getLogger(__name__)

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

MAX_DEATHS = 3  # of processes with the same task, or in a row at the same place
AHEAD_PER_PROCESS = 3  # tasks that may be running or done before the next result in order
SCAN_INTERVAL_S = 5.0  # for machines that joined
WAIT_S = 1.0


@dataclass(frozen=True)
class Place:
    """Slot for a process."""

    node: str  # Ray's id of the machine
    machine: str
    number: int  # the index of the slot on its machine
    num_cores: int
    has_gpu: bool = False


Per = Literal["gpu", "machine", "core"]
Begin = Callable[[Place], tuple[Mapping[str, str], Callable[[TaskT], ResultT]]]


class Pool(Generic[TaskT, ResultT]):
    """Pool of identical processes; call `close` at the end.

    Args:
        begin: called in each process with its place; returns facts, and the function that runs a task. It is
            pickled, the function is not.
        facts: facts of this program, name to value, that every process must share.
        per: the resource that each process gets.
    """

    def __init__(self, begin: Begin[TaskT, ResultT], facts: Mapping[str, str], per: Per) -> None:
        """Start the processes in the background; a UserError if no machine has the resource."""
        self._begin = ray.put(begin)
        own = {**facts, **_version()}
        self._facts = {name: (value, "the machine of this program") for name, value in own.items()}
        self._per = per
        self._actors: dict[Place, Any] = {}
        self._calls: dict[Any, tuple[Place, int | None]] = {}  # with the task; None for the initialisation
        self._idle: list[Place] = []
        self._deaths_at: Counter[Place] = Counter()
        self._last_scan = -math.inf
        self._start_missing()

    def close(self) -> None:
        for actor in self._actors.values():
            ray.kill(actor)
        self._actors = {}

    def fact(self, name: str) -> str:
        """Return a fact of the processes; waits until the first process is initialised."""
        while name not in self._facts:
            self._start_missing()
            self._wait({})
        return self._facts[name][0]

    def map(self, tasks: Sequence[TaskT], shown: Callable[[TaskT], str]) -> Iterator[ResultT]:
        """Yield the result of each task, in order.

        Args:
            shown: describes a task, for messages.

        Raises:
            UserError: a task kills its process repeatedly, no machine is left, or a task raised it.
        """
        waiting = list(range(len(tasks)))  # a heap
        deaths: Counter[int] = Counter()
        done: dict[int, ResultT] = {}
        for turn in range(len(tasks)):
            while turn not in done:
                self._start_missing()
                end = turn + AHEAD_PER_PROCESS * len(self._actors)
                # A process gets its next task only after the result of the previous one has arrived: if it
                # dies, it may take a result in transit with it, and the wrong task would be blamed.
                while self._idle and waiting and waiting[0] < end:
                    place, index = self._idle.pop(), heapq.heappop(waiting)
                    self._calls[self._actors[place].do.remote(tasks[index])] = place, index
                lost, machine = self._wait(done)
                if lost is not None:
                    heapq.heappush(waiting, lost)
                    deaths[lost] += 1
                    if deaths[lost] == MAX_DEATHS:
                        raise UserError(
                            f"{shown(tasks[lost])}: {MAX_DEATHS} processes died with this task, the last one "
                            f"on {machine}; check these files and the memory of the machines, then run the "
                            "same command again"
                        )
                    logger.warning("A process on %s died; repeating %s", machine, shown(tasks[lost]))
            yield done.pop(turn)

    def _wait(self, done: dict[int, ResultT]) -> tuple[int | None, str]:
        """Wait up to WAIT_S for a call and add its result to `done`; return a lost task and its machine."""
        ready, _ = ray.wait(list(self._calls), num_returns=1, timeout=WAIT_S)
        if not ready:
            return None, ""
        place, index = self._calls.pop(ready[0])
        try:
            value = ray.get(ready[0])
        except RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise UserError(f"{place.machine}: {error.cause}", error.cause.exit_status) from None
            raise
        except RayError as error:
            logger.debug("%s: %s", place.machine, error)
            self._remove_dead(place, is_initialised=index is not None)
            return index, place.machine
        if index is None:
            for name, fact in value.items():
                first, where = self._facts.setdefault(name, (fact, place.machine))
                if fact != first:
                    raise UserError(
                        f"{place.machine}: {name} is {fact}, but {first} on {where}; use the same files and "
                        "versions on all machines of the cluster"
                    )
        else:
            done[index] = value
            self._deaths_at.pop(place, None)
        self._idle.append(place)
        return None, ""

    def _remove_dead(self, place: Place, *, is_initialised: bool) -> None:
        ray.kill(self._actors.pop(place))  # it may only be disconnected, and must not come back
        self._last_scan = -math.inf
        self._deaths_at[place] += 1
        if self._deaths_at[place] == MAX_DEATHS:
            logger.warning(
                "Not using one slot of %s any more: %d processes died there in a row",
                place.machine,
                MAX_DEATHS,
            )
        elif not is_initialised:
            logger.warning("A process on %s died during initialisation; starting another one", place.machine)

    def _start_missing(self) -> None:
        """Start a process in every free slot."""
        if time.monotonic() - self._last_scan < SCAN_INTERVAL_S:
            return
        self._last_scan = time.monotonic()
        for place in _places(self._per):
            if place not in self._actors and self._deaths_at[place] < MAX_DEATHS:
                self._start(place)
                logger.info(
                    "Starting a process on %s, with %s", place.machine, counted(place.num_cores, "core")
                )
        if not self._actors:
            excluded = sum(deaths >= MAX_DEATHS for deaths in self._deaths_at.values())
            raise UserError(
                f"--engine ray: no machine of the cluster has a {'GPU' if self._per == 'gpu' else 'core'} "
                f"available ({counted(excluded, 'slot')} excluded because processes died there); check "
                "`ray status` and the memory of the machines, then run the same command again"
            )

    def _start(self, place: Place) -> None:
        self._actors[place] = actor = (
            ray.remote(_Actor)
            .options(
                num_cpus=place.num_cores,
                num_gpus=int(place.has_gpu),
                scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
            )
            .remote()
        )
        self._calls[actor.begin.remote(self._begin, place)] = place, None


class _Actor:
    """Actor in a process of the cluster."""

    def begin(self, begin: Begin[Any, Any], place: Place) -> Mapping[str, str]:
        facts, self._do = begin(place)
        return {**facts, **_version()}

    def do(self, task: Any) -> Any:
        return self._do(task)


def has_gpus() -> bool:
    """Return whether a machine of the cluster has a GPU."""
    return any(_num_gpus(node) for node in _machines())


def _places(per: Per) -> Iterator[Place]:
    """Yield the slots for processes, each with its share of the cores."""
    for node in _machines():
        num_cores = int(node["Resources"].get("CPU", 0))
        number = {"gpu": _num_gpus(node), "machine": min(1, num_cores), "core": num_cores}[per]
        for n in range(number):
            yield Place(
                node["NodeID"], node["NodeManagerAddress"], n, num_cores // number, has_gpu=per == "gpu"
            )


def _machines() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _num_gpus(node: Mapping[str, Any]) -> int:
    return int(node["Resources"].get("GPU", 0))


def _version() -> dict[str, str]:
    return {"the commit of this program": git_commit() or "unknown"}
