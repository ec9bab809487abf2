"""Groups of sentences that are scored apart, because an average hides what they lose.

    short        at most SHORT_SYLLABLES syllables; measured fine-tuned models make most errors in them
    numbers      a digit, or a number word of the Amharic normaliser
    questions    a question mark of any script that the normaliser reads

A text can be in several groups or in none. A text does not show its names: the field `group` of the manifest
adds a group.
"""

import re

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.data.quality.measures import measure_text
from indextts.text.languages import AMHARIC
from indextts.text.normalize import normalize
from indextts.text.number_words import has_number_word

ALL = ""  # the group of every sentence
SHORT_SYLLABLES = 15
_DIGIT = re.compile("[\\d\u1369-\u137c]")  # the range is the Ethiopic numerals


def groups_of(text: str, options: NormalizerOptions = DEFAULT_OPTIONS) -> list[str]:
    """Return the groups of a text of a manifest."""
    spoken = normalize(text, options)
    is_member = {
        "short": measure_text(text, options).num_syllables <= SHORT_SYLLABLES,
        "numbers": _DIGIT.search(text) or (options.language == AMHARIC and has_number_word(spoken)),
        "questions": "?" in spoken,
    }
    return [name for name, holds in is_member.items() if holds]
