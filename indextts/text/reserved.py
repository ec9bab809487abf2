"""Pieces of a language in the rows that the published tokenizer of IndexTTS-2.5 reserves and hardly uses.

The last 1,549 tokens of its vocabulary are times, sounds and spare names. The official program reads such a
token wherever a text spells it out, so a text can say `<|0.02|>` for a syllable or a frequent part of a word:

    " ሰላም"  ->  "<|0.44|><|2.90|>"    a blank may belong to a piece

No table changes its shape, and no file of the official program changes: only the text is written with tokens.
"""

from collections.abc import Callable, Container, Iterator, Sequence

from indextts.text.special_tokens import SPECIAL_TOKENS

NUM_OTHER = SPECIAL_TOKENS.index("<|SPECIAL_TOKEN_3|>")  # special tokens before; 1 and 2 mark pronunciations
RESERVED = SPECIAL_TOKENS[NUM_OTHER:]


def token_writer(pieces: Sequence[str]) -> Callable[[str], str]:
    """Return the function that writes a text with the tokens of `pieces`, the longest piece first."""
    token_of = dict(zip(pieces, RESERVED, strict=False))
    longest = max(map(len, pieces), default=0)
    return lambda text: "".join(token_of.get(part, part) for part in longest_parts(text, token_of, longest))


def longest_parts(text: str, pieces: Container[str], longest: int) -> Iterator[str]:
    """Yield the parts of a text: at each place the longest of `pieces`, else a character."""
    start = 0
    while start < len(text):
        ends = range(min(len(text), start + longest), start, -1)
        end = next((end for end in ends if text[start:end] in pieces), start + 1)
        yield text[start:end]
        start = end
