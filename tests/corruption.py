"""Corruption of a checkpoint as disks and user mistakes cause it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

PAGE = 4096


def flip_bit(path: Path, random: Random | None = None) -> None:
    """Flip a bit, always the same one without `random`."""
    random = random or Random(0)
    content = bytearray(path.read_bytes())
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    _overwrite(path, content)


def zero_page(path: Path, random: Random) -> None:
    content = bytearray(path.read_bytes())
    starts = [start for start in range(0, len(content), PAGE) if any(content[start : start + PAGE])]
    start = random.choice(starts)
    content[start : start + PAGE] = bytes(len(content[start : start + PAGE]))
    _overwrite(path, content)


def truncate(path: Path, random: Random) -> None:
    with path.open("r+b") as file:
        file.truncate(random.randrange(path.stat().st_size))


def remove_meta(path: Path, _random: Random) -> None:
    path.with_suffix(".json").unlink()


def corrupt_meta(path: Path, random: Random) -> None:
    meta = path.with_suffix(".json")
    content = meta.read_bytes()
    _overwrite(meta, content[: random.randrange(len(content) - 2)] if random.random() < 0.5 else b"\0" * PAGE)


KINDS: dict[str, Callable[[Path, Random], None]] = {
    "flipped bit": flip_bit,
    "zeroed page": zero_page,
    "truncated": truncate,
    "no meta file": remove_meta,
    "corrupt meta file": corrupt_meta,
}


# The next trainer restores the meta file from the checkpoint, so that nothing is lost.
RESTORED = ("no meta file", "corrupt meta file")


def corrupt(names: Sequence[Path], kind: str, random: Random) -> None:
    """Corrupt a checkpoint under all its `names`, once if they are hard links of the same file."""
    seen: set[int] = set()
    for path in names:
        target = path.with_suffix(".json") if "meta" in kind else path
        if not target.exists():  # the kill came between latest.pth and its meta file
            continue
        inode = target.stat().st_ino
        if kind == "no meta file" or inode not in seen:
            KINDS[kind](path, random)
        seen.add(inode)


def _overwrite(path: Path, content: bytes | bytearray) -> None:
    """Write in place, so that the corruption reaches hard links of the file."""
    with path.open("r+b") as file:
        file.write(content)
        file.truncate()
