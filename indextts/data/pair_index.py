"""Index of a pairs file: its columns with tokenized texts, so that a start parses and tokenizes nothing.

    train_pairs.jsonl
    train_pairs.jsonl.index    npz archive of numpy, not compressed: `header`, and the arrays of a PairColumns
                               header: bytes of JSON: format_version, manifest {num_bytes, digest}, tokenizer,
                               normalizer, stores

An index is fresh if it belongs to the content of the pairs file, the fingerprint of the tokenizer, and the
version and options of the normaliser. Otherwise it is built again with all cores. The index is written aside
and renamed: a kill leaves none or a valid one, and several trainers may build it at once.
"""

import hashlib
import json
import logging
import os
import time
import zipfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from glob import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.data.manifest import read_pairs, resolved_path, stream_pairs
from indextts.data.pair_columns import ColumnsBuilder, PairColumns, Ragged
from indextts.data.progress import Progress
from indextts.errors import UserError
from indextts.runs.directory import FileIdentity, identify
from indextts.system.amounts import counted
from indextts.system.files import TEMPORARY, written_aside
from indextts.system.process_pool import map_in_processes
from indextts.system.processes import num_cores
from indextts.text.bases import load_tokenizer
from indextts.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

FORMAT_VERSION = 2
LEFTOVER_AGE_S = 3600.0  # writing takes seconds
CHUNK = 500  # texts of a task, which take about half a second
MIN_TEXTS_PER_PROCESS = 2_000  # with fewer, a process takes longer to start than to tokenize
MAX_PROCESSES = 32
LINES_BETWEEN_CHECKS = 10_000  # whether to stop; reading them takes a fifth of a second

# of a file that is no npz archive, or whose arrays or checksums are wrong
_CORRUPT = (ValueError, KeyError, EOFError, MemoryError, RuntimeError, zipfile.BadZipFile)


class BuildStoppedError(Exception):
    """A stop was requested during the build of an index."""


@dataclass(frozen=True)
class PairIndex:
    """The pairs of a file, and the identity of that file."""

    manifest: FileIdentity
    pairs: PairColumns


def index_path(manifest: Path) -> Path:
    """Return the path of the index beside a pairs file."""
    return manifest.with_name(f"{manifest.name}.index")


def find_index(manifest: Path, tokenizer: Tokenizer, folder: Path | None = None) -> PairIndex | None:
    """Return the index of a pairs file if a fresh one exists; arguments as for `load_index`."""
    try:
        identity = identify(manifest)
    except OSError:
        return None
    for path in _places(manifest, folder):
        with suppress(_UnusableError):
            return _opened(path, manifest, identity, _key_of(identity, tokenizer))
    return None


def load_index(
    manifest: Path,
    tokenizer: Tokenizer,
    folder: Path | None = None,
    *,
    may_write: bool = True,
    should_stop: Callable[[], bool] = lambda: False,
) -> PairIndex:
    """Return the index of a pairs file; build it if there is no fresh one.

    Args:
        folder: for the index if the folder of the pairs file is read-only; usually the run directory.
        may_write: write a new index to a file; otherwise it stays in memory.
        should_stop: asked about twice a second during a build.

    Raises:
        UserError: the pairs file is invalid; the message has the first invalid line.
        BuildStoppedError: `should_stop` became true.
    """
    identity = _identify(manifest)
    key = _key_of(identity, tokenizer)
    reasons: list[str] = []
    for path in _places(manifest, folder):
        try:
            return _opened(path, manifest, identity, key)
        except _UnusableError as error:
            reasons.append(str(error))
    logger.info("Indexing %s, because its index is %s", manifest, reasons[0])
    started = time.monotonic()
    columns, stores = _build(manifest, tokenizer, should_stop)
    if _identify(manifest).digest != identity.digest:
        raise UserError(f"{manifest}: the file changed while it was read; start again when it is complete")
    logger.info(
        "Indexed %s and %s in %.1f s",
        counted(len(columns), "pair"),
        counted(len(columns.texts), "text"),
        time.monotonic() - started,
    )
    for path in _places(manifest, folder) if may_write else ():
        try:
            _write(path, {**key, "stores": stores}, columns)
            return _opened(path, manifest, identity, key)
        except (OSError, _UnusableError) as error:
            logger.warning("%s: the index cannot be written (%s)", path, error)
    return PairIndex(identity, columns)


# ---- the file


class _UnusableError(Exception):
    """There is no fresh index at a path."""


def _places(manifest: Path, folder: Path | None) -> list[Path]:
    """Return the paths where the index may be, in order."""
    beside = index_path(manifest)
    if folder is None:
        return [beside]
    place = hashlib.sha256(os.fsencode(manifest.resolve())).hexdigest()[:8]  # several may have the same name
    return [beside, folder / f"{manifest.name}.{place}.index"]


def _identify(manifest: Path) -> FileIdentity:
    try:
        return identify(manifest)
    except OSError:
        next(stream_pairs(manifest))  # raises a UserError with the reason
        raise


def _key_of(identity: FileIdentity, tokenizer: Tokenizer) -> dict[str, Any]:
    """Return everything that an index depends on, as its header has it."""
    return {
        "format_version": FORMAT_VERSION,
        "manifest": {"num_bytes": identity.num_bytes, "digest": identity.digest},
        "tokenizer": tokenizer.vocabulary.fingerprint,
        "normalizer": tokenizer.options.record,
    }


