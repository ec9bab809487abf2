"""Audio files of a manifest: durations from their headers, and keys.

The key of a recording is the sha256 of its bytes.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from indextts.data.manifest import Utterance
from indextts.data.progress import Progress
from indextts.data.rejected import Rejected
from indextts.features.audio import RecordingError, audio_duration_s
from indextts.features.backend import CODES_PER_SECOND
from indextts.system.amounts import counted, listed
from indextts.system.digest import file_sha256
from indextts.system.process_pool import map_in_threads
from indextts.system.processes import num_cores

logger = logging.getLogger(__name__)

DURATION_TOLERANCE_S = 0.2  # rounding and re-encoding stay below, a truncated file does not
ROUNDING = 0.01  # of a code: resampling rounds a clip's length to samples


def inspect(
    manifest: Path, utterances: Sequence[tuple[int, Utterance]]
) -> tuple[list[Utterance], dict[str, str], list[Rejected]]:
    """Return the utterances with readable files at the files' durations, their keys by id, and the others."""
    files = list(dict.fromkeys(utterance.audio for _, utterance in utterances))
    progress = Progress("Checking recordings", len(files))
    found: dict[Path, tuple[float, str] | RecordingError] = {}
    # Threads mostly wait for the disk, and hashlib releases the GIL.
    for file, result in zip(files, map_in_threads(_duration_and_key, files, num_cores()), strict=True):
        found[file] = result
        progress.advance()
    readable: list[Utterance] = []
    keys: dict[str, str] = {}
    rejected: list[Rejected] = []
    num_off = 0
    for _, utterance in utterances:
        result = found[utterance.audio]
        if isinstance(result, RecordingError):
            rejected.append(Rejected.from_error(utterance, result))
            continue
        duration_s, keys[utterance.id] = result
        num_off += abs(duration_s - utterance.duration_s) > DURATION_TOLERANCE_S
        readable.append(replace(utterance, duration_s=duration_s))
    if num_off:
        logger.warning(
            "%s: %d of %d durations are wrong by more than %s s; using the durations measured from the files",
            manifest,
            num_off,
            len(utterances),
            DURATION_TOLERANCE_S,
        )
    return readable, keys, rejected


def _duration_and_key(path: Path) -> tuple[float, str] | RecordingError:
    try:
        return audio_duration_s(path), file_sha256(path)
    except RecordingError as error:
        return error
    except OSError as error:
        return RecordingError(path, "unreadable", f"cannot be read ({error.strerror})")


def of_fitting_length(
    utterances: Iterable[Utterance], min_codes: int, max_codes: int, lead_s: float
) -> tuple[list[Utterance], list[Rejected]]:
    """Return the utterances with a duration that the model accepts, and the rejected ones.

    Args:
        utterances: with true durations.
        lead_s: audio that the speech encoder needs before the first code.
    """
    fitting: list[Utterance] = []
    rejected: list[Rejected] = []
    shortest_s, longest_s = (
        lead_s + codes / CODES_PER_SECOND for codes in (min_codes + ROUNDING, max_codes + 1 - ROUNDING)
    )
    for utterance in utterances:
        if utterance.duration_s < shortest_s:
            reason = f"lasts {utterance.duration_s:.3f} s, the model needs {shortest_s:.3f} s; record more"
            rejected.append(Rejected.of(utterance, "too_short", reason))
        elif utterance.duration_s >= longest_s:
            reason = (
                f"lasts {utterance.duration_s:.3f} s, the model accepts {longest_s:.3f} s; cut the recording"
            )
            rejected.append(Rejected.of(utterance, "too_long", reason))
        else:
            fitting.append(utterance)
    limits = {"too_short": f"shorter than {shortest_s:.3f}", "too_long": f"longer than {longest_s:.3f}"}
    for code, what in limits.items():
        ids = [each.id for each in rejected if each.code == code]
        if ids:
            logger.warning("Rejected %s %s s: %s", counted(len(ids), "recording"), what, listed(ids))
    return fitting, rejected
