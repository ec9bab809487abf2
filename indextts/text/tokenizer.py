"""Tokenizer: the normaliser and a SentencePiece model, the fingerprint, and statistics over texts.

    text --normalize--> text --SentencePiece--> pieces = ids

The tokenizer file records the version and options of the normaliser with the readings, so training and
inference normalise texts alike, and every copy of the file carries them. A file without a record, such as the
published one, uses the defaults. SentencePiece ignores and preserves protobuf fields from 200 on; the record
is JSON in such a field:

    ModelProto { 1: pieces  2: trainer_spec ...  20777: {"version": 7, ...} }

The GPT starts every text with id 0 and ends it with id 1, so these must be the control pieces `<s>` and
`</s>`.

The fingerprint (`Vocabulary.fingerprint`) covers everything that decides the ids of a text: the ordered
pieces with types and scores, the SentencePiece normaliser and the word marks. It excludes paths and other
training records in the same file.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import sentencepiece
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from pydantic import ValidationError
from sentencepiece import sentencepiece_model_pb2

from indextts.commands.bases import BASE_2_0, Base
from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NORMALIZER_VERSION, NormalizerOptions
from indextts.errors import UserError
from indextts.text.normalize import normalize
from indextts.text.vocabulary import Vocabulary

WORD_START = "\u2581"  # the SentencePiece sign for a space

_START_AND_STOP = ("<s>", "</s>")  # ids 0 and 1
_CONTROL = 3  # the SentencePiece type of pieces that never come from a text
_TYPES_FROM_TEXT = (1, 4)  # normal and user-defined pieces
_FIELD = 20_777  # of the record
_LENGTH_DELIMITED = 2  # protobuf wire type


class Tokenizer:
    """A normaliser and a SentencePiece model; can be pickled.

    Attributes:
        base: the published model whose tokenizer this is or extends.
        reserved: pieces in place of reserved tokens of the base, where it has such tokens.
    """

    base: Base = BASE_2_0
    reserved: tuple[str, ...] = ()

    def __init__(self, model: bytes, path: Path, options: NormalizerOptions | None = None) -> None:
        """Parse a serialized SentencePiece model.

        Args:
            model: the content of a `.model` file.
            path: its origin, for messages.
            options: of the normaliser, in place of the recorded ones.

        Raises:
            UserError: `model` is not a SentencePiece model, ids 0 and 1 are not start and stop, or the
                normaliser record cannot be used.
        """
        self.path = path
        self.model_bytes = model
        proto = _parse(model, path)
        record = read_record(proto, path)
        self.recorded_version = None if record is None else record[0]
        self.options = options or (DEFAULT_OPTIONS if record is None else record[1])
        self.pieces = tuple(str(piece.piece) for piece in proto.pieces)
        self.types = tuple(int(piece.type) for piece in proto.pieces)
        if self.pieces[:2] != _START_AND_STOP or self.types[:2] != (_CONTROL, _CONTROL):
            found = ", ".join(map(repr, self.pieces[:2]))
            raise UserError(
                f"{path}: ids 0 and 1 are {found}, but the model uses ids 0 and 1 to start and end a text; "
                "use a tokenizer whose first two pieces are the control pieces '<s>' and '</s>'"
            )
        self._processor = _processor(model, path)
        self.unknown_id = int(self._processor.unk_id())
        self.vocabulary = Vocabulary(self.pieces, _fingerprint(proto))

    @classmethod
    def load(cls, path: Path, options: NormalizerOptions | None = None) -> "Tokenizer":
        """Load the tokenizer file at `path`; a UserError if it cannot be read or used."""
        return cls(read_model(path), path, options)

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[bytes, Path, NormalizerOptions]]:
        return type(self), (self.model_bytes, self.path, self.options)

    def normalize(self, text: str) -> str:
        """Return the normalised form of `text`, the input of SentencePiece."""
        return normalize(text, self.options)

    @property
    def normalizer_warning(self) -> str:
        """A warning if texts may be normalised differently than when the pieces were learned, else empty."""
        if self.recorded_version is None:
            return (
                f"{self.path} has no normaliser record; using {self.options.summary}, "
                f"version {NORMALIZER_VERSION}"
            )
        if self.recorded_version < NORMALIZER_VERSION:
            return (
                f"{self.path} was built with version {self.recorded_version} of the normaliser, this is "
                f"version {NORMALIZER_VERSION}: some texts are normalised differently"
            )
        return ""

    @property
    def size(self) -> int:
        return len(self.pieces)

    @property
    def text_pieces(self) -> frozenset[str]:
        """The pieces that a text can produce: all but control, unknown, unused and byte pieces."""
        return frozenset(
            piece for piece, kind in zip(self.pieces, self.types, strict=True) if kind in _TYPES_FROM_TEXT
        )

    @property
    def language_row(self) -> int | None:
        """The row of the texts' language in the model; None for a base without language rows."""
        return None

    def appended_ids(self, base_size: int) -> range:
        """Return the ids of the pieces that the base, of `base_size` pieces, lacks, in learned order."""
        return range(base_size, self.size)

    def shortened(self, size: int) -> "Tokenizer":
        """Return the tokenizer without the pieces that were appended after it had `size` pieces."""
        proto = self.proto
        del proto.pieces[size:]
        proto.trainer_spec.vocab_size = size
        return Tokenizer(proto.SerializeToString(deterministic=True), self.path, self.options)

    def recording(self, options: NormalizerOptions) -> bytes:
        """Return the content of the tokenizer file with other options of the normaliser in its record."""
        proto = self.proto
        proto.DiscardUnknownFields()  # earlier records
        return with_record(proto.SerializeToString(deterministic=True), options.record)

    def cutting_change(self, base: "Tokenizer") -> str:
        """Return the reason why a tokenizer with the pieces of `base` cuts texts differently, else empty."""
        before, after = base.proto, self.proto
        pairs = zip(before.pieces, after.pieces, strict=False)
        num_scores = sum(old.score != new.score for old, new in pairs)
        if num_scores:
            return f"{num_scores} of the {base.size} base pieces have other scores"
        if before.normalizer_spec != after.normalizer_spec:
            return f"its SentencePiece normaliser settings differ from {base.path}"
        return ""

    @property
    def proto(self) -> Any:
        """A new copy of the SentencePiece ModelProto, to build another model from."""
        return _parse(self.model_bytes, self.path)

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`, without start and stop."""
        return self.encode_normalized(self.normalize(text))

    def encode_pieces(self, text: str) -> list[str]:
        """Return the pieces of `text`; unknown characters appear unchanged."""
        return self.normalized_pieces(self.normalize(text))

    def words(self, text: str) -> str:
        """Return `text` after this normaliser and that of SentencePiece, with plain spaces."""
        return self.normalized_words(self.normalize(text))

    def encode_normalized(self, normalized: str) -> list[int]:
        """Return the ids of a normalised text."""
        return cast(list[int], self._processor.encode(normalized))

    def cutter(self) -> Callable[[str], list[int]]:
        """Return a function that cuts a part of a text: no word starts there unless the part has its mark."""
        proto = self.proto
        proto.normalizer_spec.add_dummy_prefix = False
        proto.normalizer_spec.remove_extra_whitespaces = False  # it would remove the mark
        processor = _processor(proto.SerializeToString(), self.path)
        return cast(Callable[[str], list[int]], processor.encode)

    def normalized_pieces(self, normalized: str) -> list[str]:
        """Return the pieces of a normalised text."""
        return cast(list[str], self._processor.encode(normalized, out_type=str))

    def normalized_words(self, normalized: str) -> str:
        """Return a normalised text after the SentencePiece normaliser, with plain spaces."""
        return cast(str, self._processor.normalize(normalized)).replace(WORD_START, " ").strip()

    def unknown_words(self, normalized: str) -> list[str]:
        """Return the words of a normalised text with pieces that the vocabulary does not have."""
        return [word for word in normalized.split() if self.unknown_id in self.encode_normalized(word)]

    def decode(self, ids: list[int]) -> str:
        """Return the text of `ids`."""
        return cast(str, self._processor.decode(ids))


def read_model(path: Path) -> bytes:
    """Return the content of a tokenizer file; a UserError if it cannot be read or is empty."""
    try:
        model = path.read_bytes()
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); use a SentencePiece model such as bpe.model, or a "
            "rank file of IndexTTS-2.5"
        ) from None
    if not model:
        raise UserError(f"{path}: the file is empty; download or build the tokenizer again")
    return model


def first_difference(base: Tokenizer, extended: Tokenizer) -> str | None:
    """Return the first difference of `extended`, without its appended pieces, from `base`; else None."""
    if extended.size < base.size:
        return f"it has {extended.size} pieces, fewer than the {base.size} of {base.path}"
    appended = extended.appended_ids(base.size)
    kept = (token for token in range(extended.size) if token not in appended)
    for old, token in enumerate(kept):
        if base.pieces[old] != extended.pieces[token]:
            return f"id {token} is {extended.pieces[token]!r} and was {base.pieces[old]!r} in {base.path}"
        if base.types[old] != extended.types[token]:
            return (
                f"id {token}, {base.pieces[old]!r}, has type {extended.types[token]} "
                f"and had type {base.types[old]} in {base.path}"
            )
    return None


@dataclass(frozen=True)
class TextMeasure:
    """Statistics of a tokenizer over texts."""

    num_texts: int
    num_words: int  # separated by spaces, after normalising
    num_tokens: int
    num_unknown: int  # `<unk>` tokens; each can stand for a whole word
    unknown_characters: tuple[tuple[str, int], ...]  # inside unknown tokens, most frequent first
    tokens: Counter[int]  # the count of each id
    changed: tuple[str, ...]  # normalised texts without unknown tokens that differ from the decoded text

    @property
    def unknown_percent(self) -> float:
        return 100 * self.num_unknown / max(self.num_tokens, 1)

    @property
    def tokens_per_word(self) -> float:
        return self.num_tokens / max(self.num_words, 1)

    def percent_of(self, ids: range) -> float:
        """Return the percentage of tokens with one of the `ids`."""
        count = sum(count for token, count in self.tokens.items() if token in ids)
        return 100 * count / max(self.num_tokens, 1)


def measure(tokenizer: Tokenizer, texts: Iterable[str]) -> TextMeasure:
    """Return the statistics of `tokenizer` over `texts`."""
    num_texts = num_words = 0
    tokens: Counter[int] = Counter()
    unknown_characters: Counter[str] = Counter()
    changed = []
    for text in texts:
        normalized = tokenizer.normalize(text)
        ids, words = tokenizer.encode_normalized(normalized), tokenizer.normalized_words(normalized)
        tokens.update(ids)
        num_texts += 1
        num_words += len(words.split())
        if tokenizer.unknown_id in ids:
            for token, piece in zip(ids, tokenizer.normalized_pieces(normalized), strict=True):
                if token == tokenizer.unknown_id:
                    unknown_characters.update(piece)
        elif tokenizer.decode(ids).split() != words.split():
            changed.append(normalized)
    return TextMeasure(
        num_texts=num_texts,
        num_words=num_words,
        num_tokens=tokens.total(),
        num_unknown=tokens[tokenizer.unknown_id],
        # by count, then by character, independent of the order of the texts
        unknown_characters=tuple(sorted(unknown_characters.items(), key=lambda item: (-item[1], item[0]))),
        tokens=tokens,
        changed=tuple(changed),
    )


def with_record(model: bytes, record: dict[str, Any]) -> bytes:
    """Return a serialized SentencePiece model with `record` appended; the last record of a file counts."""
    content = json.dumps(record, ensure_ascii=False).encode()
    field = _varint(_FIELD << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content
    return model if model.endswith(field) else model + field


def read_record(proto: Any, path: Path) -> tuple[int, NormalizerOptions] | None:
    """Return the version and options in a ModelProto, None without; a UserError if corrupt or newer."""
    fields: Any = UnknownFieldSet(proto)  # iterable, unlike its stub
    found = [field.data for field in fields if field.field_number == _FIELD]
    return parse_record(found[-1], path) if found else None


def parse_record(content: bytes, path: Path) -> tuple[int, NormalizerOptions]:
    """Return the normaliser version and options in the JSON of a record; errors as for `read_record`."""
    try:
        record = json.loads(content)
        version = int(record.pop("version"))
        if version > NORMALIZER_VERSION:
            raise UserError(
                f"{path}: needs version {version} of the normaliser, but this program has version "
                f"{NORMALIZER_VERSION}; update the program"
            )
        return version, NormalizerOptions.model_validate(record)
    except (TypeError, ValueError, KeyError, AttributeError, ValidationError) as error:
        first = " ".join(str(error).split())
        raise UserError(
            f"{path}: its normaliser record is corrupt ({first}); rebuild the tokenizer with "
            "tools/extend_bpe.py"
        ) from None


def _varint(number: int) -> bytes:
    """Return the protobuf encoding of an integer: 7 bits per byte, lowest first."""
    more = []
    while number > 0x7F:
        more.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*more, number])


def parse_model(model: bytes) -> Any:
    """Return the SentencePiece ModelProto in `model`."""
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]  # created at import
    proto.ParseFromString(model)
    return proto


def _parse(model: bytes, path: Path) -> Any:
    with suppress(DecodeError):
        proto = parse_model(model)
        if proto.pieces:  # any file can parse as a message with unknown fields
            return proto
    raise UserError(f"{path}: not a SentencePiece model; use the bpe.model of a checkpoint")


def _processor(model: bytes, path: Path) -> Any:
    try:
        return sentencepiece.SentencePieceProcessor(model_proto=model)
    except RuntimeError as error:
        raise UserError(
            f"{path}: SentencePiece cannot load this model: {error}; download or build it again"
        ) from None


def _fingerprint(proto: Any) -> str:
    """Return the sha256 of everything that decides the ids of a text."""
    normalizer, trainer = proto.normalizer_spec, proto.trainer_spec
    identity = {
        "pieces": [(piece.piece, piece.type, repr(piece.score)) for piece in proto.pieces],
        "model_type": trainer.model_type,
        "byte_fallback": trainer.byte_fallback,
        "treat_whitespace_as_suffix": trainer.treat_whitespace_as_suffix,
        # Field by field, not as bytes: an explicit setting equals the same setting left at its default, and
        # the compiled rules make their name and path redundant.
        "add_dummy_prefix": normalizer.add_dummy_prefix,
        "remove_extra_whitespaces": normalizer.remove_extra_whitespaces,
        "escape_whitespaces": normalizer.escape_whitespaces,
        "charsmap": hashlib.sha256(normalizer.precompiled_charsmap).hexdigest(),
    }
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()
