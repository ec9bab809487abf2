"""Byte-level tokenizer of IndexTTS-2.5: a rank file, special tokens, and the tag of the text's language.

    file    one line for each piece in the order of its rank: base64 of its bytes, a blank, the rank
            `@ [...]`: pieces in place of the reserved special tokens, in files of this program
            `# {...}`: the record of the normaliser, likewise
    ids     the pieces by rank; the special tokens (special_tokens.py) follow those of the published file

Appended pieces have the ranks behind the special tokens, so that no id and no row of the model ever moves:

    0 ... 58835    58836 ... 60508    60509 ...
    published      special tokens     appended

The official program gives the special tokens the ids behind all pieces. So `official_order` and
`official_ranks` renumber both for an export.

    text --normalize--> text --prepare--> <|am|> text --tiktoken--> ids

The GPT starts a text with id 0 and ends it with id 1. Here both are pieces as well, `!` and `"`; generation
drops them from a text. A text has no unknown tokens, since every byte is a piece.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tiktoken

from indextts.commands.bases import BASE_2_5
from indextts.commands.normalizer_options import NormalizerOptions
from indextts.errors import UserError
from indextts.text.official_front_end import prepare
from indextts.text.special_tokens import NUM_OTHER, SPECIAL_TOKENS, language_row, language_tag, token_writer
from indextts.text.tokenizer import Tokenizer, parse_record
from indextts.text.vocabulary import Vocabulary

PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # of GPT-2
PIECES, RECORD = b"@ ", b"# "
ADVICE = "use multilingual_zh_ja_yue_char_del.tiktoken of IndexTTS-2.5, or a file that extends it"

NUM_PUBLISHED = 58_836
[PUBLISHED] = [file.sha256 for file in BASE_2_5.own_files if file.place.endswith(".tiktoken")]
OPTIONS = NormalizerOptions(letter_case=BASE_2_5.letter_case)  # of a file without a record
_NORMAL, _CONTROL = 1, 3  # types of pieces, as in SentencePiece


class ByteLevelTokenizer(Tokenizer):
    """A normaliser and a rank file; can be pickled."""

    base = BASE_2_5

    def __init__(self, model: bytes, path: Path, options: NormalizerOptions | None = None) -> None:
        """Parse the content of a rank file; arguments and errors as for `Tokenizer`."""
        self.path, self.model_bytes = path, model
        lines, mark, recorded = model.partition(RECORD)
        record = parse_record(recorded, path) if mark else None
        ranks, _, reserved = lines.partition(PIECES)
        self.reserved = tuple(json.loads(reserved)) if reserved else ()
        self.recorded_version = None if record is None else record[0]
        self.options = options or (OPTIONS if record is None else record[1])
        self.ranked, self.num_published = _parse_ranks(ranks, path)
        _refuse_other_pieces(self.ranked[: self.num_published], path)
        names = [piece_name(piece) for piece in self.ranked]
        num_published, num_appended = self.num_published, len(names) - self.num_published
        first, end = NUM_OTHER, NUM_OTHER + len(self.reserved)
        special = (*SPECIAL_TOKENS[:first], *self.reserved, *SPECIAL_TOKENS[end:])
        self.pieces = (*names[:num_published], *special, *names[num_published:])
        self.types = (_NORMAL,) * num_published + (_CONTROL,) * first + (_NORMAL,) * (end - first)
        self.types += (_CONTROL,) * (len(special) - end) + (_NORMAL,) * num_appended
        self.write = token_writer(self.reserved)
        self.unknown_id = -1
        self.vocabulary = Vocabulary(self.pieces, _fingerprint(lines))
        self.tag = language_tag(self.options.language)
        self.encoding = tiktoken.Encoding(
            path.name,
            pat_str=PATTERN,
            mergeable_ranks=dict(zip(self.ranked, ids_of_ranks(num_published, len(names)), strict=True)),
            special_tokens={name: num_published + n for n, name in enumerate(SPECIAL_TOKENS)},
        )

    @property
    def language_row(self) -> int:
        """The row of the texts' language in the language embedding; a UserError if it has none."""
        return language_row(self.options.language, self.options.language_row)

    def appended_ids(self, base_size: int) -> range:
        if not self.reserved:
            return super().appended_ids(base_size)
        return range(self.num_published + NUM_OTHER, self.size)

    @property
    def official_order(self) -> tuple[int, ...]:
        """The id of the token that has each id in the official program."""
        first, size = self.num_published + len(SPECIAL_TOKENS), self.size
        return (*range(self.num_published), *range(first, size), *range(self.num_published, first))

    @property
    def official_ranks(self) -> bytes:
        """The rank file for the official program."""
        return rank_lines(self.ranked, len(self.ranked))

    def shortened(self, size: int) -> "ByteLevelTokenizer":
        if self.reserved:
            reserved = self.reserved[: size - self.num_published - NUM_OTHER]
            lines = rank_lines(self.ranked, self.num_published) + reserved_line(reserved)
            return ByteLevelTokenizer(lines, self.path, self.options)
        ranked = self.ranked[: size - len(SPECIAL_TOKENS)]
        return ByteLevelTokenizer(rank_lines(ranked, self.num_published), self.path, self.options)

    def recording(self, options: NormalizerOptions) -> bytes:
        return with_rank_record(self.model_bytes, options.record)

    def cutting_change(self, base: Tokenizer) -> str:
        return ""  # the pieces in their order decide everything

    def encode_normalized(self, normalized: str) -> list[int]:
        """Return the ids of a normalised text, with its language's tag; none for an empty text."""
        prepared = prepare(normalized, self.options.language)
        if not prepared.strip():
            return []
        return self.encoding.encode(self.tag + self.write(prepared), allowed_special="all")

    def cutter(self) -> Callable[[str], list[int]]:
        return self.encoding.encode_ordinary

    def normalized_pieces(self, normalized: str) -> list[str]:
        return [self.pieces[token] for token in self.encode_normalized(normalized)]

    def normalized_words(self, normalized: str) -> str:
        return prepare(normalized, self.options.language).strip()

    def decode(self, ids: list[int]) -> str:
        """Return the text of `ids` without special tokens."""
        special = range(self.num_published, self.num_published + len(SPECIAL_TOKENS))
        parts = [
            (self.pieces[token].encode() if self.types[token] == _NORMAL else b"")
            if token in special
            else self.encoding.decode_single_token_bytes(token)
            for token in ids
        ]
        return b"".join(parts).decode(errors="replace")


