"""The text front ends of the official programs, written from the description of their published rules.

IndexTTS-2.0:

    text -> normaliser, Chinese or English -> map of marks -> split around CJK characters -> upper case
      -> pieces -> segments, cut after the end of a sentence, else a comma, else a dash, else anywhere

Numbers are read digit by digit, which is enough to see which language reads them.

IndexTTS-2.5, for Amharic and Arabic; tests/test_text_byte_level.py proves its first two steps on vectors:

    text of a segment -> map of marks -> the language's tag before it
      -> pieces of a rank file, whose special tokens follow its pieces -> id 1 at the end
"""

import base64
import re
from functools import lru_cache
from itertools import pairwise

import sentencepiece
import tiktoken

from indextts.text.byte_level import PATTERN
from indextts.text.official_front_end import prepare
from indextts.text.special_tokens import SPECIAL_TOKENS

IDEOGRAPH = re.compile("[\u4e00-\u9fff]")
CJK = re.compile(
    "([\u1100-\u11ff\u2e80-\ua4cf\ua840-\ud7af\uf900-\ufaff\ufe30-\ufe4f\uff65-\uffdc\U00020000-\U0002ffff])"
)
LATIN = re.compile("[A-Za-z]")
CHINESE_DIGITS = dict(zip("0123456789", "零一二三四五六七八九", strict=True))
NUMBER_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
ENGLISH_DIGITS = {digit: f" {word} " for digit, word in zip("0123456789", NUMBER_WORDS, strict=True)}
MARKS = {mark: "," for mark in "：；;，、:"}
MARKS |= {"。": ".", "！": "!", "？": "?", "\n": " ", **{dash: "-" for dash in "·—～~"}}
MARKS |= {quote: "'" for quote in "\"'“”‘’«»《》【】「」『』()（）[]<>"}

MAX_PIECES = 120  # of a segment
CUTS = ({".", "!", "?", "▁.", "▁?", "▁..."}, {",", "▁,"}, {"-", "▁-"})


def official_input(text: str) -> str:
    """Return the input of SentencePiece for a text."""
    if len(text.strip()) == 1:
        return text
    is_chinese = bool(IDEOGRAPH.search(text)) or not LATIN.search(text)
    digits = CHINESE_DIGITS if is_chinese else ENGLISH_DIGITS
    read = re.sub(r"(^|[.!?…] ?)'", r"\1''", text)  # rules for abbreviations and quotes; moves others
    read = "".join(digits.get(char, char) for char in read)
    if is_chinese:
        read = read.replace("$", ".")
    read = re.sub(r"\.{3}|,{3}|……", "…", read)
    read = "".join(MARKS.get(char, char) for char in read)
    return " ".join(part.strip().upper() for part in CJK.split(read) if part.strip())


def official_pieces(text: str, model: bytes) -> list[str]:
    """Return the pieces of a text; characters that the model does not know as they are."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return list(processor.encode(official_input(text), out_type=str))


def official_segments(pieces: list[str], cuts: tuple[set[str], ...] = CUTS) -> list[list[str]]:
    """Return the pieces in segments of at most MAX_PIECES."""
    if len(pieces) <= MAX_PIECES:
        return [pieces]
    if not cuts:
        return [pieces[at : at + MAX_PIECES] for at in range(0, len(pieces), MAX_PIECES)]
    ends = [at + 1 for at, piece in enumerate(pieces) if piece in cuts[0]]
    bounds = [0, *ends] if ends and ends[-1] == len(pieces) else [0, *ends, len(pieces)]
    parts = [pieces[start:end] for start, end in pairwise(bounds)]
    return [segment for part in parts for segment in official_segments(part, cuts[1:])]


def official_ids_of_2_5(text: str, rank_file: bytes, language: str = "am") -> list[int]:
    """Return the ids of a text that needs no cut, in Amharic or another language without rules."""
    tagged = f"<|{language}|> {prepare(text, language)}"
    return [*official_encoding(rank_file).encode(tagged, allowed_special="all"), 1]


@lru_cache(maxsize=2)
def official_encoding(rank_file: bytes) -> tiktoken.Encoding:
    ranks = {}
    for line in rank_file.splitlines():
        piece, rank = line.split()
        ranks[b"" if piece == b"=" else base64.b64decode(piece)] = int(rank)
    special = {name: len(ranks) + number for number, name in enumerate(SPECIAL_TOKENS)}
    return tiktoken.Encoding("ranks", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)
