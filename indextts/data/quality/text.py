"""What is measured of a text, in the form that the tokenizer sees: numbers spoken, marks made ASCII.

A rate is in fidel: one letter of the script is one syllable, or the consonant at the end of one. Spelled-out
numbers count as they are said.
"""

import re
from dataclasses import dataclass

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.text.ethiopic import ETHIOPIC_LETTERS
from indextts.text.homophones import merge_homophones, merge_labialised
from indextts.text.normalize import normalize
from indextts.text.script import ethiopic_share, tigrinya_share

MIN_ETHIOPIC_LETTERS = 0.5  # of a text's letters: a Latin name in it does not make a text foreign

_FIDEL = re.compile(f"[{ETHIOPIC_LETTERS}]")
_LATIN = re.compile("[A-Za-z\u00c0-\u024f]")
_DIGIT = re.compile("[\\d\u1369-\u137c]")  # the last are Ethiopic numerals
_OTHER = re.compile(  # what no rule reads and the published tokenizer does not know from Amharic
    f"[^{ETHIOPIC_LETTERS}\u135d-\u135fA-Za-z\u00c0-\u024f\\d\u1369-\u137c\\s.,?!…'-]"
)


@dataclass(frozen=True)
class TextMeasures:
    """Counts of one text.

    Args:
        num_fidel: Ethiopic letters.
        is_mostly_ethiopic: at least half of its letters are Ethiopic, and there is one.
        ethiopic_percent: of its letters; 0 where there is none.
        num_tigrinya, tigrinya_percent: of its fidel, letters that Tigrinya uses often and Amharic seldom.
        num_latin, num_digits, num_other: what the normaliser left as it is.
        key: its letters alone, homophones merged: equal for texts that sound the same.
    """

    num_fidel: int
    is_mostly_ethiopic: bool
    ethiopic_percent: float
    num_tigrinya: int
    tigrinya_percent: float
    num_latin: int
    num_digits: int
    num_other: int
    key: str


def measure_text(text: str, options: NormalizerOptions = DEFAULT_OPTIONS) -> TextMeasures:
    """Return the measures of a text as it stands in a manifest, read as `options` say."""
    spoken = normalize(text, options)
    num_fidel = len(_FIDEL.findall(spoken))
    return TextMeasures(
        num_fidel=num_fidel,
        is_mostly_ethiopic=is_mostly_ethiopic(spoken),
        ethiopic_percent=100 * ethiopic_share(spoken),
        num_tigrinya=round(tigrinya_share(spoken) * num_fidel),
        tigrinya_percent=100 * tigrinya_share(spoken),
        num_latin=len(_LATIN.findall(spoken)),
        num_digits=len(_DIGIT.findall(spoken)),
        num_other=len(_OTHER.findall(spoken)),
        key="".join(filter(str.isalnum, merge_labialised(merge_homophones(spoken, "strict")))),
    )


def is_mostly_ethiopic(text: str) -> bool:
    """Tell whether at least half of the letters of `text` are Ethiopic; there must be one."""
    return ethiopic_share(text) >= MIN_ETHIOPIC_LETTERS
