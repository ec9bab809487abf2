"""Rolling captions: each shows again what the one before showed, and the new words after it.

    00.0 - 02.0   ሰላም ለዓለም            ->   00.0 - 02.0   ሰላም ለዓለም
    02.0 - 04.5   ሰላም ለዓለም ዛሬ ደግሞ     ->   02.0 - 04.5   ዛሬ ደግሞ
    04.5 - 04.6   ዛሬ ደግሞ              ->   (nothing new)

The words that are there again are taken off, and the times follow: what a caption says anew is said after it
appears, and the one before was over by then. A line that is really said twice stays: its captions are apart,
or the file does not roll.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from indextts.data.importing.subtitles import Cue

MAX_GAP_S = 0.15  # between captions that roll: they follow each other at once, or overlap
MIN_ROLLING_SHARE = 0.3  # of all neighbours, from which on a file is one that rolls
MIN_WORDS = 3  # that neighbours share, where a file does not roll


def unrolled(cues: Sequence[Cue]) -> tuple[list[Cue], bool]:
    """Return the captions with the words that each says anew, at the times when they are said.

    Args:
        cues: cleaned, in the order of their start.

    Returns:
        The captions, and whether the file is one that rolls.
    """
    shared = [_shared_words(first, second) for first, second in pairwise(cues)]
    touching = [
        bool(first.text and second.text and second.start_s - first.end_s <= MAX_GAP_S)
        for first, second in pairwise(cues)
    ]
    num_rolling = sum(count > 0 and touch for count, touch in zip(shared, touching, strict=True))
    is_rolling = num_rolling > MIN_ROLLING_SHARE * max(1, len(shared))
    least = 1 if is_rolling else MIN_WORDS
    result: list[Cue] = list(cues[:1])
    for cue, count, touch in zip(cues[1:], shared, touching, strict=True):
        if not touch or count < least:
            result.append(cue)
            continue
        words = cue.text.split()[count:]
        last = result[-1]
        if not words:  # shown on: what it says is still being said
            result[-1] = replace(last, end_s=max(last.end_s, cue.end_s))
        elif cue.start_s <= last.start_s:
            result[-1] = replace(last, end_s=cue.end_s, text=" ".join([last.text, *words]))
        else:
            result[-1] = replace(last, end_s=min(last.end_s, cue.start_s))
            result.append(replace(cue, text=" ".join(words)))
    return result, is_rolling


def _shared_words(first: Cue, second: Cue) -> int:
    """Return how many words at the end of the first are those at the beginning of the second."""
    before, after = first.text.split(), second.text.split()
    for count in range(min(len(before), len(after)), 0, -1):
        if before[-count:] == after[:count]:
            return count
    return 0
