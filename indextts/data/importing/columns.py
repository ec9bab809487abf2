"""Decide which columns of a table hold the recording, the text and the speaker.

    by hand      --columns audio=0,speaker=1,text=2, with names of the header or numbers from 0
    by header    known names (headers.py)
    by content   audio      most values name recordings
                 text       running text, in the script of the language if that is not Latin
                 spoken     a text beside the text of a table without a header, as in LJSpeech
                 speaker    without a header: names that repeat, or numbers that do and count nothing
                 start, end without a header: two columns of times, if recordings repeat

A known header with a text in another script than the language is decided by its content too. Where two
readings are equally likely, the table is refused: a wrong column would train the model on wrong texts.
"""

import re
import statistics
import unicodedata
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise

from indextts.data.importing.headers import (
    CHOOSABLE,
    TIMES,
    column_and_unit,
    column_of,
    is_known_header,
    is_like_times,
    known_names,
)
from indextts.data.importing.items import AUDIO_SUFFIXES, NO_SPEAKERS, filled, time_of
from indextts.errors import UserError
from indextts.text.languages import find_language

AUTO = "auto"  # as --columns: decide, also where a choice is stored

Rows = Sequence[Sequence[str]]  # the first row, and further ones that have the same width as each other

_NEARLY_ALL, _MOST, _SOME = 0.9, 0.5, 0.05  # shares of values
_MAX_LOOKUPS = 40  # rows whose recordings are looked for
_SHARED_WORDS = 0.3  # of a text and its spoken form
_MIN_PAIRS = 20  # of numbers and texts, to tell whether they correlate
_MIN_CHARS_OF_TEXT = 12  # or two words
_MAX_CHARS_OF_NAME = 64  # of a speaker, and of a field of a header
_MAX_DIGITS_OF_NUMBER = 4  # of a column
_MAX_SHOWN = 30  # columns in a line of the log
_WORD = re.compile(r"[^\W\d_]+")
_SMALL_NUMBER = re.compile(r"\d{1,4}(?:\.0)?")


@dataclass(frozen=True)
class Columns:
    """Columns of a table."""

    names: tuple[str, ...]  # "audio", "text" and so on for each column; "" for one that is not read
    has_header: bool
    # the equally likely columns by name, such as {"text": [1, 2]}; empty if no column has the name
    candidates: Mapping[str, Sequence[int]] = field(default_factory=dict)
    problem: str = ""  # why the table cannot be imported; "" if all that is needed is decided
    is_other: bool = False  # no column could be the recording or the text, as in a list of speakers
    unit: str = ""  # of start, end and duration: "s", "ms" or "samples"; "" to decide by the recordings
    unread: tuple[int, ...] = ()  # numbers of the columns that look like times or a speaker, and are not read

    def shown(self, row: Sequence[str], header: Sequence[str] = ()) -> str:
        """Return the columns with the values of a row: "0 as audio (a.wav), sex not read (f)"."""
        labels = header or [str(number) for number in range(len(self.names))]
        columns = [
            f"{_short(label.strip())} {f'as {name}' if name else 'not read'} ({_short(value.strip())})"
            for label, name, value in zip(labels, self.names, row, strict=False)
        ]
        more = [f"{len(columns) - _MAX_SHOWN:,} more"] if len(columns) > _MAX_SHOWN else []
        return ", ".join(columns[:_MAX_SHOWN] + more)

    def choice(self, unit: str | None) -> str:
        """Return an example of --columns from these columns, with start and end, or start_ms and so on.

        Args:
            unit: of the times; "" if the recordings decide it, None without times.
        """
        end = f"_{unit}" if unit else ""
        times = [name for name in self.names if name in TIMES]
        chosen = {name: [number] for number, name in enumerate(self.names) if name and name not in times}
        for name, numbers in [*chosen.items(), *self.candidates.items()]:
            chosen[name] = [*numbers][:1]
        if unit is not None and "start" in times:
            chosen |= {f"{name}{end}": [self.names.index(name)] for name in times}
        elif unit is not None:
            chosen |= {f"start{end}": [*self.unread[:1]], f"end{end}": [*self.unread[1:2]]}
        parts = [f"{name}={numbers[0] if numbers else 'COLUMN'}" for name, numbers in chosen.items()]
        return f"--columns {','.join(parts)}"

    def other_texts(self, header: Sequence[str]) -> list[str]:
        """Return the columns of a header that are known as texts and not read."""
        return [
            field
            for field, name in zip(header, self.names, strict=True)
            if not name and column_of(field) == "text"
        ]


