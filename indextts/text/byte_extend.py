"""Append pieces of an Ethiopic language to a byte-level tokenizer; other texts keep their ids exactly.

The pieces are learned with the merging of the base: a text is first cut by the pieces of the base, then the
most frequent pair that may be joined becomes the next piece, with the next rank. So every piece is reached
from its parts, inside a word as well as behind a blank:

    blank+E1, 88, B0   pieces of the base: the blank and the first byte of a syllable are one piece
    blank+E1 88        step, learned from the texts as all others
    blank+E1 88 B0     a syllable behind a blank, then its pairs, words and endings

A new piece consists of whole Ethiopic characters, perhaps behind a blank, or is such a step. The bytes E1 88
to E1 8D begin every character from U+1200 to U+137F and no other character. So no text without them is cut
differently, whatever was learned.
"""

import heapq
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import regex

from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.text.byte_level import PATTERN, ByteLevelTokenizer, rank_lines, reserved_line, with_rank_record
from indextts.text.languages import find_language
from indextts.text.official_front_end import prepare
from indextts.text.special_tokens import RESERVED, SPECIAL_TOKENS, language_row, longest_parts

logger = logging.getLogger(__name__)

_CHUNK = regex.compile(PATTERN)
_ETHIOPIC = re.compile("[\u1200-\u137f]")
_PIECE = re.compile(rb"\x20?(?:\xe1[\x88-\x8d][\x80-\xbf])+|\x20?\xe1[\x88-\x8d]")  # characters, or a step
_LETTER = re.compile(rb"\x20?\xe1[\x88-\x8d][\x80-\xbf]?")  # or a step to it
_MIN_COUNT = 2  # of a pair; a piece that occurs once would be a whole rare word


def extended_ranks(
    base: ByteLevelTokenizer, texts: Iterable[str], target_size: int, *, only_letters: bool = False
) -> bytes:
    """Return a rank file: the pieces of the base, then pieces of `texts`, and the normaliser's record.

    The same input gives the same bytes. If the texts provide fewer pieces, a warning is logged.

    Args:
        only_letters: whether each new piece has one letter; then there may be fewer.

    Raises:
        UserError: the language is not in Ethiopic script, or the texts contain none of its letters.
    """
    words = _words(base, texts)
    wanted = target_size - base.size
    cut = [base.encoding.decode_tokens_bytes(base.encoding.encode_ordinary(word)) for word in words]
    pieces = list(_learned(cut, list(words.values()), set(base.ranked), wanted, only_letters=only_letters))
    if len(pieces) < wanted and not only_letters:
        logger.warning(
            "The tokenizer has only %d of %d pieces; the %s of the texts provide no more",
            base.size + len(pieces),
            target_size,
            counted(len(words), "different word"),
        )
    return with_rank_record(rank_lines((*base.ranked, *pieces), base.num_published), base.options.record)


