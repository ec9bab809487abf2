import os
from pathlib import Path
from random import Random

import pytest

from indextts.projects.jobs import log_tail
from indextts.projects.jobs.log_tail import read_end, tail
from tests.running_jobs import bytes_read_so_far


@pytest.mark.parametrize(
    ("log", "shown"),
    [
        (b"one\ntwo\n", "one\ntwo"),
        (b"one\npart of a li", "one\npart of a li"),
        (b"", ""),
        (b"\n\nx\n\n", "\n\nx\n"),
        (b"  0%\r 50%\r100%\ndone\r\n 3%\r 4%\r", "100%\ndone\n 4%"),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b(Bok\x1b[K", "red ok"),
        (b"a\x00b\x08\x7fc\td", "abc\td"),
        (b"\xe1\x88\xb0\xe1\x88 \xff!", "ሰ\ufffd \ufffd!"),
        (b"x" * 5000, "x" * 2000),
        ("one\u2028line\u0085\x0b\x1c".encode(), "one\u2028line"),
    ],
)
@pytest.mark.failure(53)
def test_tail_shows_the_text_as_a_terminal_does(tmp_path: Path, log: bytes, shown: str):
    path = tmp_path / "output.log"
    path.write_bytes(log)
    assert tail(path) == shown


def test_the_tail_of_a_missing_file_is_empty(tmp_path: Path):
    assert tail(tmp_path / "output.log") == ""


@pytest.mark.failure(53)
def test_tail_keeps_the_last_lines(tmp_path: Path):
    path = tmp_path / "output.log"
    path.write_text("".join(f"{number}\n" for number in range(200_000)))
    assert tail(path, 3) == "199997\n199998\n199999"
    assert len(tail(path).splitlines()) == 200


@pytest.mark.failure(53)
def test_tail_reads_only_the_end_of_a_huge_file(tmp_path: Path):
    path = tmp_path / "output.log"
    with path.open("wb") as file:
        file.truncate(2**40)
        file.seek(0, os.SEEK_END)
        file.write("\nየመጨረሻ\n".encode())
    before = bytes_read_so_far()
    assert tail(path) == "የመጨረሻ"
    assert bytes_read_so_far() - before < 2 * log_tail.MAX_TAIL_BYTES


def test_the_last_lines_of_any_log_are_read(tmp_path: Path):
    path = tmp_path / "output.log"
    chance = Random(1)
    for _ in range(60):
        lines = ["ሰab"[: chance.randrange(4)] * chance.randrange(9) for _ in range(chance.randrange(1, 9))]
        content = "\n".join(lines) + chance.choice(["", "\n"])
        path.write_text(content, encoding="utf-8")
        shown = content.removesuffix("\n").split("\n") if content else []
        most = chance.randrange(1, 12)
        end = read_end(path, most)
        assert end.lines == shown[-most:]
        assert end.has_more == (len(shown) > most)
        wanted = [line for line in shown if "B" in line.upper()]
        assert read_end(path, most, wanted="B").lines == wanted[-most:]


def test_no_more_is_read_than_allowed(tmp_path: Path):
    path = tmp_path / "output.log"
    path.write_bytes(b"".join(b"line %07d\n" % number for number in range(100_000)))
    before = bytes_read_so_far()
    end = read_end(path, 50, wanted="line 0000001", max_bytes=130_000)  # it is far above
    assert bytes_read_so_far() - before < 140_000
    assert (end.lines, end.has_more) == ([], True)
    assert 120_000 < end.num_searched <= 130_000
    assert read_end(path, 1, wanted="0099998").lines == ["line 0099998"]
    path.write_bytes(b"x" * 5_000_000)
    assert read_end(path, 5).lines == ["x" * 2000]


def test_characters_that_reorder_a_line_are_removed(tmp_path: Path):
    path = tmp_path / "output.log"
    path.write_text("a\u202egpj.exe\u2066b\u200f", encoding="utf-8")
    assert tail(path) == "agpj.exeb"
