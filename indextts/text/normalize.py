"""The Amharic text normaliser: the spoken form of a text, in letters and marks of the published model.

The published front end applies Chinese or English number rules to Amharic and leaves Ethiopic punctuation
unchanged, and its sentence splitter knows only ASCII marks. So Amharic is normalised first, by the rules of
`RULES` in order:

    በ2017 ዓ.ም፣ 50% ት/ቤቶች ተዘጉ።   በሁለት ሺህ አሥራ ሰባት ዓመተ ምሕረት, ሃምሳ በመቶ ትምህርት ቤቶች ተዘጉ.

Normalised Amharic contains only letters, spaces and . , ? ! … - '. Latin letters are upper case, as in the
published front end of IndexTTS-2.0; that of 2.5 leaves them in Amharic as they are (`letter_case`). A text
with letters of other scripts and no Ethiopic character is not Amharic: it keeps its digits and signs, and
only its characters and marks are normalised. Numbers among Latin names and units, such as BBC 24 or 5 km, are
read in Amharic all the same, but not those of an English sentence.

Other languages have the rules of `_rules_of`: characters, marks, and whole numbers in texts of their script.

The readings of the options (indextts/text/readings.py) come first, and rules can be switched off by name.

Without readings, `normalize(normalize(text)) == normalize(text)`; the result depends only on the text and the
options.

    python -m indextts.text.normalize [--explain] [FILE]      normalise lines; --explain lists the changes

The program writes an output line for every input line. A line that is not UTF-8 gives an empty line and an
error message.
"""

import difflib
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, TextIO

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NORMALIZER_VERSION, NormalizerOptions
from indextts.text import (
    abbreviations,
    characters,
    general_rules,
    latin,
    marks,
    number_rules,
    number_separators,
    quantities,
    verses,
)
from indextts.text.amharic import TABLES
from indextts.text.ethiopic import ETHIOPIC_CHARACTERS, merge_homophones, merge_labialised
from indextts.text.ethiopic import ETHIOPIC_LETTERS as L
from indextts.text.languages import AMHARIC, find_language
from indextts.text.number_words import ethiopic_numerals_to_digits
from indextts.text.readings import apply_readings, options_of, reading_changes
from indextts.text.transcript_marks import clean_transcript

__all__ = [
    "DEFAULT_OPTIONS",
    "NORMALIZER_VERSION",
    "Change",
    "NormalizerOptions",
    "explain",
    "normalize",
    "reads_alike",
]

_WORDS = TABLES["words"]
_ETHIOPIC = re.compile(f"[{re.escape(ETHIOPIC_CHARACTERS)}]")


@dataclass(frozen=True)
class Rule:
    """A step from a text to its normalised form."""

    name: str  # "abbreviations again" is switched off with "abbreviations"
    apply: Callable[[str, NormalizerOptions], str]
    only_own: bool = True  # skip this rule for texts in other scripts than that of the language
    only_digits: bool = False  # skip this rule for texts without a digit, which it never changes


def _ignoring_options(function: Callable[[str], str]) -> Callable[[str, NormalizerOptions], str]:
    return lambda text, _options: function(text)


def _upper(text: str) -> str:
    # Upper-casing can decompose letters (ΐ becomes three characters).
    return unicodedata.normalize("NFC", text.upper())


def _characters(text: str, options: NormalizerOptions) -> str:
    return characters.clean_characters(text, keep_case=options.letter_case == "keep")


def _upper_case(text: str, options: NormalizerOptions) -> str:
    return _upper(text) if options.letter_case == "upper" else text


def _homophones(text: str, options: NormalizerOptions) -> str:
    return merge_homophones(text, options.homophones)


def _amharic_rule(name: str, function: Callable[[str], str]) -> Rule:
    return Rule(name, _ignoring_options(function))


def _number_rule(name: str, function: Callable[[str, NormalizerOptions], str]) -> Rule:
    return Rule(name, function, only_digits=True)


