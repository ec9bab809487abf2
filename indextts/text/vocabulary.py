"""A vocabulary: the ordered pieces of a tokenizer, and what another vocabulary has in common with it.

How many pieces a new language should get: as many as its hours of speech can teach.

The row of an appended piece is random until the piece was seen, and 20 times is little. Of the pieces that
BPE makes of Amharic, so many occur 20 times or more in the transcripts (8,400 words an hour):

    pieces    2 h    5 h   10 h   20 h   40 h
     1,000     56     87     93     98     99 %
     2,000     22     58     91     97     99 %
     4,000      8     23     47     87     97 %
     8,000      3      8     18     38     75 %
    12,000    1.5      4     10     21     44 %

More pieces make shorter texts, but a text is short beside its 50 codes a second: 12,000 pieces give 19 %
fewer tokens than 4,000. benchmarks/fertility.py measures both.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Vocabulary:
    """The identity of a tokenizer.

    Args:
        pieces: the SentencePiece strings in the order of their ids; the text tables of the model have one
            row more than this.
        fingerprint: sha256 over the ordered pieces with their types, scores and the normaliser's settings.
    """

    pieces: tuple[str, ...]
    fingerprint: str

    @property
    def size(self) -> int:
        return len(self.pieces)


def move_rows(old: Vocabulary, new: Vocabulary) -> tuple[int, ...]:
    """Return for each row of the new text tables its row in the old ones, by piece, -1 where there is none.

    The spare last row moves to the new end.
    """
    row = {piece: index for index, piece in enumerate(old.pieces)}
    return (*(row.get(piece, -1) for piece in new.pieces), old.size)


# From so many hours on, so many pieces.
_PIECES_FROM_HOURS = ((0, 2000), (20, 4000), (100, 8000), (200, 12000))
_FAR_OFF = 2  # times more or less than advised


@dataclass(frozen=True)
class SizeAdvice:
    """How many pieces to append to a base, and the hours of speech that say so, None where nobody knows."""

    num_pieces: int
    hours: float | None

    def __str__(self) -> str:
        return f"{self.num_pieces:,} appended pieces, {self.reason}"

    @property
    def reason(self) -> str:
        if self.hours is None:
            return "since the manifests do not say how long the speech is"
        return f"for {self.hours:.1f} hours of speech"

    def objection(self, num_appended: int) -> str:
        """Return what speaks against appending `num_appended` pieces; empty if it is near the advice."""
        if self.hours is None:
            return ""
        if num_appended > _FAR_OFF * self.num_pieces:
            return f"{num_appended:,} pieces to append are many: advised are {self}; rare ones learn little"
        # of the least that is advised, fewer are no fault: there is little speech
        if num_appended * _FAR_OFF < self.num_pieces > _PIECES_FROM_HOURS[0][1]:
            return f"{num_appended:,} pieces to append are few: advised are {self}; texts become longer"
        return ""


def advise_size(hours: float | None) -> SizeAdvice:
    """Return the advice for so many hours of speech, None where nobody knows how many there are."""
    return SizeAdvice(max(pieces for least, pieces in _PIECES_FROM_HOURS if (hours or 0) >= least), hours)
