"""Readings: a table of written and spoken forms that people edit, applied to a text before the rules.

    readings.tsv    tab-separated, UTF-8; the first line is the header, and `language` may be missing or empty

    written     spoken            match     language      a cell may be in quotes, as spreadsheets write it
    ጠ/ፍ/ቤት     ጠቅላይ ፍርድ ቤት      word      am
    ሀ/          ሀብተ               prefix
    ክፍል-#      ክፍል ቁጥር #        number
    [ሳቅ]                          word                    an empty spoken form: not spoken

    word      the written form alone between spaces and marks
    prefix    the start of a longer word, whose rest stays; a space precedes it if the form ends with a sign
    number    `#` stands for a number, which the rules read in the place of the `#` of the spoken form

An abbreviation, a form with a digit and a Latin word also count behind a prefix (በBBC, የጠ/ፍ/ቤት); after a
word that ends in a letter of such a form, ን, ና and ም may follow. Longer written forms come first. A spoken
form is not read again by other readings; the rules read its digits and signs. The case of Latin letters
counts only if the written form has a capital one.

The tokenizer file carries the rows of its language (indextts/text/tokenizer.py).
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, get_args

from indextts.commands.normalizer_options import Match, NormalizerFlags, NormalizerOptions, Reading
from indextts.errors import UserError
from indextts.system.disk import read_text_lines
from indextts.system.files import written_aside
from indextts.system.language_codes import standard_code
from indextts.text.abbreviations import PREFIXES
from indextts.text.characters import clean_characters
from indextts.text.languages import find_language

COLUMNS = ("written", "spoken", "match", "language")
MAX_FORM_CHARS = 200
NUMBER_SIGN = "#"
_QUOTED = re.compile(r'^\s*"(.*)"\s*$')


class ReadingRow(NamedTuple):
    """A row of the table; `language` is an ISO 639 code, or empty for every language."""

    written: str
    spoken: str
    match: Match
    language: str = ""

    @property
    def key(self) -> str:
        """Return what no two rows of a table share."""
        return "\t".join((self.written, self.match, self.language))

    @property
    def reading(self) -> Reading:
        return Reading(self.written, self.spoken, self.match)


# ---- the file


def parse_row(values: Sequence[str]) -> ReadingRow:
    """Return a row from the cells of a table; a ValueError that names the column of an unusable cell."""
    cells = [
        " ".join(clean_characters(_QUOTED.sub(r"\1", value)).replace('""', '"').split()) for value in values
    ]
    written, spoken, match, language = [*cells, *[""] * (len(COLUMNS) - len(cells))]
    for name, value in (("written", written), ("spoken", spoken)):
        if not value and name == "written":
            raise ValueError(f"{name} is empty; write the form there")
        if len(value) > MAX_FORM_CHARS:
            raise ValueError(f"{name} has {len(value)} characters; use at most {MAX_FORM_CHARS}")
    if match not in get_args(Match):
        raise ValueError(f"match is {match!r}; use one of {', '.join(get_args(Match))}")
    for name, value in (("written", written), ("spoken", spoken)) if match == "number" else ():
        if value.count(NUMBER_SIGN) != 1:
            raise ValueError(
                f"{name} {value!r} has {value.count(NUMBER_SIGN)} number signs; write one {NUMBER_SIGN} for "
                "the number"
            )
    if language and standard_code(language) is None:
        raise ValueError(f"language is {language!r}; use an ISO 639 code such as am, or leave it empty")
    return ReadingRow(written, spoken, match, standard_code(language) or "")  # type: ignore[arg-type]


def find_duplicate(rows: Sequence[ReadingRow]) -> tuple[int, int] | None:
    """Return the indexes of the first two rows with the same written form, match and language."""
    seen: dict[str, int] = {}
    for index, row in enumerate(rows):
        first = seen.setdefault(row.key, index)
        if first != index:
            return first, index
    return None


def read_rows(path: Path) -> list[ReadingRow]:
    """Return the rows of a table of readings; a UserError names the file and line that cannot be used."""
    lines = read_text_lines(path, "--readings", "use a table in UTF-8")
    header = tuple(cell.strip('"') for cell in lines[0].split("\t")) if lines else ()
    if header not in (COLUMNS, COLUMNS[:3]):
        raise UserError(
            f"{path}:1: the header is {' '.join(header)!r}; use {', '.join(COLUMNS)}, separated by tabs"
        )
    rows, numbers = [], []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        values = line.split("\t")
        if not 3 <= len(values) <= len(COLUMNS):
            raise UserError(
                f"{path}:{number}: {len(values)} columns; write {', '.join(COLUMNS)}, separated by tabs"
            )
        try:
            rows.append(parse_row(values))
        except ValueError as error:
            raise UserError(f"{path}:{number}: {error}") from None
        numbers.append(number)
    if twice := find_duplicate(rows):
        first, second = (numbers[index] for index in twice)
        raise UserError(
            f"{path}:{second}: {rows[twice[1]].written!r} is in line {first} too; keep one of them"
        )
    return rows


def write_rows(path: Path, rows: Sequence[ReadingRow]) -> None:
    """Write a table of readings; an OSError if that fails."""
    lines = ["\t".join(row) for row in (COLUMNS, *rows)]
    with written_aside(path) as aside:
        aside.write_text("\n".join(lines) + "\n", encoding="utf-8")


# ---- options with readings


def readings_for(rows: Sequence[ReadingRow], language: str) -> tuple[Reading, ...]:
    """Return the readings for texts in a language; a row for the language precedes one for every language."""
    code = find_language(language).code
    found = {(row.written, row.match): row.reading for row in rows if not row.language}
    found |= {(row.written, row.match): row.reading for row in rows if row.language == code}
    return tuple(sorted(found.values()))


def typed_options(flags: NormalizerFlags) -> dict[str, Any]:
    """Return the typed flags as fields of `NormalizerOptions`; a UserError for an unusable readings table."""
    names = flags.model_fields_set & NormalizerFlags.model_fields.keys()
    values = {name: getattr(flags, name) for name in names}
    if path := values.pop("readings", None):
        values["readings"] = readings_for(read_rows(path), flags.language)
    if "rules_off" in values:
        values["rules_off"] = tuple(sorted(set(values["rules_off"])))
    return values


def options_of(flags: NormalizerFlags) -> NormalizerOptions:
    """Return the options that the flags of a command choose; errors as for `typed_options`."""
    return NormalizerOptions(**typed_options(flags))


# ---- the text

_PREFIX = re.compile(f"(?:{PREFIXES}){{1,2}}")
_RUN_BEFORE = re.compile(r"[\w/.]*\Z")
_NUMBER = r"(\d+(?:[.,]\d+)*|[፩-፼]+)"
_CONTEXT_CHARS = 24  # before a match; two prefixes are shorter
_ENDING = r"(?=(?:ን|ና|ም|ንና|ንም)?(?!/?\w|\.\w))"
_CONTINUES = r"(?:\.(?=\s*\w))?"  # a dot after the last letter belongs to the form if the sentence continues


class _Rule(NamedTuple):
    """A reading, and what its written form allows."""

    reading: Reading
    may_follow_prefix: bool  # it counts behind a prefix
    needs_space: bool  # the next word follows the spoken form after a space


def apply_readings(text: str, readings: tuple[Reading, ...]) -> str:
    """Return `text` with the spoken forms in place of the written ones."""
    if not readings:
        return text
    pattern, rules = _compiled(readings)
    return pattern.sub(lambda match: _spoken(match, rules), text)


def used_readings(text: str, readings: tuple[Reading, ...]) -> list[Reading]:
    """Return the readings that change something in `text`, in the order of the text."""
    if not readings:
        return []
    pattern, rules = _compiled(readings)
    found = (match for match in pattern.finditer(text) if _counts(match, rules))
    return [_rule_of(match, rules).reading for match in found]


def reading_changes(text: str, old: tuple[Reading, ...], new: tuple[Reading, ...]) -> bool:
    """Return whether a text gets other words by the new readings than by the old ones, before the rules."""
    text = clean_characters(text)
    return apply_readings(text, old) != apply_readings(text, new)


@lru_cache(maxsize=8)
def _compiled(readings: tuple[Reading, ...]) -> tuple[re.Pattern[str], tuple[_Rule, ...]]:
    """Return a pattern of all written forms, each with an empty group behind it, and the rule of each group.

    The groups come last so that each alternative starts with a letter, which the search tests first.
    """
    longest_first = sorted(readings, key=lambda reading: (-len(reading.written), reading))
    pattern = "|".join(f"{_pattern(reading)}()" for reading in longest_first)
    rules: list[_Rule] = []
    for reading in longest_first:
        letters = reading.written.replace(" ", "")
        is_plain = letters.isalpha() and not letters[0].isascii()
        needs_space = reading.match == "prefix" and not reading.written[-1].isalnum()
        rule = _Rule(reading, not is_plain, needs_space)
        rules += [rule, rule] if reading.match == "number" else [rule]  # the number is a group, too
    return re.compile(pattern), tuple(rules)


def _pattern(reading: Reading) -> str:
    written, last = reading.written, reading.written[-1]
    in_case = _in_both_cases if re.search("[A-Z]", written) else "(?i:{})".format
    body = r"\s+".join(
        in_case(re.escape(part)).replace(re.escape(NUMBER_SIGN), _NUMBER)
        if reading.match == "number"
        else in_case(re.escape(part))
        for part in written.split()
    )
    if reading.match == "prefix":
        return rf"{body}(?=\w)"
    if last == NUMBER_SIGN and reading.match == "number":
        return rf"{body}(?!\d)"
    if last.isascii() and last.isalnum():
        return rf"{body}(?![A-Za-z0-9])"
    is_abbreviation = "/" in written or "." in written
    if is_abbreviation and last.isalnum():
        return f"{body}{_ENDING}{_CONTINUES}"
    return rf"{body}(?!\w)"


def _in_both_cases(pattern: str) -> str:
    """Return a pattern of a written form, upper case outside ASCII, for texts that keep their case too."""
    return "".join(
        char if char.isascii() or char == char.lower() else f"(?:{char}|{char.lower()})" for char in pattern
    )


def _rule_of(match: re.Match[str], rules: tuple[_Rule, ...]) -> _Rule:
    assert match.lastindex is not None
    return rules[match.lastindex - 1]


def _counts(match: re.Match[str], rules: tuple[_Rule, ...]) -> bool:
    """Return whether the form begins at the start of a word, or behind a prefix where it may."""
    start = match.start()
    run = _RUN_BEFORE.search(match.string, max(0, start - _CONTEXT_CHARS), start)
    before = run[0] if run else ""
    return not before or (_rule_of(match, rules).may_follow_prefix and _PREFIX.fullmatch(before) is not None)


def _spoken(match: re.Match[str], rules: tuple[_Rule, ...]) -> str:
    if not _counts(match, rules):
        return match[0]
    rule = _rule_of(match, rules)
    spoken = rule.reading.spoken
    if rule.reading.match == "number":
        assert match.lastindex is not None
        spoken = spoken.replace(NUMBER_SIGN, match[match.lastindex - 1])
    is_touching = match[0].endswith(".") and match.string[match.end() : match.end() + 1].isalnum()
    return f"{spoken} " if rule.needs_space or is_touching else spoken
