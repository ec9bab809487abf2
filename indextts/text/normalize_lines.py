"""Lines of a byte stream, normalised: whatever the stream holds, one line after the other, in bounded memory.

Every line of input gives one line of output, so that the two stay side by side. A line that is no text gives
an empty one and a sentence that names it: bytes that are not UTF-8 (as in a file of mixed encodings), zero
bytes (as in a binary file), more than `MAX_LINE_BYTES`. A stream in UTF-16 is refused as a whole.
"""

import codecs
from collections.abc import Iterator
from typing import BinaryIO, TextIO

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.errors import UserError
from indextts.text.normalize import explain, normalize

MAX_LINE_BYTES = 2**20  # far more than a sentence; what is longer is no text, or lost its ends of lines
MAX_SENTENCES = 20  # a binary file has thousands of bad lines
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def normalize_lines(
    lines: BinaryIO, out: TextIO, err: TextIO, options: NormalizerOptions, show_changes: bool
) -> int:
    """Write each line normalised to `out`; return how many were left out, each named on `err`.

    Args:
        lines: UTF-8; a byte order mark at its beginning is fine.
        show_changes: below each line that changed, what each rule did.

    Raises:
        UserError: the stream is UTF-16.
    """
    num_left_out = 0
    for number, line in enumerate(_bounded_lines(lines), start=1):
        problem = _problem(line)
        if problem:
            num_left_out += 1
            out.write("\n")
            if num_left_out <= MAX_SENTENCES:
                out.flush()
                err.write(f"[Error] standard input:{number}: {problem}; the line is left out\n")
            continue
        text = line.decode("utf-8").rstrip("\r\n")
        out.write(normalize(text, options) + "\n")
        if show_changes:
            for change in explain(text, options):
                out.write(f"    {change.rule}: {change.before!r} -> {change.after!r}\n")
    if num_left_out > MAX_SENTENCES:
        err.write(f"[Error] {num_left_out} lines were left out in all\n")
    return num_left_out


def _bounded_lines(lines: BinaryIO) -> Iterator[bytes]:
    """Yield the lines; of one that is too long, its beginning, with more than `MAX_LINE_BYTES`."""
    is_first = True
    while line := lines.readline(MAX_LINE_BYTES + 1):
        if is_first and line.startswith(_UTF_16):
            raise UserError("standard input is UTF-16; save the text as UTF-8")
        is_first = False
        yield line
        rest = line
        while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
            rest = lines.readline(MAX_LINE_BYTES + 1)


def _problem(line: bytes) -> str | None:
    """Return why a line is no text, None for one that is."""
    if len(line) > MAX_LINE_BYTES:
        return f"longer than {MAX_LINE_BYTES:,} bytes, give a sentence a line"
    if b"\0" in line:
        return f"byte {line.index(0) + 1} is zero, this is no text"
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"byte {error.start + 1} is not UTF-8, save the text as UTF-8"
    return None
