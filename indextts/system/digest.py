"""Digests of files: the plain sha256, and one hashed in parallel pieces so that every load can verify it.

digest = sha256 over the concatenated sha256 digests (32 bytes each) of the file's pieces of 64 MiB, in order

`file_digest` reads a file with several threads, `DigestWriter` hashes bytes as they are written; both return
the same digest. It differs from the plain sha256 of the file, which a single core would have to compute.
"""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PIECE_BYTES = 64 * 2**20
BLOCK_BYTES = 2**20  # per read of a thread; hashlib releases the GIL
MAX_THREADS = 8


def file_sha256(path: Path) -> str:
    """Return the sha256 of the file at `path` in hexadecimal.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_digest(path: Path, piece_bytes: int = PIECE_BYTES) -> str:
    """Return the digest of the file at `path` in hexadecimal; uses one block of memory per thread.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        descriptor = file.fileno()
        starts = range(0, os.fstat(descriptor).st_size, piece_bytes)
        with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as threads:
            digests = threads.map(lambda start: _piece_digest(descriptor, start, piece_bytes), starts)
            return hashlib.sha256(b"".join(digests)).hexdigest()


class DigestWriter:
    """Incremental digest of bytes that are written in order."""

    def __init__(self, piece_bytes: int = PIECE_BYTES) -> None:
        self.num_bytes = 0
        self._piece_bytes = piece_bytes
        self._piece = hashlib.sha256()
        self._digests: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Add bytes to the digest."""
        rest = memoryview(data).cast("B")
        while rest:
            filled = self.num_bytes % self._piece_bytes
            if filled == 0 and self.num_bytes:
                self._digests.append(self._piece.digest())
                self._piece = hashlib.sha256()
            now, rest = rest[: self._piece_bytes - filled], rest[self._piece_bytes - filled :]
            self._piece.update(now)
            self.num_bytes += len(now)

    def hexdigest(self) -> str:
        """Return the digest of the bytes so far."""
        digests = [*self._digests, self._piece.digest()] if self.num_bytes else []
        return hashlib.sha256(b"".join(digests)).hexdigest()


def _piece_digest(descriptor: int, start: int, piece_bytes: int) -> bytes:
    piece = hashlib.sha256()
    position, end = start, start + piece_bytes
    while position < end:
        block = os.pread(descriptor, min(BLOCK_BYTES, end - position), position)
        if not block:  # end of file
            break
        piece.update(block)
        position += len(block)
    return piece.digest()
