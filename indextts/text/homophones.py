"""Letters that sound alike in Amharic, and the one of them that stands for all.

    strict   ሐ ኀ -> ሀ, ሠ -> ሰ, ዐ -> አ, ፀ -> ጸ in all orders; ሃ -> ሀ and ኣ -> አ, since the first and the fourth
             order of these two rows are one sound                                          40 letters
    loose    besides that, ኸ -> ሀ in the orders 2 to 7                                      47 letters

ኧ and the first order of ኸ have sounds of their own and are never merged. Nor are pairs that some public
normalisers merge (ሸ ሼ, ሺ ሽ, ዉ ው, ዪ ይ, ዴ ደ): they are different sounds.
"""

from typing import Literal

_ROWS = {"ሀ": "ሐኀ", "ሰ": "ሠ", "አ": "ዐ", "ጸ": "ፀ"}
_ROWS_WHERE_FIRST_IS_FOURTH = "ሀአ"
_NUM_ORDERS = 7
_LABIALISED = {"ሧ": "ሷ", "ሗ": "ኋ", "ፇ": "ጿ"}


def _merged_letter(row: str, order: int) -> str:
    """Return the letter that stands for the sound of `row` in `order`, 0 to 6."""
    return chr(ord(row) + (0 if order == 3 and row in _ROWS_WHERE_FIRST_IS_FOURTH else order))


def _strict() -> dict[str, str]:
    merges = {
        chr(ord(other) + order): _merged_letter(row, order)
        for row, others in _ROWS.items()
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
