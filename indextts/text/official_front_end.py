"""Preparation of a text for IndexTTS-2.5 as its official program does it.

    text -> map of characters -> lower or upper case -> <word|sound> wrapped -> <|tags|> in upper case

The official program also reads out numbers in Chinese, English, Japanese and Spanish, and separates Japanese
words; this module does not. In Amharic there is no such difference.
"""

import re

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
