"""The audio files of a manifest: what their headers say, before anything is decoded. No torch here.

THE KEYS OF RECORDINGS: a file that did not change since the last run is not read again. No torch here.

    FEATURES/recordings.jsonl    of the last run; only there to save time, it may be deleted
      {"audio": "/data/rec_0001.wav", "stamp": [size, modified, changed], "sha256": "..."}

`stamp` is what the system says of the file, times in nanoseconds. `changed` (ctime) cannot be set by a
program: bytes of the same number that were copied over a file together with its old date are seen too.
"""

import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from indextts.data.feature_shards import file_sha256
from indextts.data.manifest import Utterance
from indextts.data.progress import Progress
from indextts.data.rejected import Rejected
from indextts.errors import UserError
from indextts.features.audio import RecordingError, audio_duration_s
from indextts.system.json_lines import write_json_lines

logger = logging.getLogger(__name__)

MAX_PROBLEMS_NAMED = 20
MAX_IDS_SHOWN = 5
DURATION_TOLERANCE_S = 0.2  # rounding and re-encoding stay below; a cut-off file does not
CODES_PER_SECOND = 50
ROUNDING = 0.01  # of a code: resampling rounds a clip's length to whole samples


def with_true_durations(manifest: Path, utterances: Sequence[tuple[int, Utterance]]) -> list[Utterance]:
    """Return the utterances with the durations of their files.

    Args:
        manifest: for messages.
        utterances: with their line numbers.

    Raises:
        UserError: recordings are missing or cannot be read; the first ones are named, the rest counted.
    """
    measured, rejected = measure(manifest, utterances)
    if rejected:
        number_of = {utterance.id: number for number, utterance in utterances}
        problems = [f"{manifest}:{number_of[one.id]}: {one.audio}: {one.reason}" for one in rejected]
        raise UserError(_listed(manifest, problems, len(utterances)))
    return measured


def measure(
    manifest: Path, utterances: Sequence[tuple[int, Utterance]]
) -> tuple[list[Utterance], list[Rejected]]:
    """Return the utterances whose files can be opened, with the durations of the files, and the others.

    Args:
        manifest: for the message that durations in it are wrong.
        utterances: with their line numbers.
    """
    measured: list[Utterance] = []
    rejected: list[Rejected] = []
    num_off = 0
    for (_, utterance), duration in zip(utterances, durations_s(utterances), strict=True):
        if isinstance(duration, RecordingError):
            rejected.append(Rejected.because(utterance, duration))
            continue
        num_off += abs(duration - utterance.duration_s) > DURATION_TOLERANCE_S
        measured.append(replace(utterance, duration_s=duration))
    if num_off:
        logger.warning(
            "%s: %d of %d durations are off by more than %s s; those of the files are used",
            manifest,
            num_off,
            len(utterances),
            DURATION_TOLERANCE_S,
        )
    return measured, rejected


def durations_s(utterances: Sequence[tuple[int, Utterance]]) -> Iterator[float | RecordingError]:
    """Yield the duration of each recording, or what is wrong with it, in order."""
    progress = Progress("Checking recordings", len(utterances))
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # mostly waiting for the disk
        for duration in pool.map(_duration_s, (utterance.audio for _, utterance in utterances)):
            progress.advance()
            yield duration


