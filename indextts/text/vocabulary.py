"""A vocabulary (the ordered pieces of a tokenizer), row mapping between vocabularies, and size advice.

The advised number of appended pieces depends on the hours of speech. The row of an appended piece is random
until training sees the piece, and 20 times is few. Share of Amharic BPE pieces that occur at least 20 times
in the transcripts (8,400 words per hour):

    pieces    2 h    5 h   10 h   20 h   40 h
     1,000     56     87     93     98     99 %
     2,000     22     58     91     97     99 %
     4,000      8     23     47     87     97 %
     8,000      3      8     18     38     75 %
    12,000    1.5      4     10     21     44 %

More pieces shorten the texts, but a text is short compared with its 50 codes per second: 12,000 pieces give
19 % fewer tokens than 4,000. benchmarks/results/fertility.md has both.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Vocabulary:
    """The identity of a tokenizer."""

    pieces: tuple[str, ...]  # SentencePiece strings by id; the text tables have one row more
    fingerprint: str  # sha256 over the ordered pieces with their types, scores and the normaliser's settings

    @property
    def size(self) -> int:
        return len(self.pieces)


def move_rows(old: Vocabulary, new: Vocabulary) -> tuple[int, ...]:
    """Return the row in the old text tables for each row of the new ones, by piece; -1 for a new piece.

    The spare last row stays last.
    """
    row = {piece: index for index, piece in enumerate(old.pieces)}
    return (*(row.get(piece, -1) for piece in new.pieces), old.size)


# Advised pieces from a number of hours on.
_PIECES_FROM_HOURS = ((0, 2000), (20, 4000), (100, 8000), (200, 12000))
_MAX_RATIO = 2  # to the advised number, before `objection` warns


@dataclass(frozen=True)
class SizeAdvice:
    """The advised number of pieces to append, and the hours of speech, None if unknown."""

    num_pieces: int
    hours: float | None

    def __str__(self) -> str:
        return f"{self.num_pieces:,} appended pieces, {self.reason}"

    @property
    def reason(self) -> str:
        if self.hours is None:
            return "because the manifests have no durations"
        return f"for {self.hours:.1f} hours of speech"

    def objection(self, num_appended: int) -> str:
        """Return an objection to appending `num_appended` pieces; empty if that is near the advice."""
        if self.hours is None:
            return ""
        if num_appended > _MAX_RATIO * self.num_pieces:
            return (
                f"{num_appended:,} appended pieces are many (advised: {self}); rare pieces are learned poorly"
            )
        # with little speech, the smallest advice, fewer pieces are fine
        if num_appended * _MAX_RATIO < self.num_pieces > _PIECES_FROM_HOURS[0][1]:
            return f"{num_appended:,} appended pieces are few (advised: {self}); texts become longer"
        return ""


def advise_size(hours: float | None) -> SizeAdvice:
    """Return the advice for the hours of speech, None if unknown."""
    return SizeAdvice(max(pieces for least, pieces in _PIECES_FROM_HOURS if (hours or 0) >= least), hours)
