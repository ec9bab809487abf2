import io
import subprocess
import sys

import pytest

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.errors import UserError
from indextts.text.normalize import MAX_LINE_BYTES, MAX_MESSAGES, normalize_lines
from tests.waiting import PATIENCE_S

COMMAND = [sys.executable, "-m", "indextts.text.normalize"]


def done(content: bytes) -> tuple[list[str], list[str], int]:
    """Return the lines that come out, the sentences and the number of lines left out."""
    out, err = io.StringIO(), io.StringIO()
    count = normalize_lines(io.BytesIO(content), out, err, NormalizerOptions(), show_changes=False)
    return out.getvalue().split("\n")[:-1], err.getvalue().splitlines(), count


def test_the_command_normalises_lines_and_lists_the_changes():
    command = [*COMMAND, "--explain", "--percent=ፐርሰንት"]
    answer = subprocess.run(command, input="50%\nሰላም።\n".encode(), capture_output=True, check=True)
    assert answer.stdout.decode().splitlines() == [
        "ሃምሳ ፐርሰንት",
        "    percent: '50%' -> '50 ፐርሰንት'",
        "    numbers: '50' -> 'ሃምሳ'",
        "ሰላም.",
        "    Ethiopic marks: 'ሰላም።' -> 'ሰላም.'",
    ]


def test_in_a_file_of_mixed_encodings_utf_8_lines_are_normalised():
    utf_16 = "5 ሰው".encode("utf-16-le")
    content = b"\n".join([b"5", "é".encode("latin-1"), utf_16, "3 ሰው".encode()])
    lines, sentences, count = done(content)
    assert lines == ["አምስት", "", "", "ሦስት ሰው"]
    assert count == 2
    assert sentences[0].startswith("[Error] standard input:2: byte 1 is not UTF-8")
    assert sentences[1].startswith("[Error] standard input:3: ")


def test_a_byte_order_mark_and_any_line_ends_are_accepted():
    assert done("\ufeff5\r\n3\n\nሰላም".encode()) == (["አምስት", "ሦስት", "", "ሰላም"], [], 0)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_file_in_utf_16_is_refused(encoding):
    content = "\ufeffሰላም\n" if encoding == "utf-16-be" else "ሰላም\n"
    with pytest.raises(UserError, match="UTF-16"):
        done(content.encode(encoding))


def test_a_binary_file_gives_a_few_messages_and_the_count():
    content = bytes([7, *range(255, -1, -1)]) * 100
    lines, sentences, count = done(content)
    assert count > MAX_MESSAGES
    assert len(sentences) == MAX_MESSAGES + 1
    assert f" {count:,} " in sentences[-1]
    assert len(lines) == content.count(b"\n") + (not content.endswith(b"\n"))


def test_a_too_long_line_is_skipped_and_the_next_one_is_read():
    longest = "ሀ".encode() * (MAX_LINE_BYTES // 3)
    lines, sentences, count = done(longest + b"\n" + b"x" * 3 * MAX_LINE_BYTES + b"\n" + b"5")
    assert count == 1
    assert "standard input:2: longer than 1,048,576 " in sentences[0]
    assert [len(line) for line in lines] == [MAX_LINE_BYTES // 3, 0, len("አምስት")]


@pytest.mark.slow
def test_a_line_of_2_gb_needs_little_memory():
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30)); "
        "from indextts.text.normalize import main; sys.exit(main([]))"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdin
        block = "ሰላም ".encode() * 2**16
        for _ in range(2 * 10**9 // len(block) + 1):
            running.stdin.write(block)
        running.stdin.write(b"\n5\n")
        out, err = running.communicate(timeout=PATIENCE_S)
    assert out.decode() == "\nአምስት\n"
    assert err.decode().count("\n") == 1
    assert "standard input:1: longer than" in err.decode()
    assert running.returncode == 1
