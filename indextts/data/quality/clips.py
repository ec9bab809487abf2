"""The measures of all clips of a manifest, on all cores; no recording is listened to twice."""

import logging
import math
import multiprocessing
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from indextts.commands.data import Engine
from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.data.feature_shards import file_sha256
from indextts.data.manifest import Utterance
from indextts.data.progress import Progress
from indextts.data.quality.measures import Measures, TextMeasures, measure_audio, measure_text
from indextts.errors import UserError

logger = logging.getLogger(__name__)

CLIPS_PER_TASK = 16
MIN_CLIPS_PER_PROCESS = 200  # fewer are done sooner than one more process is up


@dataclass(frozen=True)
class AudioResult:
    """What is known of a recording; without measures, `error` says why.

    Args:
        file_sha256: of the file's bytes.
        samples_sha256: of what it sounds like.
    """

    measures: Measures | None
    file_sha256: str | None = None
    samples_sha256: str | None = None
    error: str = ""


@dataclass(frozen=True)
class ClipResult:
    """The measures of one clip."""

    audio: AudioResult
    text: TextMeasures


def measure_clips(
    utterances: Sequence[Utterance],
    known: Mapping[str, AudioResult],
    num_workers: int,
    options: NormalizerOptions = DEFAULT_OPTIONS,
    engine: Engine = "local",
) -> list[ClipResult]:
    """Return the measures of each utterance, in order.

    Args:
        known: what an earlier check measured, by `file_sha256`.
        num_workers: processes; 0 for as many as the cores and the clips are worth. On a cluster, all cores.
        options: how the texts are read.
    """
    workers = num_workers or max(1, min(num_cores(), len(utterances) // MIN_CLIPS_PER_PROCESS))
    tasks = [
        [(utterance.audio, utterance.text) for utterance in utterances[first : first + CLIPS_PER_TASK]]
        for first in range(0, len(utterances), CLIPS_PER_TASK)
    ]
    progress = Progress("Checking", len(utterances))
    results: list[ClipResult] = []
    for done in (
        _on_cluster(tasks, known, options) if engine == "ray" else _run(tasks, known, workers, options)
    ):
        results += done
        for _ in done:
            progress.advance()
    return results


def num_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Task = list[tuple[Path, str]]


def _run(
    tasks: list[Task], known: Mapping[str, AudioResult], workers: int, options: NormalizerOptions
) -> Iterator[list[ClipResult]]:
    if workers == 1:
        yield from (measure_task(task, known, options) for task in tasks)
        return
    logger.info("Checking with %d processes", workers)
    # Not forked: the parent may have threads.
    context = multiprocessing.get_context("spawn")
    chunk = max(1, math.ceil(len(tasks) / workers / 64))
    try:
        with ProcessPoolExecutor(workers, context, _remember, (dict(known),)) as pool:
            yield from pool.map(partial(_measure_in_worker, options), tasks, chunksize=chunk)
    except BrokenProcessPool:
        raise UserError(
            "a process of the check was killed, perhaps for its memory; try again with fewer --num-workers"
        ) from None


def _on_cluster(
    tasks: list[Task], known: Mapping[str, AudioResult], options: NormalizerOptions
) -> Iterator[list[ClipResult]]:
    from indextts.data.on_ray.checking import measure_on_ray  # here, because Ray is optional

    return measure_on_ray(tasks, partial(measure_task, known=dict(known), options=options))


_known: dict[str, AudioResult] = {}  # of a worker process, set once when it starts


def _remember(known: dict[str, AudioResult]) -> None:
    _known.update(known)


def _measure_in_worker(options: NormalizerOptions, task: Task) -> list[ClipResult]:
    return measure_task(task, _known, options)


def measure_task(
    task: Task, known: Mapping[str, AudioResult], options: NormalizerOptions
) -> list[ClipResult]:
    """Return the measures of some recordings and their texts."""
    return [ClipResult(_measure_recording(audio, known), measure_text(text, options)) for audio, text in task]


def _measure_recording(path: Path, known: Mapping[str, AudioResult]) -> AudioResult:
    try:
        digest = file_sha256(path) if path.is_file() else ""
        if digest in known:
            return known[digest]
        measures, samples_sha256 = measure_audio(path)
    except UserError as error:
        return AudioResult(None, error=str(error))
    except OSError as error:
        return AudioResult(None, error=f"{path}: cannot be read ({error.strerror}), look at the file")
    return AudioResult(measures, digest, samples_sha256)
