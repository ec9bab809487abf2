"""What makes two texts the same sentence: the letters as they sound, whatever the marks and spaces."""

import re
import unicodedata

from indextts.text.homophones import merge_homophones

_NO_LETTER = re.compile(r"[\W_]+")


def text_key(text: str) -> str:
    """Return a key that spellings of one sentence share: ሠላም፣ ነው። and ሰላም ነው have one."""
    letters = _NO_LETTER.sub("", unicodedata.normalize("NFC", text))
    return merge_homophones(letters, "loose").casefold()