def _any_script_rule(name: str, function: Callable[[str], str]) -> Rule:
    return Rule(name, _ignoring_options(function), only_own=False)


_LEADING_DASH = re.compile(r"[\W_]*(?<=[-\u2010-\u2015\u2212])\s*|>(?!>)\s*")


def _without_marks(text: str) -> str:
    # A leading dash stays: later rules can leave one there, which the next pass must not remove.
    lead = match[0] if (match := _LEADING_DASH.match(text)) else ""
    return lead + clean_transcript(text[len(lead) :]).text


_MARKS = _any_script_rule("transcript marks", _without_marks)
# Upper case and published quotes make escapes of other signs behind a backslash.
_MARKS_AGAIN = _any_script_rule(
    "transcript marks again", lambda text: _without_marks(text) if "\\" in text else text
)

# The order is part of the behaviour: each rule relies on what the rules before it wrote.
RULES = (
    Rule("characters", _characters, only_own=False),
    _MARKS,
    Rule("font damage", marks.font_damage),
    # before the marks, whose rule must tell a word space from a colon between two numbers (፫፡፴)
    _amharic_rule("Ethiopic numerals", ethiopic_numerals_to_digits),
    _any_script_rule("Ethiopic marks", marks.ethiopic_marks_to_ascii),
    # before the rules that read dots, slashes and digits, which an address also has
    Rule("addresses", latin.addresses),
    # before the lists of verses and the short forms, which have commas and dots too
    _number_rule("verses", verses.verses),
    # before the numbers: units such as ኪ.ሜ² and ሜ/ሰ stand beside digits
    _amharic_rule("abbreviations", abbreviations.spell_out),
    Rule("Roman numerals", latin.roman_numerals),
    _amharic_rule("brackets apart", marks.brackets_apart),
    # Signs that belong to several numbers come first: afterwards each number stands alone.
    _number_rule("grouped numbers", number_separators.groups),
    _number_rule("commas", number_separators.commas),
    _number_rule("joined phone numbers", number_separators.joined_phone_numbers),
    _number_rule("ranges with words", number_separators.ranges_with_words),
    _number_rule("minus", number_separators.minus),
    _number_rule("numbers apart", number_rules.separate),
    # before the dates and ranges, which also have hyphens between digits
    _number_rule("phone numbers", number_rules.phone_numbers),
    _number_rule("dates", number_rules.dates),
    _number_rule("times", number_rules.times),
    _number_rule("money", quantities.money),
    _number_rule("percent", quantities.percent),
    _number_rule("measures", quantities.measures),
    _number_rule("comparisons", quantities.comparisons),
    _number_rule("fractions", number_rules.fractions),
    _number_rule("ranges", number_rules.ranges),
    _number_rule("repeated numbers", number_rules.glosses),
    # reads every digit that is left, so every rule that looks for digits is above
    _number_rule("numbers", number_rules.read_numbers),
    _amharic_rule("slashes", abbreviations.slashes_to_spaces),
    _amharic_rule("dots in words", abbreviations.split_at_dots),
    Rule("Latin words", latin.latin_words),
    Rule("Greek letters", latin.greek_letters),
    # names the signs that no number rule has claimed
    Rule("symbols", marks.symbols),
    Rule("upper case", _upper_case, only_own=False),
    _any_script_rule("marks", marks.published_marks),
    _amharic_rule("space after marks", marks.space_after_marks),
    Rule("homophones", _homophones),
    # Without the signs inside it and with other letters, a word may be a known abbreviation.
    Rule("abbreviations again", lambda text, options: _homophones(abbreviations.spell_out(text), options)),
    Rule("labialised", lambda text, options: merge_labialised(text, options.labialised)),
    _any_script_rule("ideographs apart", marks.ideographs_apart),
    _MARKS_AGAIN,
)


_READINGS = Rule("readings", lambda text, options: apply_readings(text, options.readings), only_own=False)


