"""Clips on their way through the check, with the measures of all of them, on all cores.

    measure_clips   sound and text; unchanged recordings are not measured again
    hear_clips      what a recognizer heard (heard.py)
    rate_clips      scores of DNSMOS (ratings.py)
    hear_voices     deviations of the voices (voices.py)
    judge           comparisons within the set, and the flags (verdicts.py)

REPORT_DIR/measured/sound.jsonl: {"audio": sha256, "result": a Sound, its fingerprint as in copies.py}.
"""

import itertools
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.data.manifest import Utterance
from indextts.data.progress import Progress
from indextts.data.quality.copies import Fingerprint, parse_fingerprint
from indextts.data.quality.measures import (
    MEASURES_VERSION,
    Measures,
    TextMeasures,
    measure_audio,
    measure_text,
)
from indextts.data.quality.reasons import Flag
from indextts.data.quality.text_fit import Heard
from indextts.data.stored_results import StoredResults
from indextts.errors import UserError
from indextts.system.digest import file_sha256
from indextts.system.language_codes import standard_code
from indextts.system.process_pool import map_in_processes
from indextts.system.processes import num_cores

logger = logging.getLogger(__name__)

CLIPS_PER_TASK = 16
MIN_CLIPS_PER_PROCESS = 200  # fewer clips take less time than starting a process
MIN_CLIPS_OF_SPEAKER = 20  # quartiles and medians of fewer are unreliable


@dataclass(frozen=True)
class Sound:
    """Measures of a recording, or an error."""

    measures: Measures | None  # None for an unreadable recording
    file_sha256: str = ""
    samples_sha256: str | None = None
    fingerprint: Fingerprint | None = None  # by which copies are found
    error: str = ""  # the reason if there are no measures


@dataclass
class Clip:
    """A clip of the set; each stage of the check adds to it."""

    utterance: Utterance
    sound: Sound
    text: TextMeasures
    measures: Measures = field(default_factory=dict)  # all numbers of the clip, None where one is undefined
    heard: Heard | None = None  # None without a recognizer, and for an unreadable recording
    flags: tuple[Flag, ...] = ()  # in the order of REASONS

    @property
    def is_rejected(self) -> bool:
        return any(flag.is_hard for flag in self.flags)

    @property
    def verdict(self) -> Literal["good", "warned", "rejected"]:
        return "rejected" if self.is_rejected else "warned" if self.flags else "good"

    @property
    def speech_s(self) -> float:
        """The time spoken, without pauses; 0 where no speech is found."""
        duration_s, silence = self.measures.get("duration_s"), self.measures.get("silence_percent")
        return (duration_s or 0.0) * (1 - (100.0 if silence is None else silence) / 100)

    @property
    def hours(self) -> float:
        """The measured duration; that of the manifest if there is none."""
        duration_s = self.measures.get("duration_s")
        return (self.utterance.duration_s if duration_s is None else duration_s) / 3600


Task = list[tuple[Path, str, str]]  # recordings, their texts and the languages of these
Measured = list[tuple[Sound, TextMeasures]]
Measure = Callable[[Task], Measured]
MapTasks = Callable[[Measure, Sequence[Task]], Iterator[Measured]]


def measure_clips(
    utterances: Sequence[Utterance],
    report_dir: Path | None,
    num_workers: int,
    options: NormalizerOptions = DEFAULT_OPTIONS,
    map_tasks: MapTasks | None = None,
) -> list[Clip]:
    """Return the clip of each utterance with the measures of its sound and its text, in order.

    Args:
        report_dir: of the stored measures of earlier checks; None to store none.
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
    clips: list[Clip] = []
    if map_tasks is None:
        if workers > 1:
            logger.info("Checking with %d processes", workers)
        chunk = max(1, math.ceil(len(tasks) / workers / 64))
        map_tasks = partial(map_in_processes, num_workers=workers, chunk=chunk)

    def read(result: Mapping[str, Any]) -> Sound:
        return Sound(**{**result, "fingerprint": parse_fingerprint(result["fingerprint"])})

    with StoredResults(report_dir, "sound", str(MEASURES_VERSION), kept=read) as stored:
        measure = partial(_measure_task, known=dict(stored.known), options=options)
        for sound, text in itertools.chain.from_iterable(map_tasks(measure, tasks)):
            if sound.measures is not None and sound.file_sha256 not in stored.known:
                stored.add(sound.file_sha256, {**vars(sound), "fingerprint": str(sound.fingerprint)})
            utterance = utterances[len(clips)]
            clips.append(Clip(utterance, sound, text, _measures(utterance, sound, text)))
            progress.advance()
    return clips


def _measures(utterance: Utterance, sound: Sound, text: TextMeasures) -> Measures:
    """Return the measures of a clip alone; those of an unreadable recording are missing."""
    measures: Measures = {
        **(sound.measures or {}),
        "script_percent": text.script_percent,
        "tigrinya_percent": text.tigrinya_percent,
        "tigrinya_letter_percent": text.tigrinya_percent,
        "num_latin": text.num_latin,
        "num_digits": text.num_digits,
        "num_other": text.num_other,
    }
    duration_s = measures.get("duration_s")
    if duration_s:
        measures["duration_error_s"] = abs(duration_s - utterance.duration_s)
        # A rate is meaningless for a text in another script.
        measures["syllables_per_s"] = text.num_syllables / duration_s if text.is_mostly_own else None
    return measures


def new_recordings(clips: Sequence[Clip], known: Container[str]) -> dict[str, Utterance]:
    """Return an utterance of each readable recording whose digest is not in `known`, by digest."""
    return {
        clip.sound.file_sha256: clip.utterance
        for clip in clips
        if clip.sound.file_sha256 and clip.sound.file_sha256 not in known
    }


def values_by_speaker(clips: Sequence[Clip], measure: str) -> dict[str, list[float]]:
    """Return the values of a measure for each speaker with at least MIN_CLIPS_OF_SPEAKER of them."""
    values_of: dict[str, list[float]] = defaultdict(list)
    for clip in clips:
        if (value := clip.measures.get(measure)) is not None:
            values_of[clip.utterance.speaker].append(value)
    return {name: values for name, values in values_of.items() if len(values) >= MIN_CLIPS_OF_SPEAKER}


def _measure_task(task: Task, known: Mapping[str, Sound], options: NormalizerOptions) -> Measured:
    """Return the measures of some recordings and their texts."""
    return [
        (
            _measure_recording(audio, known),
            measure_text(text, options.model_copy(update={"language": language})),
        )
        for audio, text, language in task
    ]


def _measure_recording(path: Path, known: Mapping[str, Sound]) -> Sound:
    try:
        digest = file_sha256(path) if path.is_file() else ""
        if digest in known:
            return known[digest]
        measures, samples_sha256, fingerprint = measure_audio(path)
    except UserError as error:
        return Sound(None, error=str(error))
    except OSError as error:
        return Sound(None, error=f"{path}: cannot be read ({error.strerror}); check the file")
    return Sound(measures, digest, samples_sha256, fingerprint)
