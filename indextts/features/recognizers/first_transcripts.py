"""Whether a recognizer can write a language, from its first transcripts: one that cannot is stopped.

A vocabulary of bytes can write every language, so only transcripts show what a model writes. Used by the
transcription, the check and the evaluation after NUM_FIRST clips, before hours are spent:

    letters   more than MAX_FOREIGN of them are of another script, or bytes that form no letter (U+FFFD)
    loops     more than MAX_LOOPS of the transcripts repeat a pattern, as generating models do when lost
    empty     more than MAX_EMPTY of the transcripts have no letter
    error     more than MAX_ERROR of the letters of the texts differ, where there are texts; a clip counts
              at most all of its letters
"""

import logging
from collections.abc import Sequence

import numpy as np

from indextts.errors import UserError
from indextts.text.languages import find_language
from indextts.text.transcripts import Errors, error_rate, has_loop

logger = logging.getLogger(__name__)

NUM_FIRST = 20  # fewer are too few to stop, and lead to a warning
MAX_FOREIGN = 0.2  # names and abbreviations in another script are usual
MAX_LOOPS = 0.25
MAX_EMPTY = 0.5
MAX_ERROR = 0.75  # a sentence of the same language differs about as much
MIN_LOOP = 20  # letters


def require_language(name: str, language: str, heard: Sequence[str], errors: Sequence[Errors] = ()) -> None:
    """Stop a recognizer whose first transcripts are not of the language.

    Args:
        heard: its first transcripts, NUM_FIRST or all.
        errors: against the texts of the same clips; none without texts.

    Raises:
        UserError: it cannot write the language.
    """
    problem = problem_of(language, heard, errors)
    if not problem:
        return
    shown = find_language(language).name
    message = f"--asr {name}: cannot be used for {shown}: {problem}; pass a recognizer for {shown}"
    if errors:
        message += ", or correct the texts if they belong to other recordings"
    if len(heard) >= NUM_FIRST:
        raise UserError(f"{message}. Stopped after {len(heard)} clips")
    logger.warning("%s", message)


def problem_of(language: str, heard: Sequence[str], errors: Sequence[Errors] = ()) -> str:
    """Return what is wrong with transcripts; "" if nothing is."""
    text = "".join(heard)
    num_own, num_letters = find_language(language).count_letters(text)
    num_letters += text.count("\N{REPLACEMENT CHARACTER}")
    if num_letters and 1 - num_own / num_letters > MAX_FOREIGN:
        return f"{1 - num_own / num_letters:.0%} of the letters it writes are of other scripts"
    num_loops, num_empty = counts(heard)
    for count, most, kind in ((num_loops, MAX_LOOPS, "loop"), (num_empty, MAX_EMPTY, "are empty")):
        if count > most * len(heard):
            return f"{count} of {len(heard)} transcripts {kind}"
    rate = error_rate([each.bounded for each in errors])
    return f"{rate:.0%} of the letters of the texts differ from what it writes" if rate > MAX_ERROR else ""


def counts(heard: Sequence[str]) -> tuple[int, int]:
    """Return the number of transcripts with a loop, and of those without a letter."""
    written = ["".join(filter(str.isalpha, text)) for text in heard]
    loops = [has_loop(np.array([ord(char) for char in text]), MIN_LOOP) for text in written]
    return sum(loops), written.count("")
