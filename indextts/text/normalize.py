"""The text that a tokenizer sees: one spelling for each mark, and only marks that the published model knows.

The published front end would hand Amharic to its Chinese or English number rules and leave Ethiopic
punctuation alone, and its sentence splitter knows only ASCII marks. So Amharic gets this form first:

    invisible characters, emoji   removed
    Ethiopic marks                . , ? or a space; colons by what stands around them (`_COLON`)
    quotes, brackets              '        as in the published front end
    dashes                        -        as in the published front end
    Latin letters                 upper case, as in the published front end
    digits                        stay

`normalize(normalize(text)) == normalize(text)` for every text.
"""

import re
import unicodedata

NORMALIZER_VERSION = 1  # counts the changes of what `normalize` returns

_LETTER = r"[\u1200-\u135a\u1380-\u138f\u2d80-\u2ddf\uab01-\uab2e]"  # Ethiopic
_NUMERAL = r"[0-9\u1369-\u137c]"

# Deleted: what has no sound and no width. Controls and lone surrogates (JSON can hold them) are damage; the
# Ethiopic combining and tonal marks are too rare to be learned.
_INVISIBLE = re.compile(
    "[\u0000-\u0008\u000e-\u001b\u007f-\u0084\u0086-\u009f\u00ad\u061c\u135d-\u135f\u1390-\u1399\u180e"
    "\u200b-\u200f\u202a-\u202e\u2060-\u206f\u20e3\ud800-\udfff\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
# These stand between words, so a space takes their place; U+2581 is SentencePiece's own sign for a space.
_BETWEEN_WORDS = re.compile("[\u2581\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\u1360]+")

# What a colon or an Ethiopic word space means; the first alternative that fits counts. Times come before full
# stops made of two word spaces, and these before single word spaces.
_COLON = re.compile(
    rf"(?P<time>(?<={_NUMERAL})[:፡](?={_NUMERAL}))"
    r"|(?P<stop>[:፡](?:\s*[:፡])+(?:\s*።)*|[:፡](?:\s*።)+)"
    r"|(?P<preface>[:፡፦][-\u2013\u2014])"
    rf"|(?P<space>(?<={_LETTER}):(?={_LETTER})|፡)"
    r"|(?P<comma>:)"
)
_COLON_TO = {"time": ":", "stop": "።", "preface": "፦", "space": " ", "comma": ","}

_DIVISION_SIGN_AS_COLON = re.compile(rf"(?<={_LETTER})÷")
_MARKS = "[።፣፤፥፦፧፨]"
# Ethiopic marks are often written without a space after them; without one the next word would not look like a
# word's beginning to SentencePiece. A mark between two digits stays tight.
_SPACE_MISSING = re.compile(rf"(?<={_MARKS})(?=[^\W\d_])|(?<=(?<!\d){_MARKS})(?=\d)")

_TO_ASCII = str.maketrans(
    {
        **dict.fromkeys("።፨。．", "."),
        **dict.fromkeys("፣፤፥፦;；：，、", ","),
        **dict.fromkeys("፧？", "?"),
        **dict.fromkeys("！¡", "!"),
        **dict.fromkeys('"`\u00b4\u02bc\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u2032\u2033', "'"),
        **dict.fromkeys("\u2039\u203a\u00ab\u00bb\u226a\u226b()[]{}（）［］【】《》〈〉「」『』", "'"),
        **dict.fromkeys("~～·\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2044\u2215", "/"),
    }
)
_DOUBLED_ANGLES = re.compile("<<+|>>+")
_SPACES = re.compile(r"\s+")
_SPACE_BEFORE_MARK = re.compile(r" +(?=[,!?…]|\.(?!\d))")
_ELLIPSIS = re.compile(r"(?:\.{3,}|,{3,}|…)+")
_REPEATED = re.compile(r"([.,'])\1+")


def normalize(text: str) -> str:
    """Return `text` as the tokenizer sees it; see the module's docstring."""
    text = _INVISIBLE.sub("", text)
    text = _BETWEEN_WORDS.sub(" ", text)
    # Upper-casing can take composed letters apart, and a deleted character may have kept two apart.
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).upper())
    text = _COLON.sub(lambda match: _COLON_TO[str(match.lastgroup)], text)
    text = _DIVISION_SIGN_AS_COLON.sub("፥", text)
    text = _SPACE_MISSING.sub(" ", text)
    text = _DOUBLED_ANGLES.sub("'", text.translate(_TO_ASCII))
    text = _SPACE_BEFORE_MARK.sub("", _SPACES.sub(" ", text)).strip()
    return _REPEATED.sub(r"\1", _ELLIPSIS.sub("…", text))