class NoColumnError(UserError):
    """A table has no column that could be the recording or the text, such as a list of speakers."""


def decide_columns(
    rows: Rows,
    names_audio: Callable[[str], bool],
    *,
    language: str,
    chosen: str = "",
    has_header: bool = False,
) -> Columns:
    """Return the columns of a table.

    Args:
        names_audio: whether a value names a recording that exists.
        language: ISO 639 code of the texts.
        chosen: the columns by hand, as in --columns; "" or AUTO to decide.
        has_header: the first row certainly has the names of the columns; else its content decides.

    Raises:
        NoColumnError: the table lacks a column of `chosen`.
        UserError: `chosen` is invalid, an unknown header has another width, or two columns have one name.
    """
    if len(rows[0]) != len(rows[-1]) and not is_known_header(rows[0]):
        if any(names_audio(field) or _has_audio_suffix(field) for field in rows[0]):
            rows = rows[1:]  # a row with a missing or an extra delimiter
        elif chosen in ("", AUTO):
            raise UserError(
                f"the first row has {len(rows[0])} columns, but most rows have {len(rows[-1])}; "
                "correct it, or quote the texts that contain the delimiter"
            )
    first = [field.strip() for field in rows[0]]
    has_header = has_header or is_known_header(first) or is_header(rows, names_audio, language)
    if chosen not in ("", AUTO):
        return _chosen_columns(chosen, first, has_header=has_header)
    body = rows[1:] if has_header else rows
    values = [[filled(row[number]) for row in body] for number in range(len(first))]
    names = known_names(first) if has_header else [""] * len(first)
    if has_header:
        _refuse_equal(first, values)
    if not body:
        return Columns(tuple(names), has_header)
    unit, unread = _keep_times(names, first if has_header else (), values)
    spoken = find_language(language)
    shares = [_share(column, lambda value: spoken.share(value) >= _MOST) for column in values]
    has_script = "Latn" not in spoken.scripts and max(shares) >= _MOST
    if "text" in names and has_script and shares[names.index("text")] < _SOME:
        names[names.index("text")] = ""  # a translation
    undecided: dict[str, list[int]] = {}

    def settle(name: str, candidates: Sequence[int]) -> None:
        if len(candidates) == 1:
            names[candidates[0]] = name
        else:
            undecided[name] = list(candidates)

    def free() -> list[int]:
        candidates = {number for numbers in undecided.values() for number in numbers}
        return [number for number, name in enumerate(names) if not name and number not in candidates]

    if "audio" not in names:
        recordings = _audio_columns(values, names, names_audio)
        if recordings or "id" not in names:
            settle("audio", recordings)
    if "text" not in names:
        readable = [number for number in free() if not has_script or shares[number] >= _MOST]
        texts = _text_columns(readable, values)
        if len(texts) == 2 and not has_header and _is_spoken_form(*(values[number] for number in texts)):
            names[texts.pop()] = "spoken"
        settle("text", texts)
    if not has_header:
        named = values[names.index("audio")] if "audio" in names else []
        times = [number for number in free() if _share(values[number], _is_time) >= _NEARLY_ALL]
        pairs = {pair: _share_of_spans(named, *(values[n] for n in pair)) for pair in pairwise(times)}
        spans = [pair for pair, share in pairs.items() if share >= _MOST]
        if len(spans) == 1 and len(set(named)) < len(named) and pairs[spans[0]] >= _NEARLY_ALL:
            names[spans[0][0]], names[spans[0][1]] = "start", "end"
        else:
            unread += sorted({number for pair in spans for number in pair})
        spoken_of = values[names.index("text")] if "text" in names else []
        numbered = [
            n for n in free() if any(values[n]) and all(map(_SMALL_NUMBER.fullmatch, filter(None, values[n])))
        ]
        ids = [number for number in numbered if _are_ids(values[number], spoken_of)]
        speakers = [number for number in free() if _is_speaker(values[number])] or ids
        if speakers:
            settle("speaker", speakers)
        else:
            unread += sorted({*numbered}.difference(unread))
        # the rest of texts with delimiters, or a second text
        rest = [number for number in free() if shares[number] >= _MOST]
        if has_script and rest and "text" in names:
            undecided["text"] = [names.index("text"), *rest]
            names[names.index("text")] = ""
    found = Columns(tuple(names), has_header, unit=unit, unread=tuple(unread))
    if not undecided:
        named = values[names.index("audio")] if "audio" in names and unread and has_header else []
        if len(set(named)) == len(named):
            return found
        labels = " and ".join(first[number] for number in unread)
        problem = f"rows share recordings, and {labels} may be their times"
        return replace(found, problem=f"{problem}; pass --columns, for example {found.choice('')}")
    found = replace(found, candidates=undecided, is_other=not next(iter(undecided.values())))
    names_shown = first if has_header else [str(number) for number in range(len(first))]
    return replace(found, problem=_problem(found, values, names_shown))


