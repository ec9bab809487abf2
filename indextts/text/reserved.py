"""Pieces of a language in the rows that the published tokenizer of IndexTTS-2.5 reserves and hardly uses.

The last 1,549 tokens of its vocabulary are times, sounds and spare names. The official program reads such a
token wherever a text spells it out, so a text can say `<|0.02|>` for a syllable or a frequent part of a word:

    " ሰላም"  ->  "<|0.44|><|2.90|>"    a blank may belong to a piece

No table changes its shape, and no file of the official program changes: only the text is written with tokens.
"""

from collections.abc import Callable, Sequence

from indextts.text.special_tokens import SPECIAL_TOKENS

NUM_OTHER = SPECIAL_TOKENS.index("<|SPECIAL_TOKEN_3|>")  # special tokens before; 1 and 2 mark pronunciations
RESERVED = SPECIAL_TOKENS[NUM_OTHER:]


def token_writer(pieces: Sequence[str]) -> Callable[[str], str]:
    """Return the function that writes a text with the tokens of `pieces`, the longest piece first."""
    token_of = dict(zip(pieces, RESERVED, strict=False))
    longest = max(map(len, pieces), default=0)

    def write(text: str) -> str:
        written, start = [], 0
        while start < len(text):
            for length in range(min(longest, len(text) - start), 0, -1):
                if token := token_of.get(text[start : start + length]):
                    written.append(token)
                    start += length
                    break
            else:
                written.append(text[start])
                start += 1
        return "".join(written)

    return write
