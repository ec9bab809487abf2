"""Facts of the Ethiopic script: its Unicode ranges, and the letters of Amharic, computed from the rows.

A row of the script is one consonant at eight consecutive code points: seven orders (vowels) and, at the
eighth, often the labialised form (consonant + wa). The velar consonants have labialised rows of their own.

    code point  row + 0 .. row + 6       row + 7           velar row + 0, 2, 3, 4, 5
                seven orders of a row    ... + wa          five labialised forms

Which script and which language a text is written in, by its letters.

Two languages are written with the same letters, Amharic and Tigrinya; letters that Amharic hardly uses tell
them apart. On TICO-19 the rule finds 92 % of the Tigrinya sentences and takes 0.2 % of the Amharic ones for
Tigrinya.

Letters that sound alike in Amharic, and the one of them that stands for all.

    strict   ሐ ኀ -> ሀ, ሠ -> ሰ, ዐ -> አ, ፀ -> ጸ in all orders; ሃ -> ሀ and ኣ -> አ, since the first and the fourth
             order of these two rows are one sound                                          40 letters
    loose    besides that, ኸ -> ሀ in the orders 2 to 7                                      47 letters

ኧ and the first order of ኸ have sounds of their own and are never merged. Nor are pairs that some public
normalisers merge (ሸ ሼ, ሺ ሽ, ዉ ው, ዪ ይ, ዴ ደ): they are different sounds.

What makes two texts the same sentence: the letters as they sound, whatever the marks and spaces.
"""

import re
import unicodedata
from typing import Literal

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


MAX_TIGRINYA_SHARE = 0.01  # of the fidel

_FIDEL = re.compile(f"[{ETHIOPIC_LETTERS}]")
_LETTER = re.compile(r"[^\W\d_]")
_TIGRINYA = re.compile("[ቐ-ቖኸ-ኾኣ]")


def ethiopic_share(text: str) -> float:
    """Return the share of a text's letters that are Ethiopic, 0 without letters."""
    letters = _LETTER.findall(text)
    return len(_FIDEL.findall(text)) / len(letters) if letters else 0.0


def tigrinya_share(text: str) -> float:
    """Return the share of the fidel that are letters of Tigrinya and rare in Amharic, 0 without fidel."""
    num_fidel = len(_FIDEL.findall(text))
    return len(_TIGRINYA.findall(text)) / num_fidel if num_fidel else 0.0


_HOMOPHONE_ROWS = {"ሀ": "ሐኀ", "ሰ": "ሠ", "አ": "ዐ", "ጸ": "ፀ"}
_ROWS_WHERE_FIRST_IS_FOURTH = "ሀአ"
_NUM_ORDERS = 7
_LABIALISED = {"ሧ": "ሷ", "ሗ": "ኋ", "ፇ": "ጿ"}


def _merged_letter(row: str, order: int) -> str:
    """Return the letter that stands for the sound of `row` in `order`, 0 to 6."""
    return chr(ord(row) + (0 if order == 3 and row in _ROWS_WHERE_FIRST_IS_FOURTH else order))


def _strict() -> dict[str, str]:
    merges = {
        chr(ord(other) + order): _merged_letter(row, order)
        for row, others in _HOMOPHONE_ROWS.items()
        for other in row + others
        for order in range(_NUM_ORDERS)
    }
    return {letter: to for letter, to in {**merges, **_LABIALISED}.items() if letter != to}


STRICT = _strict()
LOOSE = {
    **STRICT,
    **{chr(ord("ኸ") + order): _merged_letter("ሀ", order) for order in range(1, _NUM_ORDERS)},
    "ዃ": "ኋ",
}
# Small differences of pronunciation, or none: a choice of its own.
LABIALISED_VARIANTS = dict(zip("ጐቈኰኈጒጕቊቍኲኵኍ", "ጎቆኮሆጉጉቁቁኩኩሁ", strict=True))

_TABLES = {"strict": str.maketrans(STRICT), "loose": str.maketrans(LOOSE)}
_LABIALISED_TABLE = str.maketrans(LABIALISED_VARIANTS)


def merge_homophones(text: str, how: Literal["off", "strict", "loose"]) -> str:
    """Return `text` with one letter for each sound."""
    return text if how == "off" else text.translate(_TABLES[how])


def merge_labialised(text: str) -> str:
    """Return `text` with the plain letter for each labialised one that many speakers say like it."""
    return text.translate(_LABIALISED_TABLE)


_NO_LETTER = re.compile(r"[\W_]+")


def text_key(text: str) -> str:
    """Return a key that spellings of one sentence share: ሠላም፣ ነው። and ሰላም ነው have one."""
    letters = _NO_LETTER.sub("", unicodedata.normalize("NFC", text))
    return merge_homophones(letters, "loose").casefold()
