"""Ethiopic marks for programs that give raw Amharic to SentencePiece, as the official front end does.

That front end knows no Ethiopic mark: SentencePiece reads one as an unknown piece, and long texts are cut
inside words, because only . ! ? , and - are places to cut. So an exported tokenizer replaces the marks
itself, in the map that SentencePiece applies before it cuts a text:

    NormalizerSpec.precompiled_charsmap
      uint32 little-endian    number of bytes of the trie
      trie                    double array of uint32 (darts-clone): UTF-8 of a key -> offset of its value
      values                  UTF-8, each with a zero byte at its end

The map is read, extended and compiled by SentencePiece again. Other texts keep their pieces.
"""

import io
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from indextts.errors import UserError
from indextts.text.tokenizer import parse_model

# What the rules of the normaliser do for a mark outside of numbers (text/marks.py).
MARKS = {
    **dict.fromkeys("።፨", "."),
    **dict.fromkeys("፣፤፥፦", ","),
    "፧": "?",
    "፡": " ",
}
_PIECES_OF_COMPILER = 8  # the smallest vocabulary that SentencePiece learns from `_SENTENCES`
_SENTENCES = ("a b", "b a")
_BYTES = np.arange(1, 256)
_MAX_KEY_BYTES = 256
_MAX_KEYS = 1_000_000  # of one length; NFKC has 225,000 in all
_CHUNK = 4096  # nodes at a time, for a bounded memory


def with_ethiopic_marks(model: bytes) -> bytes:
    """Return a SentencePiece model that replaces Ethiopic marks; a UserError if its map is corrupt."""
    proto = parse_model(model)
    charsmap = proto.normalizer_spec.precompiled_charsmap
    changed = _with_marks(charsmap)
    if changed == charsmap:
        return model
    proto.normalizer_spec.precompiled_charsmap = changed
    return proto.SerializeToString()  # type: ignore[no-any-return]


@lru_cache(maxsize=1)  # takes seconds, and all tokenizers of a base have the same map
def _with_marks(charsmap: bytes) -> bytes:
    try:
        rules = dict(charsmap_rules(charsmap))
    except (ValueError, IndexError) as error:
        raise UserError(
            f"the tokenizer's map of characters is corrupt ({error}); use the published bpe.model"
        ) from None
    missing = {mark: to for mark, to in MARKS.items() if mark not in rules}
    return _compiled(rules | missing) if missing else charsmap


def charsmap_rules(charsmap: bytes) -> Iterator[tuple[str, str]]:
    """Yield the keys of a precompiled map with their replacements; a ValueError if it is corrupt."""
    if not charsmap:
        return
    trie_bytes = int.from_bytes(charsmap[:4], "little")
    units = np.frombuffer(charsmap, "<u4", trie_bytes // 4, offset=4).astype(np.int64)
    values = charsmap[4 + trie_bytes :]
    keys, places = [b""], np.zeros(1, np.int64)  # of one length at a time
    while keys:
        if len(keys[0]) > _MAX_KEY_BYTES:
            raise ValueError("a key has no end")
        nodes = units[places]
        children = places ^ ((nodes >> 10) << ((nodes & 0x200) >> 6))
        for row in np.flatnonzero(nodes & 0x100).tolist():  # these keys end here
            start = int(units[children[row]]) & 0x7FFFFFFF
            yield keys[row].decode(), values[start : values.index(b"\0", start)].decode()
        rows, following = _children(units, children)
        keys = [keys[row] + bytes([byte]) for row, byte in zip(rows, following & 0xFF, strict=True)]
        places = following >> 8


def _children(units: NDArray[np.int64], nodes: NDArray[np.int64]) -> tuple[list[int], NDArray[np.int64]]:
    """Return the children of nodes: the node's number, and place times 256 plus the byte that leads there.

    Args:
        nodes: for each node, the place of its child without the exclusive or with the child's byte.
    """
    numbers, found = [], []
    for first in range(0, len(nodes), _CHUNK):
        places = nodes[first : first + _CHUNK, None] ^ _BYTES  # (n, 255)
        labels = units[np.minimum(places, len(units) - 1)] & 0x800000FF
        rows, columns = np.nonzero((labels == _BYTES) & (places < len(units)))
        numbers += (rows + first).tolist()
        if len(numbers) > _MAX_KEYS:
            raise ValueError("it has too many keys")
        found.append(places[rows, columns] * 256 + _BYTES[columns])
    return numbers, np.concatenate(found)


def _compiled(rules: dict[str, str]) -> bytes:
    """Return the precompiled map of the rules, from a model that SentencePiece learns with them."""
    lines = (f"{_code_points(key)}\t{_code_points(to)}\n" for key, to in sorted(rules.items()))
    trained = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "rules.tsv"
        table.write_text("".join(lines), encoding="ascii")
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(_SENTENCES),
            model_writer=trained,
            vocab_size=_PIECES_OF_COMPILER,
            hard_vocab_limit=False,
            normalization_rule_tsv=str(table),
            minloglevel=2,
        )
    proto = parse_model(trained.getvalue())
    return proto.normalizer_spec.precompiled_charsmap  # type: ignore[no-any-return]


def _code_points(text: str) -> str:
    return " ".join(f"{ord(char):X}" for char in text)
