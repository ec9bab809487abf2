"""An ordered map over processes on the machines of a Ray cluster, any of which may die.

    tasks --> a process for each card, machine or core --> results, in the order of the tasks

A process is an actor: it loads once what it needs, then does one task after the other. If it dies, or its
machine does, the task that it was at is done again, by another or by its successor, and nothing else is lost.
Machines that join later get processes too.

Why not Ray Data: its blocks are Arrow tables, which it cuts and joins by their bytes, it wants PyArrow and
pandas, and it does not count how often one batch killed its process. Here the tasks are those that were
given, the results are the objects that were returned, and a task that always kills is named.
"""

import heapq
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from indextts.errors import UserError
from indextts.system.processes import git_commit

logger = logging.getLogger(__name__)

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

MOST_DEATHS = 3  # of processes that did one task, or one after the other at one place
AHEAD_EACH = 3  # tasks that may be under way or done ahead of the one whose turn it is
LOOK_EVERY_S = 5.0  # for machines that joined
WAIT_S = 1.0
LONG_S = 60.0


@dataclass(frozen=True)
class Place:
    """Where a process may run.

    Args:
        node: Ray's name of the machine.
        machine: its address.
        number: of the process on its machine.
        num_cores: that the process has for itself.
    """

    node: str
    machine: str
    number: int
    num_cores: int
    has_card: bool = False


Per = Literal["card", "machine", "core"]
Begin = Callable[[Place], tuple[Mapping[str, str], Callable[[TaskT], ResultT]]]


@dataclass
class _Process:
    """A process and what it is at: the number of a task, None for the loading that comes first.

    It gets the next task when the result of the last one is here: a process that dies may take a result with
    it that was on its way, and the wrong task would be done again, and blamed.
    """

    actor: Any
    given: tuple[Any, int | None] | None
    began: float = field(default_factory=time.monotonic)
    is_ready: bool = False
    is_late: bool = False


@dataclass(frozen=True)
class _Ended(Generic[ResultT]):
    """What ended on a machine.

    Args:
        lost: the task that a process was at which died.
        results: of a task, by its number.
    """

    machine: str
    lost: int | None
    results: Mapping[int, ResultT]


