"""Tests of indextts/system/digest.py: one digest, whether a file is read in parallel or written in order."""

import hashlib
import random
from pathlib import Path

import pytest

from indextts.system.digest import BLOCK_BYTES, DigestWriter, file_digest

PIECE = 3 * BLOCK_BYTES // 2  # a piece is more than a block, and no multiple of one
SIZES = [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 5 * PIECE + 7]


def straightforward(content: bytes, piece: int) -> str:
    pieces = [content[start : start + piece] for start in range(0, len(content), piece)]
    return hashlib.sha256(b"".join(hashlib.sha256(p).digest() for p in pieces)).hexdigest()


@pytest.mark.parametrize("size", SIZES)
def test_the_digest_of_a_file_covers_the_digests_of_its_pieces(tmp_path: Path, size: int):
    content = random.Random(size).randbytes(size)
    path = tmp_path / "file"
    path.write_bytes(content)
    assert file_digest(path, PIECE) == straightforward(content, PIECE)


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 30, 57])
@pytest.mark.parametrize("longest_write", [1, 3, 10, 25, 100])
def test_bytes_written_in_any_portions_have_the_digest_of_the_file(size: int, longest_write: int):
    draw = random.Random(size + longest_write)
    content = draw.randbytes(size)
    writer, position = DigestWriter(10), 0
    while position < size:
        portion = content[position : position + draw.randint(0, longest_write)]
        writer.write(portion)
        position += len(portion)
        assert writer.hexdigest() == straightforward(content[:position], 10)
    assert writer.num_bytes == size
    assert writer.hexdigest() == straightforward(content, 10)


@pytest.mark.failure(2)
def test_one_flipped_bit_anywhere_gives_another_digest(tmp_path: Path):
    content = bytearray(random.Random(0).randbytes(2500))
    path = tmp_path / "file"
    path.write_bytes(content)
    good = file_digest(path, 1000)
    for position in (0, 999, 1000, 2499):
        content[position] ^= 1
        path.write_bytes(content)
        assert file_digest(path, 1000) != good
        content[position] ^= 1
