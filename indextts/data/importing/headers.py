"""Headers of tables: the column that a name is known for, and the unit of its times (headers.toml).

Headers are compared without case, blanks, brackets and camel case: "Audio File", "Start (ms)".
"""

import re
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
# Of each column, the words of which a header has one, and those that may stand beside it: "audio_file_path".
_COLUMNS = [
    (column, frozenset(names.split()), frozenset(more.split())) for column, names, more in _TABLES["headers"]
]
_UNITS = {word: unit for unit, words in _TABLES["units"].items() for word in words.split()}
TIMES = ("start", "end", "duration")
_LIKE_TIMES = {"start", "begin", "offset", "onset", "end", "stop", "tmin", "tmax", "t0", "t1"}
CHOOSABLE = (*dict.fromkeys(column for column, _, _ in _COLUMNS), "spoken")
_PART = re.compile(r"[^\W_]+")  # a word of a header
_BRACKETS = re.compile(r"[(\[{].*?[)\]}]")


def column_of(header: str) -> str:
    """Return the column that a header is known for: "audio" for "Audio File"; "" if there is none."""
    return column_and_unit(header)[0]


@lru_cache(maxsize=4096)
def column_and_unit(header: str) -> tuple[str, str]:
    """Return the column that a header is known for, and its unit: ("start", "ms") for "Start (ms)"."""
    all_words = _words(header)
    unit = next((_UNITS[word] for word in reversed(all_words) if word in _UNITS), "")
    words = [word for word in _words(_BRACKETS.sub("", header)) if word not in _UNITS] or all_words
    both = frozenset(["sourcefile"] if words == ["source", "file"] else words)
    known = (column for column, names, more in _COLUMNS if both & names and both <= names | more)
    column = next(known, "")
    return (column, unit) if column in TIMES else ("" if unit else column, "")


def _words(header: str) -> list[str]:
    return _PART.findall(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", header).lower())


def is_like_times(header: str) -> bool:
    """Return whether a header has a word of times, in whatever form."""
    return not _LIKE_TIMES.isdisjoint(_words(header))


def is_known_header(fields: Sequence[str]) -> bool:
    """Return whether a row has known names for the text and for the recording."""
    known = {column_of(field) for field in fields}
    return "text" in known and bool({"audio", "id"} & known)


def known_names(header: Sequence[str]) -> list[str]:
    """Return the columns of a header, each once: the first of its names; of texts the one as written."""

    def rank(number: int) -> tuple[bool, bool, int]:
        name = header[number].lower()
        return "normal" in name or "author" in name, not name.startswith("raw"), number

    names = [""] * len(header)
    for number in sorted(range(len(header)), key=rank):
        column = column_of(header[number])
        names[number] = column if column not in names else ""
    return names