@lru_cache(maxsize=16)  # asked for every text
def _rules_of(code: str) -> tuple[Rule, ...]:
    """Return the rules of a language; a UserError if it is unknown."""
    language = find_language(code)
    if language.code == AMHARIC:
        return RULES
    return (
        Rule("characters", _characters, only_own=False),
        _MARKS,
        _any_script_rule("Ethiopic marks", marks.ethiopic_marks_to_ascii),
        _any_script_rule("marks of scripts", general_rules.world_marks_to_ascii),
        Rule("numbers", lambda text, _: general_rules.read_numbers(text, language), only_digits=True),
        Rule("upper case", _upper_case, only_own=False),
        _any_script_rule("marks", marks.published_marks),
        _any_script_rule("signs", general_rules.signs_to_spaces),
        _any_script_rule("spaces", marks.tidy),
        _any_script_rule("ideographs apart", lambda text: marks.ideographs_apart(text, language.joins)),
        _MARKS_AGAIN,
    )


def normalize(text: str, options: NormalizerOptions = DEFAULT_OPTIONS) -> str:
    """Return the normalised form of `text`; see the module docstring."""
    normalized = text
    for _rule, after in steps(text, options):
        normalized = after
    return normalized


def reads_alike(text: str, old: NormalizerOptions, new: NormalizerOptions) -> bool:
    """Return whether both options give a text the same normalised form; fast if only the readings differ."""
    if new == old:
        return True
    # Editing a reading asks this for every text of a project, and looking for readings is much cheaper than
    # normalising twice.
    same_rules = new == old.model_copy(update={"readings": new.readings})
    if same_rules and not reading_changes(text, old.readings, new.readings):
        return True
    return normalize(text, old) == normalize(text, new)


@dataclass(frozen=True)
class Change:
    """A change of a rule: the words before and after."""

    rule: str
    before: str
    after: str


def explain(text: str, options: NormalizerOptions = DEFAULT_OPTIONS) -> list[Change]:
    """Return the changes of all rules to `text`, in order."""
    changes = []
    before = text
    for rule, after in steps(text, options):
        changes += [Change(rule.name, old, new) for old, new in word_differences(before, after)]
        before = after
    return changes


def is_amharic(text: str) -> bool:
    """Return whether a text is read in Amharic.

    So are texts with Ethiopic characters, without letters, and with digits and Latin letters, unless words
    show that they are Tigrinya, English or Oromo, or three Latin words that they are a sentence.
    """
    if _ETHIOPIC.search(text) is not None:
        return _NUMERAL.search(text) is None or _TIGRINYA_WORD.search(text) is None
    if not any(map(str.isalpha, text)):
        return True
    # The form that the text gets if it is not Amharic, so that normalising it again decides the same.
    shown = marks.published_marks(_upper(marks.ethiopic_marks_to_ascii(text)))
    return (
        _DIGIT.search(shown) is not None
        and all(char < _AFTER_LATIN for char in shown if char.isalpha())
        and _LATIN_SENTENCE.search(shown) is None
        and len(_LATIN_WORD.findall(shown)) < _WORDS_OF_A_SENTENCE
    )


_AFTER_LATIN = "\u0250"  # the first character after Latin Extended-B
# Words without which hardly a sentence does; no names, no units.
_LATIN_SENTENCE = re.compile(
    rf"(?<![A-Z])(?:{'|'.join((_WORDS['english'] + _WORDS['oromo']).split())})(?![A-Z])"
)
_LATIN_WORD = re.compile(r"(?<!\S)[A-Z][A-Z']{2,}(?![^\s,.?!])")
_WORDS_OF_A_SENTENCE = 3
_TIGRINYA_WORD = re.compile(rf"(?<![{L}])(?:{'|'.join(_WORDS['tigrinya'].split())})(?![{L}])")
_NUMERAL = re.compile("[0-9½¼¾፩-፼]")


def _is_own(text: str, options: NormalizerOptions) -> bool:
    """Return whether a text is in the script of the language, or has no letter."""
    if options.language == AMHARIC:
        return is_amharic(text)
    return find_language(options.language).share(text) > 0 or not any(map(str.isalpha, text))


