"""Decide which columns of a table hold the recording, the text and the speaker.

    by hand      --columns audio=0,speaker=1,text=2, with names of the header or numbers from 0
    by header    known names (ALIASES)
    by content   audio      most values name recordings
                 text       running text, in the script of the language if that is not Latin
                 spoken     a text beside the text of a table without a header, as in LJSpeech
                 speaker    without a header: names that repeat, with a letter

A known header with a text in another script than the language is decided by its content too. Where two
readings are equally likely, the table is refused: a wrong column would train the model on wrong texts.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from indextts.data.importing.items import AUDIO_SUFFIXES
from indextts.errors import UserError
from indextts.text.languages import Language, find_language

ALIASES = {
    "audio": (
        "audio", "audio_path", "audio_filepath", "audio_file", "path", "file", "file_name", "filename", "wav",
        "wav_path", "clip", "wav_filename",
    ),
    "text": (
        "text", "sentence", "transcription", "transcript", "raw_transcription", "normalized_text",
        "normalized_transcription", "raw_text", "normalised_text", "text_normalized", "normalized",
    ),
    "speaker": (
        "speaker", "speaker_id", "client_id", "speaker_name", "reader_id", "spk", "voice", "voice_creator_id",
    ),
    "id": ("id", "utterance_id", "utt_id", "clip_id"),
    "language": ("language", "lang", "locale"),
    "recording": ("recording", "source_file"),
}  # fmt: skip
COLUMN_OF = {alias: column for column, aliases in ALIASES.items() for alias in aliases}
CHOOSABLE = (*ALIASES, "spoken")
AUTO = "auto"  # as --columns: decide, also where a choice is stored

Rows = Sequence[Sequence[str]]  # the first row, and further ones that have the same width as each other

_MOST, _SOME = 0.5, 0.05  # shares of values
_MAX_LOOKUPS = 40  # rows whose recordings are looked for
_SHARED_WORDS = 0.3  # of a text and its spoken form
_MIN_CHARS_OF_TEXT = 12  # or two words
_MAX_CHARS_OF_NAME = 64  # of a speaker, and of a field of a header
_MAX_DIGITS_OF_NUMBER = 4  # of a column
_MAX_SHOWN = 30  # columns in a line of the log
_WORD = re.compile(r"[^\W\d_]+")
# Repeating values that are not speakers.
_NO_SPEAKERS = {
    *("m", "f", "male", "female", "man", "woman", "other", "none", "unknown", "true", "false", "yes", "no"),
    *("train", "dev", "val", "valid", "validation", "test"),
    *("am", "amh", "amh_et", "am_et", "en", "eng", "zh", "ja", "ko", "amharic", "english"),
}


@dataclass(frozen=True)
class Columns:
    """Columns of a table.

    Args:
        names: "audio", "text" and so on for each column; "" for one that is not read.
        candidates: numbers of the equally likely columns by name, such as {"text": [1, 2]}; empty if there is
            no column with that name.
        problem: why the table cannot be imported; "" if all that is needed is decided.
        is_other: no column could be the recording or the text, as in a list of speakers.
    """

    names: tuple[str, ...]
    has_header: bool
    candidates: Mapping[str, Sequence[int]] = field(default_factory=dict)
    problem: str = ""
    is_other: bool = False

    def shown(self, row: Sequence[str], header: Sequence[str] = ()) -> str:
        """Return the columns with the values of a row: "0 as audio (a.wav), sex not read (f)".

        Args:
            header: names of the columns; empty without a header.
        """
        labels = header or [str(number) for number in range(len(self.names))]
        columns = [
            f"{_short(label.strip())} {f'as {name}' if name else 'not read'} ({_short(value.strip())})"
            for label, name, value in zip(labels, self.names, row, strict=False)
        ]
        more = [f"{len(columns) - _MAX_SHOWN:,} more"] if len(columns) > _MAX_SHOWN else []
        return ", ".join(columns[:_MAX_SHOWN] + more)

    def other_texts(self, header: Sequence[str]) -> list[str]:
        """Return the columns of a header that are known as texts and not read."""
        return [
            field
            for field, name in zip(header, self.names, strict=True)
            if not name and COLUMN_OF.get(field.strip().lower()) == "text"
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
        UserError: `chosen` is invalid, or an unknown header has another width.
    """
    if len(rows[0]) != len(rows[-1]) and not is_known_header(rows[0]):
        if any(names_audio(field) or _has_audio_suffix(field) for field in rows[0]):
            rows = rows[1:]  # a row with a missing or an extra delimiter
        elif chosen in ("", AUTO):
            raise UserError(
                f"the first row has {len(rows[0])} columns and most others have {len(rows[-1])}; "
                "correct it, or quote the texts that contain the delimiter"
            )
    first = [field.strip().lower() for field in rows[0]]
    has_header = has_header or is_known_header(first) or is_header(rows, names_audio, language)
    if chosen not in ("", AUTO):
        return _chosen_columns(chosen, first, has_header=has_header)
    names = _known_names(first) if has_header else [""] * len(first)
    body = rows[1:] if has_header else rows
    if not body:
        return Columns(tuple(names), has_header)
    values = [[row[number].strip() for row in body] for number in range(len(first))]
    spoken = find_language(language)
    shares = [_share(column, lambda value: spoken.share(value) >= _MOST) for column in values]
    has_script = not _is_latin(spoken) and max(shares) >= _MOST
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
        if speakers := [number for number in free() if _is_speaker(values[number])]:
            settle("speaker", speakers)
        # the rest of texts with delimiters, or a second text
        rest = [number for number in free() if shares[number] >= _MOST]
        if has_script and rest and "text" in names:
            undecided["text"] = [names.index("text"), *rest]
            names[names.index("text")] = ""
    if not undecided:
        return Columns(tuple(names), has_header)
    problem, is_other = _problem(undecided, values), not next(iter(undecided.values()))
    return Columns(tuple(names), has_header, undecided, problem, is_other)


