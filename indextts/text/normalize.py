"""The text that a tokenizer sees: what a speaker says, in letters and marks that the published model knows.

The published front end would hand Amharic to its Chinese or English number rules and leave Ethiopic
punctuation alone, and its sentence splitter knows only ASCII marks. So Amharic gets this form first, by the
rules of `RULES`, one after the other:

    በ2017 ዓ.ም፣ 50% ት/ቤቶች ተዘጉ።   በሁለት ሺህ አሥራ ሰባት ዓመተ ምሕረት, ሃምሳ በመቶ ትምህርት ቤቶች ተዘጉ.

What comes out of Amharic holds letters, spaces and . , ? ! … - ' only. Latin letters are upper case, as in
the published front end. Text without an Ethiopic character and with letters of another script is not Amharic:
its digits and signs stay, and it gets the characters and marks only.

`normalize(normalize(text)) == normalize(text)`, and the same text and options give the same result anywhere.

    python -m indextts.text.normalize [--explain] < lines     normalises lines; says what each rule did
                                                              (indextts/text/normalize_lines.py)
"""

import difflib
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from indextts.commands.data import NormalizeText
from indextts.commands.normalizer_options import (
    DEFAULT_OPTIONS,
    NORMALIZER_VERSION,
    NormalizerOptions,
    chosen_options,
)
from indextts.commands.terminal import parse, run
from indextts.text import abbreviations, characters, latin, marks, number_rules, quantities
from indextts.text import marks as symbols
from indextts.text.ethiopic import ETHIOPIC_CHARACTERS, merge_homophones, merge_labialised
from indextts.text.number_words import ethiopic_numerals_to_digits

__all__ = ["DEFAULT_OPTIONS", "NORMALIZER_VERSION", "Change", "NormalizerOptions", "explain", "normalize"]

_ETHIOPIC = re.compile(f"[{re.escape(ETHIOPIC_CHARACTERS)}]")


@dataclass(frozen=True)
class Rule:
    """One step from a text to its spoken form.

    Args:
        only_amharic: left out for text in other scripts.
        only_digits: does nothing to a text without a digit, so it need not be tried.
    """

    name: str
    apply: Callable[[str, NormalizerOptions], str]
    only_amharic: bool = True
    only_digits: bool = False


def _whatever_the_options(function: Callable[[str], str]) -> Callable[[str, NormalizerOptions], str]:
    return lambda text, _options: function(text)


def _upper(text: str) -> str:
    # Upper-casing can take composed letters apart.
    return unicodedata.normalize("NFC", text.upper())


def _labialised(text: str, options: NormalizerOptions) -> str:
    return merge_labialised(text) if options.labialised == "merge" else text


def _amharic_rule(name: str, function: Callable[[str], str]) -> Rule:
    return Rule(name, _whatever_the_options(function))


def _number_rule(name: str, function: Callable[[str, NormalizerOptions], str]) -> Rule:
    return Rule(name, function, only_digits=True)


def _rule_of_any_text(name: str, function: Callable[[str], str]) -> Rule:
    return Rule(name, _whatever_the_options(function), only_amharic=False)


RULES = (
    _rule_of_any_text("characters", characters.clean_characters),
    Rule("font damage", symbols.font_damage),
    _amharic_rule("Ethiopic numerals", ethiopic_numerals_to_digits),
    _rule_of_any_text("Ethiopic marks", marks.ethiopic_marks_to_ascii),
    Rule("addresses", latin.addresses),
    _amharic_rule("abbreviations", abbreviations.spell_out),
    _amharic_rule("brackets apart", marks.brackets_apart),
    _number_rule("numbers apart", number_rules.separate),
    _number_rule("phone numbers", number_rules.phone_numbers),
    _number_rule("dates", number_rules.dates),
    _number_rule("times", number_rules.times),
    _number_rule("money", quantities.money),
    _number_rule("percent", quantities.percent),
    _number_rule("measures", quantities.measures),
    _number_rule("comparisons", quantities.comparisons),
    _number_rule("fractions", number_rules.fractions),
    _number_rule("ranges", number_rules.ranges),
    _number_rule("said twice", number_rules.glosses),
    _number_rule("numbers", number_rules.read_numbers),
    _amharic_rule("slashes", abbreviations.slashes_to_spaces),
    _amharic_rule("dots in words", abbreviations.split_at_dots),
    Rule("Latin words", latin.latin_words),
    Rule("Greek letters", latin.greek_letters),
    Rule("symbols", symbols.symbols),
    _rule_of_any_text("upper case", _upper),
    _rule_of_any_text("marks", marks.published_marks),
    _amharic_rule("space after marks", marks.space_after_marks),
    # Without the signs that stood in it, an abbreviation may be one now.
    _amharic_rule("abbreviations again", abbreviations.spell_out),
    Rule("homophones", lambda text, options: merge_homophones(text, options.homophones)),
    Rule("labialised", _labialised),
    _rule_of_any_text("ideographs apart", marks.ideographs_apart),
)


def normalize(text: str, options: NormalizerOptions = DEFAULT_OPTIONS) -> str:
    """Return `text` as the tokenizer sees it; see the module's docstring."""
    spoken = text
    for _rule, after in _steps(text, options):
        spoken = after
    return spoken


@dataclass(frozen=True)
class Change:
    """What one rule did: the words it took out and those it put in."""

    rule: str
    before: str
    after: str


def explain(text: str, options: NormalizerOptions = DEFAULT_OPTIONS) -> list[Change]:
    """Return what each rule changed in `text`, in order."""
    changes = []
    before = text
    for rule, after in _steps(text, options):
        changes += [Change(rule.name, old, new) for old, new in _differences(before, after)]
        before = after
    return changes


def is_amharic(text: str) -> bool:
    """True where numbers are read in Amharic: there is an Ethiopic character, or no letter at all."""
    return _ETHIOPIC.search(text) is not None or not any(map(str.isalpha, text))


def _steps(text: str, options: NormalizerOptions) -> Iterator[tuple[Rule, str]]:
    """Yield each rule that is tried and the text after it."""
    first, *others = RULES
    text = first.apply(text, options)  # before it, entities and the like hide what script it is
    yield first, text
    amharic = is_amharic(text)
    for rule in others:
        if rule.only_amharic and not amharic:
            continue
        if rule.only_digits and not _DIGIT.search(text):
            continue
        text = rule.apply(text, options)
        yield rule, text


_DIGIT = re.compile("[0-9½¼¾]")


_MOST_COMPARED = 250_000  # pairs of words; beyond, comparing takes minutes


def _differences(before: str, after: str) -> Iterator[tuple[str, str]]:
    """Yield the words of `before` that are gone with those of `after` in their place."""
    if before == after:
        return
    old, new = re.findall(r"\S+|\s+", before), re.findall(r"\S+|\s+", after)
    if len(old) * len(new) > _MOST_COMPARED:
        yield before, after
        return
    # A space alone is no place where the two are the same: 3ቱ becomes several words.
    matcher = difflib.SequenceMatcher(str.isspace, old, new, autojunk=False)
    for kind, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if kind != "equal":
            yield "".join(old[old_start:old_end]), "".join(new[new_start:new_end])


def main(argv: Sequence[str] | None = None) -> int:
    # Only the program reads lines; whoever imports this module wants the function.
    from indextts.text.normalize_lines import normalize_lines

    args = parse(NormalizeText, argv)
    num_left_out = normalize_lines(
        sys.stdin.buffer, sys.stdout, sys.stderr, chosen_options(args), args.explain
    )
    return 1 if num_left_out else 0


if __name__ == "__main__":
    run(main)