def of_fitting_length(
    utterances: Iterable[Utterance], min_codes: int, max_codes: int, lead_s: float
) -> tuple[list[Utterance], list[Rejected]]:
    """Return the utterances that the model can take, by their durations, and the others.

    Args:
        utterances: with true durations.
        min_codes, max_codes: of a clip.
        lead_s: what the speech encoder needs of a clip before its first code.
    """
    fitting: list[Utterance] = []
    rejected: list[Rejected] = []
    for utterance in utterances:
        num_codes = (utterance.duration_s - lead_s) * CODES_PER_SECOND  # not yet rounded down
        if num_codes < min_codes + ROUNDING:
            reason = f"lasts {utterance.duration_s:.3f} s, that is less than {min_codes} codes, record more"
            rejected.append(Rejected.of(utterance, "too_short", reason))
        elif num_codes >= max_codes + 1 - ROUNDING:
            longest_s = longest_duration_s(max_codes, lead_s)
            reason = (
                f"lasts {utterance.duration_s:.3f} s, the model takes {longest_s:.3f} s, cut the recording"
            )
            rejected.append(Rejected.of(utterance, "too_long", reason))
        else:
            fitting.append(utterance)
    for code, what in (("too_short", f"fewer than {min_codes}"), ("too_long", f"more than {max_codes}")):
        ids = [one.id for one in rejected if one.code == code]
        if ids:
            shown = ", ".join(ids[:MAX_IDS_SHOWN]) + (", ..." if len(ids) > MAX_IDS_SHOWN else "")
            logger.warning("%d recordings are rejected, they have %s codes: %s", len(ids), what, shown)
    return fitting, rejected


def longest_duration_s(max_codes: int, lead_s: float) -> float:
    """Return the duration below which a clip has no more than `max_codes` codes."""
    return lead_s + (max_codes + 1 - ROUNDING) / CODES_PER_SECOND


def _duration_s(path: Path) -> float | RecordingError:
    try:
        return audio_duration_s(path)
    except RecordingError as error:
        return error


def _listed(manifest: Path, problems: list[str], num_utterances: int) -> str:
    """Return one message of several lines: twenty files in one line cannot be read."""
    rest = len(problems) - MAX_PROBLEMS_NAMED
    return "\n  ".join(
        [
            f"{manifest}: {len(problems)} of {num_utterances} recordings cannot be used; nothing was done:",
            *problems[:MAX_PROBLEMS_NAMED],
            *([f"and {rest} more"] if rest > 0 else []),
        ]
    )


KEYS_NAME = "recordings.jsonl"

Stamp = tuple[int, ...]


def keys_of(utterances: Sequence[Utterance], folder: Path) -> dict[str, str]:
    """Return the sha256 of each utterance's recording, by id; without those that are gone meanwhile.

    Args:
        folder: of the feature store, where the digests are kept.

    Raises:
        UserError: they cannot be written there.
    """
    path = folder / KEYS_NAME
    files = {utterance.audio.absolute() for utterance in utterances}
    known = _read(path)
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # hashlib lets other threads run while it hashes
        stamps = dict(zip(files, pool.map(_stamp, files), strict=True))
        # the stamp is taken before the bytes are read: a file that changes in between is read again next time
        found = {file: known[file] for file in files if file in known and known[file][0] == stamps[file]}
        fresh = [file for file in files if file not in found]
        progress = Progress("Comparing recordings", len(fresh))
        for file, key in zip(fresh, pool.map(_key, fresh), strict=True):
            progress.advance()
            stamp = stamps[file]
            if stamp and key:
                found[file] = stamp, key
    if found != known:
        write_json_lines(path, (_record(file, *found[file]) for file in sorted(found)))
    absolute = {utterance.id: utterance.audio.absolute() for utterance in utterances}
    return {id: found[file][1] for id, file in absolute.items() if file in found}


def _read(path: Path) -> dict[Path, tuple[Stamp, str]]:
    """Return what an earlier run kept; nothing if that cannot be read: then all files are read again."""
    if not path.exists():
        return {}
    try:
        return {
            Path(line["audio"]): (tuple(map(int, line["stamp"])), str(line["sha256"]))
            for line in map(json.loads, path.read_bytes().splitlines())
        }
    except (OSError, ValueError, TypeError, KeyError) as error:
        logger.warning("%s: cannot be read (%s); all recordings are read again", path, error)
        return {}


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _key(path: Path) -> str | None:
    try:
        return file_sha256(path)
    except OSError:
        return None


def _record(path: Path, stamp: Stamp, key: str) -> dict[str, object]:
    return {"audio": str(path), "stamp": stamp, "sha256": key}
