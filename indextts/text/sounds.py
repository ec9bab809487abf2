"""Sounds of new pieces, written in pieces of the base: a start for their rows.

    ▁ሰላም --romanise--> ▁selam --case of the base--> ▁SELAM --base tokenizer--> ▁SE L AM

The blank of a byte-level piece stays, as the mark of a SentencePiece piece does. Letters of one sound, such
as ሰ and ሠ, have the same tokens.
"""

from collections.abc import Iterable

from indextts.text.tokenizer import WORD_START, Tokenizer

_SIGNS = str.maketrans("", "", "'`")  # of ejectives and glottal stops; no base knows them as sounds


def romanise(text: str) -> str:
    """Return `text` in Latin letters; ASCII and word marks stay."""
    from anyascii import anyascii  # reads tables: only for runs that use them

    return "".join(
        char
        if char.isascii() or char == WORD_START
        # a glottal stop with the vowel of the sixth order, which alone is left
        else ("i" if char in "እዕ" else anyascii(char).translate(_SIGNS))
        for char in text
    )


def base_tokens(tokenizer: Tokenizer, base_size: int, tokens: Iterable[int]) -> dict[int, list[int]]:
    """Return the tokens of the base that sound like each new one; a piece without a sound is left out.

    Args:
        tokenizer: of the run, whose first `base_size` tokens belong to the base.
        tokens: the new ones.
    """
    base = tokenizer.shortened(base_size)
    cut, is_upper = base.cutter(), base.base.letter_case == "upper"
    found = {}
    for token in tokens:
        piece = tokenizer.pieces[token]
        if piece.startswith("<"):  # the name of bytes that are no text
            continue
        sound = romanise(piece)
        ids = cut(sound.upper() if is_upper else sound.lower())
        found[token] = [each for each in ids if each != base.unknown_id]
    return {token: ids for token, ids in found.items() if ids}
