"""A small rank file for tests: the 256 bytes in the published order, and merges of a few texts."""

from pathlib import Path

from indextts.text.byte_level import rank_lines

VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]  # first, as in GPT-2
BYTES = [bytes([byte]) for byte in (*VISIBLE, *(b for b in range(256) if b not in VISIBLE))]
# As in the published file, a blank and the first byte of an Ethiopic letter are one piece; 88 AC is another.
MERGES = [b"th", b"he", b" t", b" th", b" the", b" \xe1", b"\x88\xac", b"in", b"", b" \xd9", b"\xe4\xb8"]


def write_ranks(folder: Path) -> Path:
    """Write the rank file of 267 pieces and return its path."""
    path = folder / "ranks.tiktoken"
    path.write_bytes(rank_lines((*BYTES, *MERGES), len(BYTES) + len(MERGES)))
    return path
