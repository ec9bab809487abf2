"""DNSMOS scores of all clips, and their distance from the speaker's other clips.

The scores depend on the voice, so a clip is compared with the median of its speaker, and not at all if the
speaker has few clips. A clip far below it has something that the others do not have: music, another voice,
damage. The distance counts in robust standard deviations of the set: the scores of short clips scatter more.

Recordings are rated in parallel processes. Each result is stored at once (stored_results.py), so a killed
check resumes, and the next check rates only new recordings.
"""

import logging
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from indextts.data.manifest import Utterance
from indextts.data.progress import Progress
from indextts.data.quality.clips import ClipResult, in_processes
from indextts.data.quality.measures import Measures
from indextts.data.report import robust_deviation
from indextts.data.stored_results import StoredResults
from indextts.features import dnsmos
from indextts.features.audio import RecordingError, load_audio
from indextts.system.amounts import counted, shown_duration
from indextts.system.processes import num_cores

logger = logging.getLogger(__name__)

NAME = "dnsmos"
VERSION = "dnsmos-p835-1"  # raise it when the results of `dnsmos.rate` change
SCORES = ("sig", "bak", "ovrl")
MIN_CLIPS_TO_COMPARE = 20
MIN_DEVIATION = 0.23  # points; a smaller one would reject clips that sound like the others
MIN_CLIPS_PER_PROCESS = 10

Recording = tuple[str, Path]  # the digest of the file, and its path


def rate_clips(
    utterances: Sequence[Utterance], clips: Sequence[ClipResult], report_dir: Path | None, num_workers: int
) -> list[Measures]:
    """Return the scores of each utterance, and by how many deviations they are below those of its speaker.

    Args:
        num_workers: the number of processes; 0 to choose it by the cores and the clips.

    Raises:
        UserError: the results cannot be stored, or memory ran out.
    """
    with StoredResults(report_dir, NAME, VERSION) as results:
        recordings = {
            clip.audio.file_sha256: utterance
            for utterance, clip in zip(utterances, clips, strict=True)
            if clip.audio.measures is not None and clip.audio.file_sha256
        }
        missing = {digest: u for digest, u in recordings.items() if digest not in results.known}
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
            for digest, scores in _rated([(d, u.audio) for d, u in missing.items()], workers):
                results.add(digest, scores)
                progress.advance()
        scored = [results.known.get(clip.audio.file_sha256 or "") for clip in clips]
    measured: list[Measures] = [
        {} if scores is None else dict(zip(SCORES, scores, strict=True)) for scores in scored
    ]
    _add_distances(utterances, measured)
    return measured


def expected_s(utterances: Iterable[Utterance], num_workers: int) -> float:
    """Return an estimate of the time to rate recordings that are not rated yet."""
    return sum(dnsmos.cost_s(utterance.duration_s) for utterance in utterances) / num_workers


def _rated(recordings: Sequence[Recording], workers: int) -> Iterator[tuple[str, list[float] | None]]:
    if workers == 1:
        yield from map(_rate, recordings)
        return
    yield from in_processes(_rate, recordings, workers, chunk=4, begin=dnsmos.model_file)


def _rate(recording: Recording) -> tuple[str, list[float] | None]:
    digest, path = recording
    try:
        scores = dnsmos.rate(load_audio(path, dnsmos.SAMPLE_RATE_HZ))
    except RecordingError:  # the check of the recording names the problem
        return digest, None
    return digest, [round(score, 3) for score in (scores.sig, scores.bak, scores.ovrl)]


def _add_distances(utterances: Sequence[Utterance], measured: Sequence[Measures]) -> None:
    """Add by how many deviations each score is below the median of a speaker with enough clips."""
    for name in SCORES:
        values_of: dict[str, list[float]] = defaultdict(list)
        for utterance, measures in zip(utterances, measured, strict=True):
            if (value := measures.get(name)) is not None:
                values_of[utterance.speaker].append(value)
        medians = {
            speaker: statistics.median(values)
            for speaker, values in values_of.items()
            if len(values) >= MIN_CLIPS_TO_COMPARE
        }
        distances = {
            place: medians[utterance.speaker] - value
            for place, (utterance, measures) in enumerate(zip(utterances, measured, strict=True))
            if (value := measures.get(name)) is not None and utterance.speaker in medians
        }
        if not distances:
            continue
        deviation = robust_deviation(distances.values())
        for place, distance in distances.items():
            measured[place][f"{name}_below"] = distance / max(deviation, MIN_DEVIATION)
