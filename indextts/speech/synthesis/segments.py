"""Long texts in pieces that the GPT can speak, and the sound of the pieces as one.

    text --normalise--> marks of the published model (an Ethiopic full stop is a `.` now)
      -> sentences, as many in a segment as have room; a sentence too long for one is cut after a comma, else
         at a dash, else between words, else between characters

Axes: S samples.
"""

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from indextts.errors import UserError
from indextts.text.tokenizer import Tokenizer

MAX_SEGMENT_TOKENS = 120  # as published; the position table of the model has room for 600
SILENCE_S = 0.2
MAX_CHARACTERS = 20_000  # some 25 minutes of speech

# Where a text may be cut, from the best place to the worst.
_CUTS = (
    re.compile(r"(?<=[.!?…])\s+"),
    re.compile(r"(?<=,)\s+"),
    re.compile(r"\s+-\s+|(?<=\w)-(?=\w)"),
    re.compile(r"\s+"),
    re.compile(r"(?<=.)(?=.)"),
)


def split_text(text: str, tokenizer: Tokenizer, max_tokens: int = MAX_SEGMENT_TOKENS) -> list[str]:
    """Return `text`, normalised, in segments of at most `max_tokens` tokens, in order.

    Raises:
        UserError: nothing of the text can be spoken, or it is longer than MAX_CHARACTERS.
    """
    if len(text) > MAX_CHARACTERS:
        raise UserError(
            f"the text has {len(text)} characters, at most {MAX_CHARACTERS} are spoken at once; split it"
        )
    spoken = tokenizer.normalize(text)
    if not re.search(r"\w", spoken):
        raise UserError(f"the text {text[:40]!r} has nothing that can be spoken; write a sentence")
    return list(_segments(spoken, lambda part: len(tokenizer.encode(part)), max_tokens, _CUTS))


def _segments(
    text: str, count: Callable[[str], int], max_tokens: int, cuts: Sequence[re.Pattern[str]]
) -> Iterator[str]:
    """Yield `text` cut at the first of `cuts`; what is still too long at the ones after it."""
    if count(text) <= max_tokens or not cuts:
        yield text
        return
    waiting = ""
    for part, joined in _parts(text, cuts[0]):
        together = waiting + joined + part if waiting else part
        if count(together) <= max_tokens:
            waiting = together
            continue
        if waiting:
            yield waiting
        waiting = ""
        if count(part) <= max_tokens:
            waiting = part
        else:
            yield from _segments(part, count, max_tokens, cuts[1:])
    if waiting:
        yield waiting


def _parts(text: str, cut: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield what stands between cuts, each with what stood in the cut before it."""
    end, joined = 0, ""
    for match in cut.finditer(text):
        yield text[end : match.start()], joined
        end, joined = match.end(), match.group()
    yield text[end:], joined


def join_segments(
    segments: Sequence[NDArray[np.float32]], sample_rate_hz: int, silence_s: float = SILENCE_S
) -> NDArray[np.float32]:
    """Return the sounds (S,) as one, with silence between them; empty ones are left out."""
    silence = np.zeros(int(sample_rate_hz * silence_s), np.float32)
    parts = [part for segment in segments if len(segment) for part in (silence, segment)]
    return np.concatenate(parts[1:]) if parts else np.zeros(0, np.float32)
