"""Preparation of a text for IndexTTS-2.5 as its official program does it, and its cutting into segments.

    text -> map of characters -> lower or upper case -> <word|sound> wrapped -> <|tags|> in upper case
         -> segments of at most so many tokens, cut after marks, else between any two characters

The official program also reads out numbers in Chinese, English, Japanese and Spanish, and separates Japanese
words; this module does not. In Amharic there is no such difference.
"""

import re
from collections.abc import Callable, Iterator

_MAP = {
    **dict.fromkeys("：；;，、:", ","),
    **dict.fromkeys("·—～~", "-"),
    **dict.fromkeys(("...", ",,,", "……"), "…"),
    **dict.fromkeys("\"'`´‘’‚‛“”„‟′″‹›«»()（）[]{}【】《》〈〉「」『』", "'"),
    "。": ".",
    "！": "!",
    "？": "?",
    "\n": " ",
}
_MAPPED = re.compile("|".join(re.escape(key) for key in _MAP))
_LOWER_CASE = frozenset(("zh", "zhen", "en", "ja"))
_UPPER_CASE = frozenset(("es",))
_PRONUNCIATION = re.compile(r"<([^<>|]+)\|([^<>|]+)>")
_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_KANA = re.compile("[\u3040-\u30ff]")
_TAG = re.compile(r"<\|.*?\|>")

_WRAPPED = re.compile(r"(<\|SPECIAL_TOKEN_([12])\|>.*?<\|SPECIAL_TOKEN_\2\|>)")
_AFTER_MARK = re.compile(r"(?<=[，。！？、；：,.!?;:\n])")


def prepare(text: str, language: str) -> str:
    """Return what is encoded for `text`; a tag that the text itself has is no special token any more."""
    text = _MAPPED.sub(lambda match: _MAP[match[0]], text)
    if language in _LOWER_CASE:
        text = text.lower()
    elif language in _UPPER_CASE:
        text = text.upper()
    text = _PRONUNCIATION.sub(_wrapped, text)
    return _TAG.sub(lambda match: match[0].upper(), text)


def _wrapped(match: re.Match[str]) -> str:
    """Return the sound of <word|sound> between the special tokens for pinyin or for phonemes."""
    word, sound = match[1], match[2].upper()
    if _KANA.search(sound):
        return f" {sound} "
    number = 2 if _IDEOGRAPH.search(word) else 1
    return f"<|SPECIAL_TOKEN_{number}|>{sound}<|SPECIAL_TOKEN_{number}|>"


def cut_into_segments(text: str, max_tokens: int, count: Callable[[str], int]) -> list[str]:
    """Return the segments of a prepared text; joined they are the text.

    Args:
        max_tokens: of a segment, without the language's tag.
        count: returns the number of tokens of a part alone.
    """
    if count(text) <= max_tokens:
        return [text]
    segments = [""]
    for part in _parts(text, max_tokens, count):
        if segments[-1] and count(segments[-1] + part) > max_tokens:
            segments.append("")
        segments[-1] += part
    return segments


def _parts(text: str, max_tokens: int, count: Callable[[str], int]) -> Iterator[str]:
    """Yield the smallest parts that a segment is made of."""
    position = 0
    for wrapped in _WRAPPED.finditer(text):
        yield from _parts_at_marks(text[position : wrapped.start()], max_tokens, count)
        yield wrapped[0]
        position = wrapped.end()
    yield from _parts_at_marks(text[position:], max_tokens, count)


def _parts_at_marks(text: str, max_tokens: int, count: Callable[[str], int]) -> Iterator[str]:
    for clause in filter(None, _AFTER_MARK.split(text)):
        if count(clause) <= max_tokens:
            yield clause
            continue
        part = ""
        for char in clause:
            if part and count(part + char) > max_tokens:
                yield part
                part = ""
            part += char
        yield part
