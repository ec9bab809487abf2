"""DNSMOS scores of all clips, and their distance from the speaker's other clips.

The scores depend on the voice, so a clip is compared with the median of its speaker, and not at all if the
speaker has few clips. A clip far below it has something that the others do not have: music, another voice,
damage. The distance counts in robust standard deviations of the set: the scores of short clips scatter more.

Where all clips have a loud background, none stands out. There BAK itself rejects, but only where SIG is high:
a third of the right clips of a man's phone have the BAK of noise that hides words, and a low SIG with it.

Recordings are rated in parallel processes. Each result is stored at once (stored_results.py), so a killed
check resumes, and the next check rates only new recordings.
"""

import logging
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from indextts.data.manifest import Utterance
from indextts.data.progress import Progress
from indextts.data.quality.clips import Clip, new_recordings, values_by_speaker
from indextts.data.report import robust_deviation
from indextts.data.stored_results import StoredResults
from indextts.features import dnsmos
from indextts.features.audio import RecordingError, load_audio
from indextts.system.amounts import counted, shown_duration
from indextts.system.process_pool import map_in_processes
from indextts.system.processes import num_cores

logger = logging.getLogger(__name__)

NAME = "dnsmos"
VERSION = "dnsmos-p835-1"  # raise it when the results of `dnsmos.rate` change
CLEAR_SIG = 3.0  # planted noise and voices leave SIG above it (docs/lab/verdicts.md)
MIN_DEVIATION = 0.23  # points; a smaller one would reject clips that sound like the others
MIN_CLIPS_PER_PROCESS = 10

Recording = tuple[str, Path]  # the digest of the file, and its path


def rate_clips(clips: Sequence[Clip], report_dir: Path | None, num_workers: int) -> None:
    """Add the scores of each clip, and by how many deviations they are below those of its speaker.

    Args:
        num_workers: the number of processes; 0 to choose it by the cores and the clips.

    Raises:
        UserError: the results cannot be stored, or memory ran out.
    """
    with StoredResults(report_dir, NAME, VERSION) as results:
        missing = new_recordings(clips, results.known)
        if missing:
            workers = num_workers or max(1, min(num_cores(), len(missing) // MIN_CLIPS_PER_PROCESS))
            took = shown_duration(expected_s(missing.values(), workers))
            logger.info(
                "Rating %s with %s, about %s; --quality fast skips this",
                counted(len(missing), "recording"),
                counted(workers, "process"),
                took,
            )
            progress = Progress("Rating", len(missing))
            recordings = [(digest, utterance.audio) for digest, utterance in missing.items()]
            for digest, scores in map_in_processes(_rate, recordings, workers, chunk=4):
                results.add(digest, scores)
                progress.advance()
    for clip in clips:
        scores = results.known.get(clip.sound.file_sha256)
        clip.measures.update(zip(dnsmos.NAMES, scores, strict=True) if scores else ())
        if scores and scores[0] >= CLEAR_SIG:
            clip.measures["bak_of_clear_speech"] = scores[1]
    add_distances(clips)


def expected_s(utterances: Iterable[Utterance], num_workers: int) -> float:
    """Return an estimate of the time to rate recordings that are not rated yet."""
    return sum(dnsmos.cost_s(utterance.duration_s) for utterance in utterances) / num_workers


def _rate(recording: Recording) -> tuple[str, list[float] | None]:
    digest, path = recording
    try:
        scores = dnsmos.rate(load_audio(path, dnsmos.SAMPLE_RATE_HZ))
    except RecordingError:  # the check of the recording names the problem
        return digest, None
    return digest, [round(score, 3) for score in scores]


def add_distances(clips: Sequence[Clip]) -> None:
    """Add by how many deviations each score is below the median of a speaker with enough clips."""
    for name in dnsmos.NAMES:
        medians = {
            speaker: statistics.median(values) for speaker, values in values_by_speaker(clips, name).items()
        }
        distances = [
            (clip, medians[clip.utterance.speaker] - value)
            for clip in clips
            if (value := clip.measures.get(name)) is not None and clip.utterance.speaker in medians
        ]
        if distances:
            deviation = robust_deviation(distance for _, distance in distances)
            for clip, distance in distances:
                clip.measures[f"{name}_below"] = distance / max(deviation, MIN_DEVIATION)
