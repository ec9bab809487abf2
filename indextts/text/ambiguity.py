"""Texts with two right readings: years, phone numbers and decimals of money.

    1985 ዓ.ም       አንድ ሺህ ዘጠኝ መቶ ሰማንያ አምስት      or  አሥራ ዘጠኝ መቶ ሰማንያ አምስት
    0911234567     ዜሮ ዘጠኝ አንድ አንድ ...             or  ዜሮ ዘጠኝ አሥራ አንድ ...
    12.50 ብር       አሥራ ሁለት ብር ከሃምሳ ሳንቲም          or  አሥራ ሁለት ነጥብ አምስት ዜሮ ብር

Each kind is an option of the normaliser, which decides for a whole project; where the words of a recording
are known, they decide for its text (`nearest_reading`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.text.ethiopic import text_key
from indextts.text.languages import AMHARIC
from indextts.text.normalize import normalize
from indextts.text.transcripts import edit_distance, scored

# both values of the options with two right readings
OPTION_VALUES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "years": ("cardinal", "hundreds"),
        "phone_numbers": ("digits", "pairs"),
        "money_decimals": ("cents", "decimal"),
    }
)
MAX_ERROR_RATE = 0.5  # of characters


@dataclass(frozen=True)
class Ambiguity:
    """The readings of a text by both values of an option, that in use first, and the words that differ."""

    option: str
    chosen: str
    other: str
    words: tuple[str, str]


def find_ambiguities(text: str, options: NormalizerOptions = DEFAULT_OPTIONS) -> list[Ambiguity]:
    """Return the options that decide between two readings of a text."""
    if options.language != AMHARIC or not any(map(str.isnumeric, text)):
        return []
    chosen = normalize(text, options)
    found = []
    for option in OPTION_VALUES:
        other = normalize(text, options.model_copy(update={option: other_value(option, options)}))
        if other != chosen:
            found.append(Ambiguity(option, chosen, other, _different_words(chosen, other)))
    return found


def _different_words(chosen: str, other: str) -> tuple[str, str]:
    """Return the part that differs between two readings, from word to word."""
    one, two = chosen.split(), other.split()
    shortest = min(len(one), len(two))
    start = next((n for n in range(shortest) if one[n] != two[n]), shortest)
    end = next((n for n in range(shortest - start) if one[-1 - n] != two[-1 - n]), shortest - start)
    return " ".join(one[start : len(one) - end]), " ".join(two[start : len(two) - end])


def other_value(option: str, options: NormalizerOptions) -> str:
    """Return the value of an option that is not in use."""
    first, second = OPTION_VALUES[option]
    return second if getattr(options, option) == first else first


def nearest_reading(readings: Sequence[str], heard: str) -> int | None:
    """Return the index of the normalised reading with the fewest character errors against what was heard.

    None if no reading is nearer than all others, or more than `MAX_ERROR_RATE` of the nearest one was heard
    differently: a poor transcript is nearer to the shorter reading.
    """
    transcript = scored(heard)
    keys = [text_key(reading) for reading in readings]
    errors = [edit_distance(key, transcript) for key in keys]
    best = min(errors)
    place = errors.index(best)
    is_near = best <= MAX_ERROR_RATE * len(keys[place])
    return place if is_near and errors.count(best) == 1 else None