def is_rank_file(model: bytes) -> bool:
    """Return whether the content of a file begins like a rank file: with the piece of rank 0."""
    piece, _, rank = model.partition(b"\n")[0].rstrip(b"\r").partition(b" ")
    return rank == b"0" and bool(piece) and piece.isascii()


def ids_of_ranks(num_published: int, num_pieces: int) -> Iterator[int]:
    """Yield the id of each piece, which is its rank: those of appended pieces follow the special tokens."""
    yield from range(num_published)
    yield from range(num_published + len(SPECIAL_TOKENS), num_pieces + len(SPECIAL_TOKENS))


def rank_lines(ranked: tuple[bytes, ...], num_published: int) -> bytes:
    """Return the lines of a rank file; the empty piece is a single `=`, as in the published file."""
    encoded = (base64.b64encode(piece) or b"=" for piece in ranked)
    ids = ids_of_ranks(num_published, len(ranked))
    return b"".join(b"%s %d\n" % line for line in zip(encoded, ids, strict=True))


def reserved_line(pieces: Sequence[str]) -> bytes:
    """Return the line of pieces in place of the reserved special tokens, in the order of their ids."""
    return PIECES + json.dumps(list(pieces), ensure_ascii=False).encode() + b"\n"


def with_rank_record(model: bytes, record: dict[str, Any]) -> bytes:
    """Return a rank file with `record` as its last line, in place of an older one."""
    lines = without_rank_record(model).rstrip(b"\r\n") + b"\n"  # some editors leave out the last line end
    return lines + RECORD + json.dumps(record, ensure_ascii=False).encode() + b"\n"


def without_rank_record(model: bytes) -> bytes:
    """Return a rank file without the record of the normaliser."""
    return model.partition(RECORD)[0]


def piece_name(piece: bytes) -> str:
    """Return a name for a piece, unique among pieces: its text, or the hexadecimal bytes of no text."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return f"<{piece.hex(' ')}>"


def _parse_ranks(lines: bytes, path: Path) -> tuple[tuple[bytes, ...], int]:
    """Return the pieces, and the number of those before the gap of the special tokens."""
    pieces: list[bytes] = []
    num_published: int | None = None
    for number, line in enumerate(lines.split(b"\n"), start=1):
        if not line.strip():
            continue
        encoded, _, rank = line.strip().partition(b" ")
        try:
            piece = b"" if encoded == b"=" else base64.b64decode(encoded, validate=True)
        except binascii.Error:
            raise UserError(f"{path}:{number}: {encoded[:40]!r} is not base64; {ADVICE}") from None
        behind_gap = len(pieces) + len(SPECIAL_TOKENS)
        if num_published is None and rank == b"%d" % behind_gap:
            num_published = len(pieces)
        expected = len(pieces) if num_published is None else behind_gap
        if rank != b"%d" % expected:
            raise UserError(f"{path}:{number}: the rank is {rank[:40]!r}, expected {expected}; {ADVICE}")
        pieces.append(piece)
    missing = {bytes([byte]) for byte in range(256)} - set(pieces)
    if missing or len(set(pieces)) != len(pieces):
        raise UserError(f"{path}: must contain every byte and only different pieces; {ADVICE}")
    return tuple(pieces), len(pieces) if num_published is None else num_published


def _refuse_other_pieces(ranked: tuple[bytes, ...], path: Path) -> None:
    """Raise a UserError for as many pieces as the published file has, if they are others."""
    if len(ranked) == NUM_PUBLISHED and (digest := _digest(rank_lines(ranked, NUM_PUBLISHED))) != PUBLISHED:
        raise UserError(f"{path}: its pieces are not the published ones (sha256 {digest}); download it again")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _fingerprint(lines: bytes) -> str:
    """Return the sha256 of everything that decides the ids of a text, except its language."""
    ranks = b"".join(line.strip() + b"\n" for line in lines.split(b"\n") if line.strip())
    identity = json.dumps({"pattern": PATTERN, "special_tokens": SPECIAL_TOKENS}).encode()
    return _digest(ranks + identity)
