"""Measures of all clips of a manifest, on all cores; unchanged recordings are not measured again."""

import logging
import math
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.data.manifest import Utterance
from indextts.data.progress import Progress
from indextts.data.quality.copies import Fingerprint
from indextts.data.quality.measures import Measures, TextMeasures, measure_audio, measure_text
from indextts.data.quality.text_fit import Heard
from indextts.errors import UserError
from indextts.system.digest import file_sha256
from indextts.system.language_codes import standard_code
from indextts.system.process_pool import ProcessPool
from indextts.system.processes import num_cores

logger = logging.getLogger(__name__)

CLIPS_PER_TASK = 16
MIN_CLIPS_PER_PROCESS = 200  # fewer clips take less time than starting a process


@dataclass(frozen=True)
class AudioResult:
    """Measures of a recording, or an error.

    Args:
        measures: None for an unreadable recording.
        file_sha256: of the file's bytes.
        samples_sha256: of the samples.
        fingerprint: by which copies are found.
        error: the reason if there are no measures.
    """

    measures: Measures | None
    file_sha256: str | None = None
    samples_sha256: str | None = None
    fingerprint: Fingerprint | None = None
    error: str = ""


@dataclass(frozen=True)
class ClipResult:
    """Measures of a clip; `heard` is None without a recognizer, and for an unreadable recording."""

    audio: AudioResult
    text: TextMeasures
    heard: Heard | None = None


TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

Task = list[tuple[Path, str, str]]  # recordings, their texts and the languages of these
Measure = Callable[[Task], list[ClipResult]]
MapTasks = Callable[[Sequence[Task], Measure], Iterator[list[ClipResult]]]


def measure_clips(
    utterances: Sequence[Utterance],
    known: Mapping[str, AudioResult],
    num_workers: int,
    options: NormalizerOptions = DEFAULT_OPTIONS,
    map_tasks: MapTasks | None = None,
) -> list[ClipResult]:
    """Return the measures of each utterance, in order.

    Args:
        known: measures of an earlier check, by `file_sha256`.
        num_workers: the number of processes; 0 to choose it by the cores and the clips.
        options: the options of the normaliser, with the language of utterances whose line names none.
        map_tasks: maps a function over the tasks on a cluster; None for processes of this machine.
    """
    workers = num_workers or max(1, min(num_cores(), len(utterances) // MIN_CLIPS_PER_PROCESS))
    tasks = [
        [
            (u.audio, u.text, standard_code(u.language) or options.language)
            for u in utterances[first : first + CLIPS_PER_TASK]
        ]
        for first in range(0, len(utterances), CLIPS_PER_TASK)
    ]
    progress = Progress("Checking", len(utterances))
    results: list[ClipResult] = []
    if map_tasks is None:
        parts = _map_locally(tasks, known, workers, options)
    else:
        parts = map_tasks(tasks, partial(measure_task, known=dict(known), options=options))
    for part in parts:
        results += part
        for _ in part:
            progress.advance()
    return results


def _map_locally(
    tasks: list[Task], known: Mapping[str, AudioResult], workers: int, options: NormalizerOptions
) -> Iterator[list[ClipResult]]:
    if workers == 1:
        yield from (measure_task(task, known, options) for task in tasks)
        return
    logger.info("Checking with %d processes", workers)
    chunk = max(1, math.ceil(len(tasks) / workers / 64))
    measure = partial(_measure_in_worker, options)
    yield from in_processes(measure, tasks, workers, chunk, partial(_remember, dict(known)))


def in_processes(
    work: Callable[[TaskT], ResultT],
    tasks: Sequence[TaskT],
    workers: int,
    chunk: int,
    begin: Callable[[], object],
) -> Iterator[ResultT]:
    """Yield the result of each task in order; `begin` is called in each process first.

    Raises:
        UserError: a process was killed.
    """
    context = multiprocessing.get_context("spawn")  # not forked: the parent may have threads
    try:
        with ProcessPool(workers, context, begin) as pool:
            yield from pool.map(work, tasks, chunksize=chunk)
    except BrokenProcessPool:
        raise UserError(
            "a process of the check was killed, probably because memory ran out; set --num-workers below "
            f"{workers}"
        ) from None


_known: dict[str, AudioResult] = {}  # of a worker process, set when it starts


def _remember(known: dict[str, AudioResult]) -> None:
    _known.update(known)


def _measure_in_worker(options: NormalizerOptions, task: Task) -> list[ClipResult]:
    return measure_task(task, _known, options)


def measure_task(
    task: Task, known: Mapping[str, AudioResult], options: NormalizerOptions
) -> list[ClipResult]:
    """Return the measures of some recordings and their texts."""
    return [
        ClipResult(
            _measure_recording(audio, known),
            measure_text(text, options.model_copy(update={"language": language})),
        )
        for audio, text, language in task
    ]


def _measure_recording(path: Path, known: Mapping[str, AudioResult]) -> AudioResult:
    try:
        digest = file_sha256(path) if path.is_file() else ""
        if digest in known:
            return known[digest]
        measures, samples_sha256, fingerprint = measure_audio(path)
    except UserError as error:
        return AudioResult(None, error=str(error))
    except OSError as error:
        return AudioResult(None, error=f"{path}: cannot be read ({error.strerror}); check the file")
    return AudioResult(measures, digest, samples_sha256, fingerprint)
