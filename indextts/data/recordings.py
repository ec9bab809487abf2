"""Audio files of a manifest: durations from their headers, and keys.

The key of a recording is the sha256 of its bytes.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from indextts.data.manifest import Utterance
from indextts.data.progress import Progress
from indextts.data.rejected import Rejected
from indextts.features.audio import RecordingError, audio_duration_s
from indextts.features.backend import CODES_PER_SECOND
from indextts.system.amounts import counted
from indextts.system.digest import file_sha256

logger = logging.getLogger(__name__)

MAX_IDS_SHOWN = 5
DURATION_TOLERANCE_S = 0.2  # rounding and re-encoding stay below, a truncated file does not
ROUNDING = 0.01  # of a code: resampling rounds a clip's length to samples


def measure(
    manifest: Path, utterances: Sequence[tuple[int, Utterance]]
) -> tuple[list[Utterance], list[Rejected]]:
    """Return the utterances with readable files, with the durations of the files, and the rejected ones.

    Args:
        manifest: for the warning about wrong durations.
        utterances: with their line numbers.
    """
    measured: list[Utterance] = []
    rejected: list[Rejected] = []
    num_off = 0
    for (_, utterance), duration in zip(utterances, durations_s(utterances), strict=True):
        if isinstance(duration, RecordingError):
            rejected.append(Rejected.from_error(utterance, duration))
            continue
        num_off += abs(duration - utterance.duration_s) > DURATION_TOLERANCE_S
        measured.append(replace(utterance, duration_s=duration))
    if num_off:
        logger.warning(
            "%s: %d of %d durations are wrong by more than %s s; using the durations measured from the files",
            manifest,
            num_off,
            len(utterances),
            DURATION_TOLERANCE_S,
        )
    return measured, rejected


def durations_s(utterances: Sequence[tuple[int, Utterance]]) -> Iterator[float | RecordingError]:
    """Yield the duration of each recording, or its problem, in order."""
    progress = Progress("Checking recordings", len(utterances))
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # mostly waiting for the disk
        for duration in pool.map(_duration_s, (utterance.audio for _, utterance in utterances)):
            progress.advance()
            yield duration


def of_fitting_length(
    utterances: Iterable[Utterance], min_codes: int, max_codes: int, lead_s: float
) -> tuple[list[Utterance], list[Rejected]]:
    """Return the utterances with a duration that the model accepts, and the rejected ones.

    Args:
        utterances: with true durations.
        min_codes, max_codes: limits of a clip.
        lead_s: audio that the speech encoder needs before the first code.
    """
    fitting: list[Utterance] = []
    rejected: list[Rejected] = []
    for utterance in utterances:
        num_codes = (utterance.duration_s - lead_s) * CODES_PER_SECOND  # not yet rounded down
        if num_codes < min_codes + ROUNDING:
            reason = f"lasts {utterance.duration_s:.3f} s, less than {min_codes} codes; record more"
            rejected.append(Rejected.of(utterance, "too_short", reason))
        elif num_codes >= max_codes + 1 - ROUNDING:
            longest_s = longest_duration_s(max_codes, lead_s)
            reason = (
                f"lasts {utterance.duration_s:.3f} s, the model accepts {longest_s:.3f} s; cut the recording"
            )
            rejected.append(Rejected.of(utterance, "too_long", reason))
        else:
            fitting.append(utterance)
    for code, what in (("too_short", f"fewer than {min_codes}"), ("too_long", f"more than {max_codes}")):
        ids = [each.id for each in rejected if each.code == code]
        if ids:
            shown = ", ".join(ids[:MAX_IDS_SHOWN]) + (", ..." if len(ids) > MAX_IDS_SHOWN else "")
            logger.warning("Rejected %s with %s codes: %s", counted(len(ids), "recording"), what, shown)
    return fitting, rejected


def longest_duration_s(max_codes: int, lead_s: float) -> float:
    """Return the longest duration that gives at most `max_codes` codes."""
    return lead_s + (max_codes + 1 - ROUNDING) / CODES_PER_SECOND


def _duration_s(path: Path) -> float | RecordingError:
    try:
        return audio_duration_s(path)
    except RecordingError as error:
        return error


def keys_of(utterances: Sequence[Utterance]) -> dict[str, str]:
    """Return the key of each utterance's recording, by id, without recordings that have disappeared."""
    files = list(dict.fromkeys(utterance.audio for utterance in utterances))
    progress = Progress("Comparing recordings", len(files))
    key_of: dict[Path, str] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashlib releases the GIL
        for file, key in zip(files, pool.map(_key, files), strict=True):
            progress.advance()
            if key is not None:
                key_of[file] = key
    return {utterance.id: key_of[utterance.audio] for utterance in utterances if utterance.audio in key_of}


def _key(path: Path) -> str | None:
    try:
        return file_sha256(path)
    except OSError:
        return None
