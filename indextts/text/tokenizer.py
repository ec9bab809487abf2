"""A tokenizer: a SentencePiece model behind the normaliser, its identity, and what it makes of texts.

    text --normalize--> text --SentencePiece--> pieces = ids

Which options the normaliser has stands in the tokenizer's file (indextts/text/normalizer_record.py), so that
training and inference read texts alike; a file without it, such as the published one, has the default.

The GPT starts every text with id 0 and ends it with id 1, so these must be the control pieces `<s>` and
`</s>`.

The identity of a tokenizer (`Vocabulary.fingerprint`) covers what decides which ids a text gets: the ordered
pieces with types and scores, the model's own normaliser and how words are marked. It leaves out what does
not: paths and other records of the training that stand in the same file.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import sentencepiece
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NORMALIZER_VERSION, NormalizerOptions
from indextts.errors import UserError
from indextts.text.normalize import normalize
from indextts.text.normalizer_record import read_record
from indextts.text.vocabulary import Vocabulary

WORD_START = "\u2581"  # SentencePiece's sign for a space

_START_AND_STOP = ("<s>", "</s>")  # ids 0 and 1
_CONTROL = 3  # SentencePiece's type of a piece that no text gives
_TYPES_FROM_TEXT = (1, 4)  # normal and user-defined pieces


class Tokenizer:
    """Turns text into ids; can be sent to other processes."""

    def __init__(self, model: bytes, path: Path, options: NormalizerOptions | None = None) -> None:
        """Read a serialized SentencePiece model.

        Args:
            model: the content of a `.model` file.
            path: where it came from, for messages.
            options: how texts are normalised, where not as the model's record says.

        Raises:
            UserError: it is no SentencePiece model, ids 0 and 1 are not start and stop, or the record of its
                normaliser cannot be used.
        """
        self.path = path
        self.model_bytes = model
        proto = _parse(model, path)
        record = read_record(proto, path)
        self.recorded_version = None if record is None else record[0]
        self.options = options or (DEFAULT_OPTIONS if record is None else record[1])
        self.pieces = tuple(str(piece.piece) for piece in proto.pieces)
        self.types = tuple(int(piece.type) for piece in proto.pieces)
        _require_start_and_stop(self.pieces, self.types, path)
        self._processor = _processor(model, path)
        self.unknown_id = int(self._processor.unk_id())
        self.vocabulary = Vocabulary(self.pieces, _fingerprint(proto))

    @classmethod
    def load(cls, path: Path, options: NormalizerOptions | None = None) -> "Tokenizer":
        """Return the tokenizer in the file `path`.

        Raises:
            UserError: the file cannot be read or is no tokenizer that the model can work with.
        """
        try:
            model = path.read_bytes()
        except OSError as error:
            raise UserError(
                f"{path}: cannot be read ({error.strerror}); give a SentencePiece model such as bpe.model"
            ) from None
        if not model:
            raise UserError(f"{path}: the file is empty; fetch or write the tokenizer again")
        return cls(model, path, options)

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[bytes, Path, NormalizerOptions]]:
        return Tokenizer, (self.model_bytes, self.path, self.options)

    def normalize(self, text: str) -> str:
        """Return `text` as SentencePiece gets it."""
        return normalize(text, self.options)

    @property
    def normalizer_warning(self) -> str:
        """Why texts may be read otherwise than the pieces were learned from; empty if there is no doubt."""
        if self.recorded_version is None:
            return (
                f"{self.path} does not say how texts are normalised for it: {self.options.summary}, version "
                f"{NORMALIZER_VERSION}, are taken"
            )
        if self.recorded_version < NORMALIZER_VERSION:
            return (
                f"{self.path} was made with version {self.recorded_version} of the normaliser, this is "
                f"version {NORMALIZER_VERSION}: some texts are read otherwise"
            )
        return ""

    @property
    def size(self) -> int:
        return len(self.pieces)

    @property
    def text_pieces(self) -> frozenset[str]:
        """The pieces that a text can give: all but control, unknown, unused and byte pieces."""
        return frozenset(
            piece for piece, kind in zip(self.pieces, self.types, strict=True) if kind in _TYPES_FROM_TEXT
        )

    @property
    def proto(self) -> Any:
        """A fresh copy of the SentencePiece ModelProto, to make another model from."""
        return _parse(self.model_bytes, self.path)

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without start and stop."""
        return self.encode_normalized(self.normalize(text))

    def encode_pieces(self, text: str) -> list[str]:
        """Return the pieces of `text`; what is unknown stands there as it is written."""
        return self.normalized_pieces(self.normalize(text))

    def words(self, text: str) -> str:
        """Return `text` after our normaliser and the model's own: what the model cuts, with plain spaces."""
        return self.normalized_words(self.normalize(text))

    def encode_normalized(self, spoken: str) -> list[int]:
        """Return the ids of a text that was normalised already."""
        return cast(list[int], self._processor.encode(spoken))

    def normalized_pieces(self, spoken: str) -> list[str]:
        """Return the pieces of a text that was normalised already."""
        return cast(list[str], self._processor.encode(spoken, out_type=str))

    def normalized_words(self, spoken: str) -> str:
        """Return a text that was normalised already after the model's own normaliser."""
        return cast(str, self._processor.normalize(spoken)).replace(WORD_START, " ").strip()

    def decode(self, ids: list[int]) -> str:
        """Return the text that `ids` spell."""
        return cast(str, self._processor.decode(ids))