def _chosen_columns(chosen: str, first: Sequence[str], *, has_header: bool) -> Columns:
    """Return the columns of --columns; a NoColumnError if the table lacks one of them."""
    names = [""] * len(first)
    lower = [name.lower() for name in first]
    is_named, units = False, set()
    for part in chosen.split(","):
        written, _, column = (piece.strip() for piece in part.partition("="))
        name, unit = column_and_unit(written) if written not in CHOOSABLE else (written, "")
        if name not in CHOOSABLE or not column or name in names:
            expected = ", ".join(CHOOSABLE)
            raise UserError(
                f"--columns {chosen}: {part.strip()!r} is not NAME=COLUMN; NAME is one of {expected}, "
                "each at most once"
            )
        if column.isdecimal():
            number = int(column) if len(column) <= _MAX_DIGITS_OF_NUMBER else len(first)
        else:
            is_named, number = True, lower.index(column.lower()) if column.lower() in lower else len(first)
            if lower.count(column.lower()) > 1:
                raise UserError(f"--columns {chosen}: two columns are named {column}; pass their numbers")
        if number >= len(first):
            raise NoColumnError(
                f"--columns {chosen}: the table has no column {column}; it has 0 to {len(first) - 1}, "
                f"the first row is {', '.join(map(_short, first))}"
            )
        if names[number]:
            raise UserError(
                f"--columns {chosen}: column {column} has two uses, {names[number]} and {name}; keep one"
            )
        names[number] = name
        if name in TIMES:
            units.add(unit or column_and_unit(first[number])[1])
    needed = {"audio": {"audio", "id"}, "text": {"text", "spoken"}}
    if "start" in names or "end" in names:
        needed |= {"start": {"start"}, "end": {"end", "duration"}}
    missing: dict[str, Sequence[int]] = {
        name: () for name, either in needed.items() if not either & set(names)
    }
    problem = f"--columns {chosen}: name audio and text, for example --columns audio=0,text=1"
    if missing.keys() <= {"start", "end"}:
        problem = f"--columns {chosen}: name start and end, or start and duration"
    return Columns(
        tuple(names), has_header or is_named, missing, problem if missing else "", unit=_one_of(units)
    )


def _one_of(units: Set[str]) -> str:
    """Return the only unit that is named, if any; a UserError if there are two."""
    named = sorted(units - {""})
    if len(named) > 1:
        raise UserError(f"the times are in {' and in '.join(named)}; convert them to one unit")
    return named[0] if named else ""


