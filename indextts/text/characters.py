"""Single characters: delete inaudible ones and replace variants by ordinary ones.

The steps in order:

    HTML entities                the character itself
    invisible characters         deleted, with control characters and lone surrogates
    emoji and dingbats           a space
    full-width, circled, Roman   the ordinary form; fractions such as ½ and superscripts stay
    digits of other scripts      0 to 9
    NFC                          letters composed; upper case outside ASCII, unless the case is kept
"""

import html
import re
import unicodedata

from indextts.text.ethiopic import ETHIOPIC_LETTERS

# The Ethiopic combining and tonal marks are too rare to learn.
_INVISIBLE = re.compile(
    "[\u0000-\u0008\u000e-\u001b\u007f-\u0084\u0086-\u009f\u00ad\u061c\u135d-\u135f\u1390-\u1399\u180e"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20e3\ud800-\udfff\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
# These stand between words, so a space replaces them; U+2581 is the SentencePiece sign for a space.
_BETWEEN_WORDS = re.compile("[\u2581\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\u1360]+")
_ENTITY = re.compile(r"&(?:amp|lt|gt|quot|apos|nbsp|#[0-9]{1,7}|#x[0-9a-f]{1,6});", re.IGNORECASE)

_FRACTIONS_AND_SUPERSCRIPTS = "½¼¾²³¹"
_TO_ORDINARY = str.maketrans(
    {
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},  # full-width ASCII
        "\u2044": "/",
        "\u2215": "/",
        "\u2010": "-",
        "\u2011": "-",
    }
)


_POWER = re.compile(r"(?<=[0-9])(?:[⁻⁺][⁰¹²³⁴-⁹]+|(?![²³](?![⁰¹²³⁴-⁹]))[⁰²³⁴-⁹][⁰¹²³⁴-⁹]*|¹[⁰¹²³⁴-⁹]+)")
_MIXED_NUMBER = re.compile("(?<=[0-9])(?=[⅐-⅞↉])")  # 2⅓; the sign of ½ stays
# Everything but Amharic letters and marks and printable ASCII, which no rule of this module changes.
_SPECIAL = re.compile(f"[^ -~{ETHIOPIC_LETTERS}\u1361-\u137c]")


def clean_characters(text: str, *, keep_case: bool = False) -> str:
    """Return `text` with ordinary characters instead of special ones, and without inaudible ones."""
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match[0].lower()), text)
    if not _SPECIAL.search(text):
        return text
    text = _INVISIBLE.sub("", text)
    text = _BETWEEN_WORDS.sub(" ", text).translate(_TO_ORDINARY)
    text = _POWER.sub(lambda match: "^" + unicodedata.normalize("NFKC", match[0]), text)
    text = _MIXED_NUMBER.sub(" ", text)
    text = _SPECIAL_NUMBER.sub(lambda match: _ordinary(match[0]), text)
    if keep_case:
        return unicodedata.normalize("NFC", text)
    # Compose again after upper-casing, which can decompose letters. It replaces ß and similar ones too.
    upper = (char if char.isascii() else char.upper() for char in unicodedata.normalize("NFC", text))
    return unicodedata.normalize("NFC", "".join(upper))


def _special_numbers() -> str:
    """Return all non-ASCII digits and numbers with an ASCII form, for a character class."""
    chars = []
    for code in range(0x80, 0x20000):
        char = chr(code)
        kept = char in _FRACTIONS_AND_SUPERSCRIPTS or 0x1369 <= code <= 0x137C
        if not kept and (char.isdigit() or (char.isnumeric() and _ordinary(char).isascii())):
            chars.append(char)
    return "".join(chars)


def _ordinary(char: str) -> str:
    digit = unicodedata.digit(char, None)
    return unicodedata.normalize("NFKC", char).replace("\u2044", "/") if digit is None else str(digit)


_SPECIAL_NUMBER = re.compile(f"[{re.escape(_special_numbers())}]")
