"""THE KEYS OF RECORDINGS: a file that did not change since the last run is not read again. No torch here.

    FEATURES/recordings.jsonl    of the last run; only there to save time, it may be deleted
      {"audio": "/data/rec_0001.wav", "stamp": [size, modified, changed], "sha256": "..."}

`stamp` is what the system says of the file, times in nanoseconds. `changed` (ctime) cannot be set by a
program: bytes of the same number that were copied over a file together with its old date are seen too.
"""

import json
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from indextts.data.feature_shards import file_sha256
from indextts.data.manifest import Utterance
from indextts.data.progress import Progress
from indextts.system.json_lines import write_json_lines

logger = logging.getLogger(__name__)

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