def _refuse_equal(header: Sequence[str], values: Sequence[Sequence[str]]) -> None:
    """Raise a UserError if two columns with values have the same known name."""
    place: dict[str, int] = {}
    for number, name in enumerate(header):
        first = place.setdefault(name.lower(), number)
        pairs = zip(values[first], values[number], strict=True)
        if first != number and column_of(name) and any(value and other for value, other in pairs):
            raise UserError(
                f"columns {first} and {number} are both named {_short(name)}; rename one, or pass --columns "
                f"with numbers, for example --columns audio=0,text={number}"
            )


def _keep_times(
    names: list[str], header: Sequence[str], values: Sequence[Sequence[str]]
) -> tuple[str, list[int]]:
    """Remove the names of times that give no span; return the unit, and the columns that look like times."""
    lower = [name.lower() for name in header]
    if {"onset", "offset"} <= set(lower):
        names[lower.index("onset")], names[lower.index("offset")] = "start", "end"
    are_times = [_share(column, _is_time) >= _MOST for column in values]
    found = {name for name, is_time in zip(names, are_times, strict=True) if is_time}
    kept = {"start", "end" if "end" in found else "duration"}
    kept = kept if kept <= found else found & {"duration"}  # which the import compares with the recordings
    for number, name in enumerate(names):
        if name in TIMES and (name not in kept or not are_times[number]):
            names[number] = ""
    numbered = list(enumerate(zip(header, names, are_times, strict=False)))
    unit = _one_of({column_and_unit(label)[1] for _, (label, name, _) in numbered if name in kept})
    unread = [
        n
        for n, (label, name, is_time) in numbered
        if not name and any(values[n]) and is_like_times(label)
        if is_time or column_of(label) in ("start", "end")  # in a form that is not read
    ]
    return unit, unread


def _is_time(value: str) -> bool:
    return time_of(value) is not None


def _share_of_spans(recordings: Sequence[str], starts: Sequence[str], ends: Sequence[str]) -> float:
    """Return the share of rows whose start is before the end, without those of a span again."""
    times = [(time_of(start), time_of(end)) for start, end in zip(starts, ends, strict=True)]
    right = {
        (recording, start, end)
        for recording, (start, end) in zip(recordings, times, strict=False)
        if start is not None and end is not None and 0 <= start[0] < end[0]
    }
    return len(right) / max(1, len(recordings))


def is_header(rows: Rows, names_audio: Callable[[str], bool], language: str) -> bool:
    """Return whether the first row names columns: short fields, and no recording where others have one."""
    spoken = find_language(language)
    first, body = rows[0], rows[1:]
    if any(names_audio(field) or _has_audio_suffix(field) for field in first):
        return False
    if any(len(field) > _MAX_CHARS_OF_NAME for field in first):
        return False
    if "Latn" not in spoken.scripts and any(spoken.share(field) > 0 for field in first):
        return False
    width = min(len(first), len(rows[-1]))  # a first row of another width is possible
    named = (_share([row[number] for row in body[:_MAX_LOOKUPS]], names_audio) for number in range(width))
    return bool(body) and (max(named) >= _MOST or any(map(column_of, first)))


def _audio_columns(
    values: Sequence[Sequence[str]], names: Sequence[str], names_audio: Callable[[str], bool]
) -> list[int]:
    """Return the columns that may name the recordings; none if the id does."""
    unnamed = [number for number, name in enumerate(names) if name in ("", "recording")]
    suffixed = [number for number in unnamed if _share(values[number], _has_audio_suffix) >= _MOST]
    named = [
        number
        for number in unnamed
        if (number in suffixed or _is_various(values[number]))
        and _share(values[number][:_MAX_LOOKUPS], names_audio) >= _MOST
    ]
    candidates = [number for number in named if number in suffixed] or sorted({*named, *suffixed})
    if "id" in names:
        by_id = _share(values[names.index("id")][:_MAX_LOOKUPS], names_audio) >= _MOST
        return [number for number in candidates if number in named and (number in suffixed or not by_id)]
    if not candidates and 0 in unnamed and len(values) <= 3 and not _is_text(values[0]):
        return [0]  # as in LJSpeech; the recordings are missing, and each row is reported
    return candidates