def steps(text: str, options: NormalizerOptions = DEFAULT_OPTIONS) -> Iterator[tuple[Rule, str]]:
    """Yield each applied rule and the text after it."""
    first, marks_rule, *others = _rules_of(options.language)
    text = first.apply(text, options)  # entities can hide the script, and marks such as [noise]
    yield first, text
    if options.readings:
        # before every other rule, so that a reading sees the form as written, not half of it spelled out
        text = _READINGS.apply(text, options)
        yield _READINGS, text
    if marks_rule.name not in options.rules_off:
        text = marks_rule.apply(text, options)
        yield marks_rule, text
    # Once and here: the words that later rules write for digits would change the answer.
    is_own = _is_own(text, options)
    for rule in others:
        if rule.only_own and not is_own:
            continue
        if options.rules_off and rule.name.removesuffix(" again") in options.rules_off:
            continue
        # Most sentences have no digit; this saves half of the rules.
        if rule.only_digits and not _DIGIT.search(text):
            continue
        text = rule.apply(text, options)
        yield rule, text


# The rules before the first number rule rewrite all other digits to these.
_DIGIT = re.compile("[0-9½¼¾]")


_MAX_COMPARED = 250_000  # pairs of words; a larger comparison takes minutes


def word_differences(before: str, after: str) -> Iterator[tuple[str, str]]:
    """Yield the words of `before` that changed, with the words of `after` that replace them."""
    if before == after:
        return
    old, new = re.findall(r"\S+|\s+", before), re.findall(r"\S+|\s+", after)
    # The matcher's time grows with the product of both lengths.
    if len(old) * len(new) > _MAX_COMPARED:
        yield before, after
        return
    # A space alone does not count as equal text: 3ቱ becomes several words.
    matcher = difflib.SequenceMatcher(str.isspace, old, new, autojunk=False)
    for kind, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if kind != "equal":
            yield "".join(old[old_start:old_end]), "".join(new[new_start:new_end])


# ---- the program


def normalize_lines(
    lines: BinaryIO, out: TextIO, err: TextIO, options: NormalizerOptions, show_changes: bool
) -> int:
    """Write each normalised line to `out` and errors to `err`; return the number of skipped lines.

    Args:
        lines: UTF-8, with or without a byte order mark.
        show_changes: also write the changes of each rule below the line.
    """
    num_skipped = 0
    name = getattr(lines, "name", "<stdin>")
    # read as bytes: a decoding stream would stop at the first bad line, not skip it
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            num_skipped += 1
            out.write("\n")  # line N of the output always belongs to line N of the input
            out.flush()
            problem = f"byte {error.start + 1} is not UTF-8; save the text as UTF-8"
            err.write(f"[Error] {name}:{number}: {problem}; skipped this line\n")
            continue
        out.write(normalize(text, options) + "\n")
        if show_changes:
            for change in explain(text, options):
                out.write(f"    {change.rule}: {change.before!r} -> {change.after!r}\n")
    return num_skipped


def main(argv: Sequence[str] | None = None) -> int:
    # imported here because an export has a copy of this module without the commands
    from indextts.commands.data import NormalizeText
    from indextts.commands.terminal import parse
    from indextts.errors import UserError

    typed = sys.argv[1:] if argv is None else list(argv)
    if typed and not typed[-1].startswith("-") and Path(typed[-1]).is_file():
        typed[-1] = f"--file={typed[-1]}"  # as of other programs, also without the flag
    args = parse(NormalizeText, typed)
    try:
        lines = args.file.open("rb") if args.file else sys.stdin.buffer
    except OSError as error:
        raise UserError(f"--file {args.file}: cannot be read ({error.strerror}); check the path") from None
    with lines:
        num_skipped = normalize_lines(lines, sys.stdout, sys.stderr, options_of(args), args.explain)
    return 1 if num_skipped else 0


if __name__ == "__main__":
    from indextts.commands.terminal import run

    run(main)