def is_known_header(fields: Sequence[str]) -> bool:
    """Return whether a row has known names for the text and for the recording."""
    known = {COLUMN_OF.get(field.strip().lower()) for field in fields}
    return "text" in known and bool({"audio", "id"} & known)


def _chosen_columns(chosen: str, first: Sequence[str], *, has_header: bool) -> Columns:
    """Return the columns of --columns.

    Raises:
        NoColumnError: it names a column that the table lacks.
        UserError: it is not of the form NAME=COLUMN,...
    """
    names = [""] * len(first)
    is_named = False
    for part in chosen.split(","):
        name, _, column = (piece.strip() for piece in part.partition("="))
        if name not in CHOOSABLE or not column or name in names:
            expected = ", ".join(CHOOSABLE)
            raise UserError(
                f"--columns {chosen}: {part.strip()!r} is not NAME=COLUMN; NAME is one of {expected}, "
                "each at most once"
            )
        if column.isdecimal():
            number = int(column) if len(column) <= _MAX_DIGITS_OF_NUMBER else len(first)
        else:
            is_named, number = True, first.index(column.lower()) if column.lower() in first else len(first)
        if number >= len(first):
            raise NoColumnError(
                f"--columns {chosen}: the table has no column {column}; it has 0 to {len(first) - 1}, "
                f"the first row is {', '.join(map(_short, first))}"
            )
        if names[number]:
            raise UserError(f"--columns {chosen}: column {column} cannot be {names[number]} and {name}")
        names[number] = name
    needed = {"audio": {"audio", "id"}, "text": {"text", "spoken"}}
    missing: dict[str, Sequence[int]] = {
        name: () for name, either in needed.items() if not either & set(names)
    }
    problem = f"--columns {chosen}: name audio and text, for example --columns audio=0,text=1"
    return Columns(tuple(names), has_header or is_named, missing, problem if missing else "")


def is_header(rows: Rows, names_audio: Callable[[str], bool], language: str) -> bool:
    """Return whether the first row names columns: short fields, and no recording where others have one."""
    spoken = find_language(language)
    first, body = rows[0], rows[1:]
    if any(names_audio(field) or _has_audio_suffix(field) for field in first):
        return False
    if any(len(field) > _MAX_CHARS_OF_NAME for field in first):
        return False
    if not _is_latin(spoken) and any(spoken.share(field) > 0 for field in first):
        return False
    width = min(len(first), len(rows[-1]))  # a first row of another width is possible
    named = (_share([row[number] for row in body[:_MAX_LOOKUPS]], names_audio) for number in range(width))
    return bool(body) and (max(named) >= _MOST or any(field.strip().lower() in COLUMN_OF for field in first))


def _is_latin(language: Language) -> bool:
    return "Latn" in language.scripts


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
    """Return the columns that may be the text.

    Args:
        readable: the columns in the script of the language that have no name yet.
    """
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
        and value.lower().replace("-", "_") not in _NO_SPEAKERS
        for value in set(filled)
    )


def _problem(undecided: Mapping[str, Sequence[int]], values: Sequence[Sequence[str]]) -> str:
    """Return the message about the first name that is not decided."""
    name, candidates = next(iter(undecided.items()))
    what = "recording" if name == "audio" else name
    shown = [f"{number} ({_short(next(filter(None, values[number]), ''))})" for number in range(len(values))]
    if candidates:
        problem = f"columns {' and '.join(shown[number] for number in candidates)} could be the {what}"
    else:
        problem = f"no column could be the {what}: {', '.join(shown)}"
    return f"{problem}; pass --columns, for example --columns audio=0,speaker=1,text=2"


def _share(column: Sequence[str], is_so: Callable[[str], bool]) -> float:
    """Return the share of the filled values that satisfy the predicate."""
    filled = [value for value in column if value.strip()]
    return sum(map(is_so, filled)) / len(filled) if filled else 0.0


def _has_audio_suffix(value: str) -> bool:
    return any(value.strip().lower().endswith(suffix) for suffix in AUDIO_SUFFIXES)


def _known_names(header: Sequence[str]) -> list[str]:
    """Return the columns of a header, each once: the first of its names, and of texts the one as written."""

    def rank(number: int) -> tuple[bool, bool, int]:
        return "normal" in header[number], not header[number].startswith("raw_"), number

    names = [""] * len(header)
    for number in sorted(range(len(header)), key=rank):
        column = COLUMN_OF.get(header[number], "")
        names[number] = column if column not in names else ""
    return names


def _short(value: str) -> str:
    return value if len(value) <= 40 else f"{value[:37]}..."