def first_difference(base: Tokenizer, extended: Tokenizer) -> str | None:
    """Return None if `extended` begins with exactly the pieces of `base`, else where it first does not."""
    if extended.size < base.size:
        return f"it has {extended.size} pieces, fewer than the {base.size} of {base.path}"
    for token in range(base.size):
        if base.pieces[token] != extended.pieces[token]:
            return f"id {token} is {extended.pieces[token]!r} and was {base.pieces[token]!r} in {base.path}"
        if base.types[token] != extended.types[token]:
            return (
                f"id {token}, {base.pieces[token]!r}, has type {extended.types[token]} "
                f"and had type {base.types[token]} in {base.path}"
            )
    return None


@dataclass(frozen=True)
class TextMeasure:
    """What a tokenizer makes of texts, counted over all of them.

    Args:
        num_texts: how many there were.
        num_words: between spaces, after normalising.
        num_unknown: tokens that are `<unk>`; one of them can stand for a whole word.
        unknown_characters: the characters inside the unknown tokens with their counts, most frequent first.
        tokens: how often each id occurs.
        changed: normalised texts without unknown tokens that their ids do not spell.
    """

    num_texts: int
    num_words: int
    num_tokens: int
    num_unknown: int
    unknown_characters: tuple[tuple[str, int], ...]
    tokens: Counter[int]
    changed: tuple[str, ...]

    @property
    def unknown_percent(self) -> float:
        return 100 * self.num_unknown / max(self.num_tokens, 1)

    @property
    def tokens_per_word(self) -> float:
        return self.num_tokens / max(self.num_words, 1)

    def percent_from(self, first_token: int) -> float:
        """Share of the tokens with an id of at least `first_token`, in percent."""
        count = sum(count for token, count in self.tokens.items() if token >= first_token)
        return 100 * count / max(self.num_tokens, 1)


def measure(tokenizer: Tokenizer, texts: Iterable[str]) -> TextMeasure:
    """Return the counts of `tokenizer` over `texts`."""
    num_texts = num_words = 0
    tokens: Counter[int] = Counter()
    unknown_characters: Counter[str] = Counter()
    changed = []
    for text in texts:
        spoken = tokenizer.normalize(text)
        ids, words = tokenizer.encode_normalized(spoken), tokenizer.normalized_words(spoken)
        tokens.update(ids)
        num_texts += 1
        num_words += len(words.split())
        if tokenizer.unknown_id in ids:
            for token, piece in zip(ids, tokenizer.normalized_pieces(spoken), strict=True):
                if token == tokenizer.unknown_id:
                    unknown_characters.update(piece)
        elif tokenizer.decode(ids).split() != words.split():
            changed.append(spoken)
    return TextMeasure(
        num_texts=num_texts,
        num_words=num_words,
        num_tokens=tokens.total(),
        num_unknown=tokens[tokenizer.unknown_id],
        # by count, then by character, so that the order never depends on the order of the texts
        unknown_characters=tuple(sorted(unknown_characters.items(), key=lambda item: (-item[1], item[0]))),
        tokens=tokens,
        changed=tuple(changed),
    )


def parse_model(model: bytes) -> Any:
    """Return the SentencePiece ModelProto in `model`."""
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # made when it is imported
    proto.ParseFromString(model)
    return proto


def _parse(model: bytes, path: Path) -> Any:
    try:
        proto = parse_model(model)
    except DecodeError:
        raise _no_model(path) from None
    if not proto.pieces:  # a foreign file can look like a message without the fields we know
        raise _no_model(path)
    return proto


def _processor(model: bytes, path: Path) -> Any:
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise UserError(
            f"{path}: SentencePiece refuses this model: {error}; fetch or write it again"
        ) from None


def _no_model(path: Path) -> UserError:
    return UserError(f"{path}: this is no SentencePiece model; give the bpe.model of a checkpoint")


def _require_start_and_stop(pieces: tuple[str, ...], types: tuple[int, ...], path: Path) -> None:
    if pieces[:2] != _START_AND_STOP or types[:2] != (_CONTROL, _CONTROL):
        found = ", ".join(repr(piece) for piece in pieces[:2])
        raise UserError(
            f"{path}: ids 0 and 1 are {found}, but the model starts and stops texts with 0 and 1; "
            "give a tokenizer whose first two pieces are the control pieces '<s>' and '</s>'"
        )


def _fingerprint(proto: Any) -> str:
    """Return the sha256 of what decides the ids of a text."""
    normalizer, trainer = proto.normalizer_spec, proto.trainer_spec
    identity = {
        "pieces": [(piece.piece, piece.type, repr(piece.score)) for piece in proto.pieces],
        "model_type": trainer.model_type,
        "byte_fallback": trainer.byte_fallback,
        "treat_whitespace_as_suffix": trainer.treat_whitespace_as_suffix,
        # Field by field, not as bytes: a setting that is written out and the same one left at its default
        # are one setting, and the rules' name and path say nothing that the compiled rules do not.
        "add_dummy_prefix": normalizer.add_dummy_prefix,
        "remove_extra_whitespaces": normalizer.remove_extra_whitespaces,
        "escape_whitespaces": normalizer.escape_whitespaces,
        "charsmap": hashlib.sha256(normalizer.precompiled_charsmap).hexdigest(),
    }
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()
