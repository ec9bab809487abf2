"""Measure recordings on a Ray cluster, with a process per core."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from indextts.data.on_ray.cluster import require_folders
from indextts.data.on_ray.pool import Place, Pool
from indextts.data.quality.clips import Measure, Measured, Task
from indextts.data.quality.measures import MEASURES_VERSION


def measure_on_ray(measure: Measure, tasks: Sequence[Task]) -> Iterator[Measured]:
    """Yield the measures of each task, in order, with a pickled `measure`; errors as for `Pool.map`."""
    pool: Pool[Task, Measured] = Pool(partial(_begin, measure), _facts(), "core")
    try:
        yield from pool.map(tasks, _shown)
    finally:
        pool.close()


def _begin(measure: Measure, _place: Place) -> tuple[Mapping[str, str], Measure]:
    return _facts(), partial(_measured, measure)


def _measured(measure: Measure, task: Task) -> Measured:
    require_folders(recording[0] for recording in task)
    return measure(task)


def _facts() -> dict[str, str]:
    return {"the version of the measures": str(MEASURES_VERSION)}


def _shown(task: Task) -> str:
    return f"{len(task)} recordings from {task[0][0]} to {task[-1][0]}"
