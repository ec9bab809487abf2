"""Amharic in Latin capitals, as people who write it on an English keyboard spell it.

A letter is its row's consonant and its order's vowel. The sixth order is a consonant alone: whether its short
vowel is spoken, the script does not say. Ejectives are written as their plain sounds.

    order    1   2   3   4   5   6   7   8
    vowel    E   U   I   A   E   -   O   WA         ሰላም SELAM, ቋንቋ KWANKWA
"""

from indextts.text.ethiopic import amharic_letters

_CONSONANTS = {
    **dict.fromkeys("ሀሐኀኸ", "H"),
    **dict.fromkeys("ሠሰ", "S"),
    **dict.fromkeys("አዐ", ""),
    **dict.fromkeys("ቀከ", "K"),
    **dict.fromkeys("ተጠ", "T"),
    **dict.fromkeys("ቸጨ", "CH"),
    **dict.fromkeys("ጰፐ", "P"),
    **dict.fromkeys("ጸፀ", "TS"),
    **{"ለ": "L", "መ": "M", "ረ": "R", "ሸ": "SH", "በ": "B", "ነ": "N", "ኘ": "NY", "ወ": "W", "ዘ": "Z", "ዠ": "ZH"},
    **{"የ": "Y", "ደ": "D", "ጀ": "J", "ገ": "G", "ፈ": "F", "ቨ": "V"},
    **{"ቈ": "KW", "ኰ": "KW", "ኈ": "HW", "ዀ": "HW", "ጐ": "GW"},
}
_VOWELS = ("E", "U", "I", "A", "E", "", "O", "WA")
_EXCEPTIONS = {
    **dict.fromkeys("ሀሐኀ", "HA"),  # the first order of these rows sounds like the fourth
    **dict.fromkeys("አዐ", "A"),
    **dict.fromkeys("እዕ", "I"),  # without a consonant the sixth order is a vowel
    **{"ኧ": "E", "ሇ": "HWA", "ፘ": "RYA", "ፙ": "MYA", "ፚ": "FYA"},
}


def _spelling(letter: str) -> str:
    for order in range(8):
        row = chr(ord(letter) - order)
        if row in _CONSONANTS:
            return _CONSONANTS[row] + _VOWELS[order]
    raise AssertionError(f"{letter} is in no row")


_SPELLINGS = {ord(c): _EXCEPTIONS[c] if c in _EXCEPTIONS else _spelling(c) for c in amharic_letters()}


def transliterate(text: str) -> str:
    """Return `text` with every Amharic letter in Latin capitals; all else stays as it is."""
    return text.translate(_SPELLINGS)