def _text_columns(readable: Sequence[int], values: Sequence[Sequence[str]]) -> list[int]:
    """Return those of the columns in the script of the language, without a name yet, that may be the text."""
    texts = [number for number in readable if _is_text(values[number])]
    if texts:
        return texts
    words = [number for number in readable if _is_various(values[number])]
    if len(words) > 1:
        return []
    return list(readable) if len(values) == 2 else words  # one word again and again


def _is_text(column: Sequence[str]) -> bool:
    """Return whether most values are running text, and most of them differ."""

    def is_running(value: str) -> bool:
        letters = sum(unicodedata.category(char)[0] in "LM" for char in value)
        return 2 * letters >= len(value) and (len(value.split()) > 1 or len(value) >= _MIN_CHARS_OF_TEXT)

    return _share(column, is_running) >= _MOST and _is_various(column)


def _is_various(column: Sequence[str]) -> bool:
    """Return whether the values are not a few that repeat."""
    filled = [value for value in column if value]
    return bool(filled) and 2 * len(set(filled)) >= len(filled)


def _is_spoken_form(texts: Sequence[str], others: Sequence[str]) -> bool:
    """Return whether the others are the texts with digits spelled out, where they are filled."""
    shares = []
    for text, other in zip(texts, others, strict=True):
        words = set(_WORD.findall(text))
        if words and other:
            shares.append(len(words & set(_WORD.findall(other))) / len(words))
    return bool(shares) and sum(shares) / len(shares) >= _SHARED_WORDS


def _is_speaker(column: Sequence[str]) -> bool:
    """Return whether the values are names that repeat, no numbers and no other facts."""
    filled = [value for value in column if value]
    if not filled or len(filled) < 2 * len(set(filled)) or max(map(len, filled)) > _MAX_CHARS_OF_NAME:
        return False
    return all(
        _WORD.search(value)
        and re.fullmatch(r"[\w -]+", value)
        and value.lower().replace("-", "_") not in NO_SPEAKERS
        for value in set(filled)
    )


def _are_ids(column: Sequence[str], texts: Sequence[str]) -> bool:
    """Return whether small numbers repeat and count nothing in the texts, such as words or seconds."""
    pairs = [(int(float(value)), text) for value, text in zip(column, texts, strict=False) if value and text]
    numbers = {number for number, _ in pairs}
    if not pairs or len(numbers) == len(pairs) or (min(numbers) > 1 and len(numbers) < 3):
        return False
    lengths = [len(text) for _, text in pairs]
    num_counts = sum(number in (len(text.split()), len(text)) for number, text in pairs)
    if len(numbers) == 1 or len(set(lengths)) == 1 or len(pairs) < _MIN_PAIRS:
        return len(numbers) == 1 or 2 * num_counts <= len(pairs)
    return abs(statistics.correlation([number for number, _ in pairs], lengths)) < _MOST


def _problem(found: Columns, values: Sequence[Sequence[str]], labels: Sequence[str]) -> str:
    """Return the message about the first undecided name; `labels` are headers or numbers of the columns."""
    name, candidates = next(iter(found.candidates.items()))
    what = "recording" if name == "audio" else name
    shown = [
        f"{label} ({_short(next(filter(None, column), ''))})"
        for label, column in zip(labels, values, strict=True)
    ]
    if candidates:
        problem = f"columns {' and '.join(shown[number] for number in candidates)} could be the {what}"
    else:
        problem = f"no column could be the {what}: {', '.join(shown)}"
    return f"{problem}; pass --columns, for example {found.choice(None)}"


def _share(column: Sequence[str], is_so: Callable[[str], bool]) -> float:
    """Return the share of the filled values that satisfy the predicate."""
    filled = [value for value in column if value.strip()]
    return sum(map(is_so, filled)) / len(filled) if filled else 0.0


def _has_audio_suffix(value: str) -> bool:
    return any(value.strip().lower().endswith(suffix) for suffix in AUDIO_SUFFIXES)


def _short(value: str) -> str:
    return value if len(value) <= 40 else f"{value[:37]}..."