class Pool(Generic[TaskT, ResultT]):
    """Processes that all do the same; `close` it.

    Args:
        begin: called in each process with its place; returns facts, and the function that does a task. It is
            pickled, the function is not.
        facts: what must be the same everywhere, and is here: a name, as a sentence needs it, and a value.
        per: what there is a process for.
    """

    def __init__(self, begin: Begin[TaskT, ResultT], facts: Mapping[str, str], per: Per) -> None:
        """Start the processes, which load what they need meanwhile.

        Raises:
            UserError: no machine of the cluster has what a process needs.
        """
        self._begin = ray.put(begin)
        here = {**facts, **_version()}
        self._facts = {name: (value, "the machine of this program") for name, value in here.items()}
        self._per = per
        self._processes: dict[Place, _Process] = {}
        self._deaths_at: Counter[Place] = Counter()
        self._looked = -math.inf
        self._fill_places()

    def close(self) -> None:
        for process in self._processes.values():
            ray.kill(process.actor)
        self._processes = {}

    def fact(self, name: str) -> str:
        """Return what the processes found, as soon as the first has loaded what it needs."""
        while name not in self._facts:
            self._fill_places()
            self._next_end()
        return self._facts[name][0]

    def map(self, tasks: Sequence[TaskT], shown: Callable[[TaskT], str]) -> Iterator[ResultT]:
        """Yield the result of each task, in order.

        Args:
            shown: what a task is, for messages.

        Raises:
            UserError: a task kills its process again and again, or no machine is left; or a task raised it.
        """
        waiting = list(range(len(tasks)))  # a heap
        deaths: Counter[int] = Counter()
        done: dict[int, ResultT] = {}
        for turn in range(len(tasks)):
            while turn not in done:
                self._fill_places()
                self._hand_out(tasks, waiting, turn + AHEAD_EACH * len(self._processes))
                ended = self._next_end()
                if ended.lost is not None:
                    heapq.heappush(waiting, ended.lost)
                    deaths[ended.lost] += 1
                    if deaths[ended.lost] == MOST_DEATHS:
                        raise UserError(
                            f"{MOST_DEATHS} processes died at {shown(tasks[ended.lost])}, the last of them "
                            f"on {ended.machine}: look at these files and whether the machines are out of "
                            "memory, then run the same command again"
                        )
                    logger.warning(
                        "A process on %s died; done again: %s", ended.machine, shown(tasks[ended.lost])
                    )
                done |= ended.results
            yield done.pop(turn)

    def _hand_out(self, tasks: Sequence[TaskT], waiting: list[int], end: int) -> None:
        """Give waiting tasks before `end` to the processes that have none."""
        for process in self._processes.values():
            if process.is_ready and process.given is None and waiting and waiting[0] < end:
                number = heapq.heappop(waiting)
                process.given = process.actor.do.remote(tasks[number]), number

    def _next_end(self) -> _Ended[ResultT]:
        """Wait a moment for what ends next: a task, a loading, a process, or nothing."""
        first_of = {process.given[0]: place for place, process in self._processes.items() if process.given}
        ready, _ = ray.wait(list(first_of), num_returns=1, timeout=WAIT_S)
        if not ready:
            self._tell_of_late_ones()
            return _Ended("", None, {})
        place = first_of[ready[0]]
        process = self._processes[place]
        try:
            value = ray.get(ready[0])
        except RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise UserError(f"{place.machine}: {error.cause}", error.cause.exit_status) from None
            raise
        except RayError as error:
            return self._bury(place, error)
        assert process.given is not None
        number = process.given[1]
        process.given = None
        if number is None:
            self._compare(place, value)
            process.is_ready = True
            return _Ended(place.machine, None, {})
        self._deaths_at.pop(place, None)
        return _Ended(place.machine, None, {number: value})

    def _bury(self, place: Place, error: RayError) -> _Ended[ResultT]:
        process = self._processes.pop(place)
        ray.kill(process.actor)  # if it is but out of reach, it must not come back
        self._looked = -math.inf
        self._deaths_at[place] += 1
        logger.debug("%s: %s", place.machine, error)
        lost = process.given[1] if process.given else None
        if self._deaths_at[place] == MOST_DEATHS:
            logger.warning("%s is left out: %d processes died there in a row", place.machine, MOST_DEATHS)
        elif lost is None:
            logger.warning("A process on %s died while it loaded, another one is started", place.machine)
        return _Ended(place.machine, lost, {})

    def _fill_places(self) -> None:
        """Start a process wherever there may be one and is none."""
        if time.monotonic() - self._looked < LOOK_EVERY_S:
            return
        self._looked = time.monotonic()
        for place in _places(self._per):
            if place not in self._processes and self._deaths_at[place] < MOST_DEATHS:
                self._processes[place] = self._start(place)
                logger.info("A process is started on %s, with %d cores", place.machine, place.num_cores)
        if not self._processes:
            left_out = sum(deaths >= MOST_DEATHS for deaths in self._deaths_at.values())
            raise UserError(
                f"--engine ray: no machine of the cluster has a {'card' if self._per == 'card' else 'core'} "
                f"for it ({left_out} places were left out because processes died there): look at "
                "`ray status` and whether the machines are out of memory, then run the same command again"
            )

    def _start(self, place: Place) -> _Process:
        actor = (
            ray.remote(_Actor)
            .options(
                num_cpus=place.num_cores,
                num_gpus=int(place.has_card),
                scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False),
            )
            .remote()
        )
        return _Process(actor, (actor.begin.remote(self._begin, place), None))

    def _compare(self, place: Place, facts: Mapping[str, str]) -> None:
        for name, value in facts.items():
            first, where = self._facts.setdefault(name, (value, place.machine))
            if value != first:
                raise UserError(
                    f"{place.machine}: {name} is {value}, on {where} it is {first}; give all machines of "
                    "the cluster the same files and versions"
                )

    def _tell_of_late_ones(self) -> None:
        for place, process in self._processes.items():
            if not (process.is_ready or process.is_late) and time.monotonic() - process.began > LONG_S:
                process.is_late = True
                logger.warning(
                    "%s: still loading after %.0f s, or waiting for what other programs of the cluster have: "
                    "`ray status` tells",
                    place.machine,
                    LONG_S,
                )


class _Actor:
    """What runs in a process of the cluster."""

    def begin(self, begin: Begin[Any, Any], place: Place) -> Mapping[str, str]:
        facts, self._do = begin(place)
        return {**facts, **_version()}

    def do(self, task: Any) -> Any:
        return self._do(task)


def has_cards() -> bool:
    """Tell whether any machine of the cluster has a card."""
    return any(_num_cards(node) for node in _machines())


def _places(per: Per) -> Iterator[Place]:
    """Yield where processes may run, each with its share of the cores."""
    for node in _machines():
        num_cores = int(node["Resources"].get("CPU", 0))
        number = {"card": _num_cards(node), "machine": min(1, num_cores), "core": num_cores}[per]
        for n in range(number):
            yield Place(
                node["NodeID"], node["NodeManagerAddress"], n, num_cores // number, has_card=per == "card"
            )


def _machines() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _num_cards(node: Mapping[str, Any]) -> int:
    return int(node["Resources"].get("GPU", 0))


def _version() -> dict[str, str]:
    return {"the commit of this program": git_commit() or "unknown"}