def _opened(path: Path, manifest: Path, identity: FileIdentity, key: dict[str, Any]) -> PairIndex:
    """Return the fresh index at `path`; an _UnusableError if it is absent, corrupt or stale."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:  # verifies checksums
            arrays = dict(archive)
        header = json.loads(arrays["header"].tobytes())
        stores = tuple(resolved_path(manifest, store) for store in header["stores"])
        fields: dict[str, Any] = {name: arrays[name] for name in _FLAT}
        fields |= {name: Ragged(arrays[f"{name}.starts"], arrays[f"{name}.values"]) for name in _RAGGED}
        pairs = PairColumns(id=np.arange(len(fields["text"]), dtype=np.int32), stores=stores, **fields)
    except FileNotFoundError:
        raise _UnusableError("absent") from None
    except OSError as error:
        raise _UnusableError(f"unreadable ({error.strerror})") from None
    except _CORRUPT:
        raise _UnusableError("corrupt") from None
    for name, what in (
        ("format_version", "of another version of this program"),
        ("tokenizer", "of another tokenizer"),
        ("normalizer", "of another version or other options of the normaliser"),
        ("manifest", "of other pairs"),
    ):
        if header.get(name) != key[name]:
            raise _UnusableError(what)
    return PairIndex(identity, pairs)


def _write(path: Path, facts: dict[str, Any], columns: PairColumns) -> None:
    """Write an index with `facts` in its header through a temporary file of this process."""
    _remove_leftovers(path)
    arrays: dict[str, NDArray[Any]] = {name: getattr(columns, name) for name in _FLAT}
    arrays["header"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    for name in _RAGGED:
        ragged: Ragged = getattr(columns, name)
        arrays |= {f"{name}.starts": ragged.starts, f"{name}.values": ragged.values}
    with written_aside(path, is_unique=True) as aside, aside.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
        file.flush()


def _remove_leftovers(path: Path) -> None:
    """Remove the files that a kill left; the age tells them from those of a concurrent writer."""
    for old in path.parent.glob(f"{TEMPORARY}{escape(path.name)}-*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > LEFTOVER_AGE_S:
                old.unlink()


_FLAT = ("speaker", "prompt", "target", "text", "num_codes", "target_s", "prompt_s", "keys", "store")
_RAGGED = ("ids", "speakers", "utterance_ids", "texts", "tokens")


# ---- building


def _build(
    manifest: Path, tokenizer: Tokenizer, should_stop: Callable[[], bool]
) -> tuple[PairColumns, list[str]]:
    """Return the columns of a pairs file, and its feature stores as written there."""
    builder, hashes = ColumnsBuilder(), array("q")
    for number, (pair, store) in enumerate(stream_pairs(manifest)):
        if number % LINES_BETWEEN_CHECKS == 0 and should_stop():
            raise BuildStoppedError
        builder.add(pair, store)
        hashes.append(hash(pair.id))
    if len(np.unique(np.frombuffer(hashes, np.int64))) < len(hashes):
        read_pairs(manifest)  # raises a UserError with the lines, unless different ids have the same hash
    tokens = tokenize(builder.texts, tokenizer, should_stop)
    stores = list(builder.stores)
    return builder.build(tokens, tuple(resolved_path(manifest, store) for store in stores)), stores


def tokenize(
    texts: Sequence[str], tokenizer: Tokenizer, should_stop: Callable[[], bool] = lambda: False
) -> Ragged:
    """Return the token ids of texts; `should_stop` is asked about twice a second.

    Raises:
        UserError: a process was killed.
        BuildStoppedError: `should_stop` became true.
    """
    parts = []
    progress = Progress("Tokenizing", len(texts), noun="texts")
    for part in _tokenized(texts, tokenizer, should_stop):
        if should_stop():
            raise BuildStoppedError
        parts.append(part)
        for _ in range(len(part)):
            progress.advance()
    return Ragged.joined(parts) if parts else Ragged.of([], np.int32)


def _tokenized(
    texts: Sequence[str], tokenizer: Tokenizer, should_stop: Callable[[], bool]
) -> Iterator[Ragged]:
    """Yield the token ids of one chunk of texts after another."""
    chunks = [texts[start : start + CHUNK] for start in range(0, len(texts), CHUNK)]
    num_processes = max(1, min(num_cores(), len(texts) // MIN_TEXTS_PER_PROCESS, MAX_PROCESSES))
    if len(texts) >= MIN_TEXTS_PER_PROCESS:
        logger.info("Tokenizing %d texts with %s", len(texts), counted(num_processes, "process"))
    if num_processes == 1:
        yield from (_encode(chunk, tokenizer) for chunk in chunks)
        return
    try:
        yield from map_in_processes(_Tokenizing(tokenizer.path, tokenizer.options), chunks, num_processes)
    except UserError:
        if should_stop():  # the signal went to all processes
            raise BuildStoppedError from None
        raise


@dataclass(frozen=True)
class _Tokenizing:
    """Work of a process: the path and not the tokenizer, which each process loads.

    A stop signal that kills a process while it starts must not leave this one writing to a full pipe.
    """

    path: Path
    options: NormalizerOptions

    @cached_property
    def tokenizer(self) -> Tokenizer:
        os.setpgid(0, 0)  # a stop signal for the group is for the parent
        return load_tokenizer(self.path, self.options)

    def __call__(self, texts: Sequence[str]) -> Ragged:
        return _encode(texts, self.tokenizer)


def _encode(texts: Sequence[str], tokenizer: Tokenizer) -> Ragged:
    return Ragged.of([tokenizer.encode(text) for text in texts], np.int32)
