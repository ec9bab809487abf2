"""Facts of the Ethiopic script: its Unicode ranges, and the letters of Amharic, computed from the rows.

A row of the script is one consonant at eight consecutive code points: seven orders (vowels) and, at the
eighth, often the labialised form (consonant + wa). The velar consonants have labialised rows of their own.

    code point  row + 0 .. row + 6       row + 7           velar row + 0, 2, 3, 4, 5
                seven orders of a row    ... + wa          five labialised forms
"""

import unicodedata

# First and last code point of Ethiopic, its Supplement, Extended, Extended-A and Extended-B.
ETHIOPIC_BLOCKS = (
    (0x1200, 0x137F),
    (0x1380, 0x139F),
    (0x2D80, 0x2DDF),
    (0xAB00, 0xAB2F),
    (0x1E7E0, 0x1E7FF),
)
# Every assigned character of the blocks: letters, marks, numerals, punctuation. Also the inside of a regular
# expression's character class.
ETHIOPIC_CHARACTERS = "".join(
    char
    for first, last in ETHIOPIC_BLOCKS
    for char in map(chr, range(first, last + 1))
    if unicodedata.category(char) != "Cn"
)

# The letters alone, as ranges: the inside of a character class too. Python's \w holds them, and the numerals.
ETHIOPIC_LETTERS = "\u1200-\u135a\u1380-\u138f\u2d80-\u2dde\uab01-\uab2e\U0001e7e0-\U0001e7fe"

_ETHIOPIC = frozenset(ETHIOPIC_CHARACTERS)
_ROWS = "ሀለሐመሠረሰሸቀበተቸኀነኘአከኸወዐዘዠየደጀገጠጨጰጸፀፈፐቨ"
_ROWS_WITH_WA = "ለሐመሠረሰሸበቨተቸነኘአዘዠደጀጠጨጰጸፈፐ"  # the other rows' eighth letter is not Amharic
_VELAR_ROWS = "ቈኈኰዀጐ"
_SINGLE_LETTERS = "ሇፘፙፚ"


def amharic_letters() -> tuple[str, ...]:
    """Return the 291 letters (fidel) of Amharic in the order of their code points."""
    letters = [chr(ord(row) + order) for row in _ROWS for order in range(7)]
    letters += [chr(ord(row) + 7) for row in _ROWS_WITH_WA]
    letters += [chr(ord(row) + order) for row in _VELAR_ROWS for order in (0, 2, 3, 4, 5)]
    return tuple(sorted([*letters, *_SINGLE_LETTERS]))


def main_block_letters() -> tuple[str, ...]:
    """Return all letters of the main Ethiopic block, those of other languages too.

    Amharic texts hold some of them: names of places (መቐለ), and slips such as ፇ for ጿ.
    """
    return tuple(char for char in map(chr, range(0x1200, 0x135B)) if unicodedata.category(char) == "Lo")


def is_ethiopic(char: str) -> bool:
    """True for a letter, mark, numeral or punctuation mark of the Ethiopic script."""
    return char in _ETHIOPIC


def is_ethiopic_letter(char: str) -> bool:
    """True for a letter of the Ethiopic script, whatever the language."""
    return is_ethiopic(char) and unicodedata.category(char) == "Lo"