def reserved_ranks(base: ByteLevelTokenizer, texts: Iterable[str]) -> bytes:
    """Return the rank file of the base with pieces of `texts` in place of its reserved special tokens.

    First come the letters, then the most frequent pairs of neighbours; a text is later written with the
    longest piece at each place, so a pair that only led to a longer piece gives up its place to the next.

    Raises:
        UserError: as for `extended_ranks`, or the base is extended.
    """
    if base.size != base.num_published + len(SPECIAL_TOKENS):
        raise UserError(f"{base.path}: is extended; --pieces reserved needs the published tokenizer")
    words = _words(base, texts)
    counts: Counter[str] = Counter()
    for word, times in words.items():
        for letter in filter(_ETHIOPIC.match, word):
            counts[letter] += times
    letters = sorted(letter for letter, count in counts.items() if count >= _MIN_COUNT)[: len(RESERVED)]
    cut = [[letter.encode() for letter in word] for word in words]
    limit = 2 * len(RESERVED)
    merges = [piece.decode() for piece in _learned(cut, list(words.values()), set(), limit)]
    pieces = [*letters, *merges]
    while len(pieces) > len(RESERVED):
        used = _uses(pieces, words)
        unused = sorted(pieces[len(letters) :], key=lambda piece: used[piece])
        surplus = len(pieces) - len(RESERVED)
        dropped = set(unused[: max(1, surplus // 4)])
        pieces = [piece for piece in pieces if piece not in dropped]
    lines = rank_lines(base.ranked, base.num_published) + reserved_line(pieces)
    return with_rank_record(lines, base.options.record)


def _uses(pieces: Sequence[str], words: Counter[str]) -> Counter[str]:
    """Return how often each piece is written, the longest at each place."""
    found: Counter[str] = Counter()
    known, longest = frozenset(pieces), max(map(len, pieces))
    for word, times in words.items():
        for part in longest_parts(word, known, longest):
            found[part] += times
    return found


def _words(base: ByteLevelTokenizer, texts: Iterable[str]) -> Counter[str]:
    """Return the parts of texts with Ethiopic letters, each with a blank that is before it."""
    language = find_language(base.options.language)
    language_row(base.options.language, base.options.language_row)  # refuses a language without a row
    if "Ethi" not in language.scripts:
        raise UserError(
            f"--language {base.options.language}: a tokenizer of IndexTTS-2.5 can be extended only for a "
            f"language in Ethiopic script; for {language.name}, train with the published one"
        )
    texts = list(texts)
    words = Counter(
        chunk
        for text in texts
        for chunk in _CHUNK.findall(base.tag[-1] + prepare(base.normalize(text), base.options.language))
        if _ETHIOPIC.search(chunk)
    )
    if not any(
        map(_ETHIOPIC.search, texts)
    ):  # as written: the spoken form of numbers has letters in any text
        raise UserError(
            f"no letter of {language.name} in the texts of the manifests; use recordings in that language"
        )
    return words


def _learned(
    cut: list[list[bytes]], times: Sequence[int], known: set[bytes], limit: int, *, only_letters: bool = False
) -> Iterator[bytes]:
    """Yield up to `limit` pieces in the order in which they are learned: the most frequent pair first.

    `cut`, the parts of each word, and `known`, the pieces that are not learned again, are changed.
    """
    shape = _LETTER if only_letters else _PIECE
    counts: Counter[bytes] = Counter()
    places: defaultdict[bytes, set[int]] = defaultdict(set)  # words in which a pair is or was
    for number, parts in enumerate(cut):
        for pair in _pairs(parts, shape):
            counts[pair] += times[number]
            places[pair].add(number)
    heap = [(-count, pair) for pair, count in counts.items()]
    heapq.heapify(heap)
    while limit and heap:
        count, best = heapq.heappop(heap)
        if -count != counts[best] or best in known:
            continue  # the count has changed since: the heap has a newer entry
        if -count < _MIN_COUNT:
            return
        yield best
        known.add(best)
        limit -= 1
        changed: set[bytes] = set()
        for number in sorted(places.pop(best)):
            before, cut[number] = cut[number], _joined(cut[number], best)
            for pair in _pairs(before, shape):
                counts[pair] -= times[number]
            for pair in _pairs(cut[number], shape):
                counts[pair] += times[number]
                places[pair].add(number)
            changed.update(_pairs(before, shape), _pairs(cut[number], shape))
        for pair in changed - known:
            heapq.heappush(heap, (-counts[pair], pair))


def _pairs(parts: Sequence[bytes], shape: re.Pattern[bytes]) -> list[bytes]:
    """Return the pairs of neighbours that may become a piece, joined; several pairs may make one piece."""
    joined = (left + right for left, right in pairwise(parts))
    return [pair for pair in joined if shape.fullmatch(pair)]


def _joined(parts: Sequence[bytes], piece: bytes) -> list[bytes]:
    """Return `parts` with every pair of neighbours that makes `piece` joined, from the left."""
    result: list[bytes] = []
    for part in parts:
        if result and len(result[-1]) + len(part) == len(piece) and result[-1] + part == piece:
            result[-1] = piece
        else:
            result.append(part)
    return result
