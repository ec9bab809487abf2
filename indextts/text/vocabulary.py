"""A vocabulary: the ordered pieces of a tokenizer, and what another vocabulary has in common with it."""

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
