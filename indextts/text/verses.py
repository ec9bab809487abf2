"""Chapter and verse of the Bible and the Quran: the book is written out, the numbers stay digits.

በማቴ 5:3            በማቴዎስ ምዕራፍ 5 ቁጥር 3
1 ቆሮ. 13:4-7       1ኛ ቆሮንቶስ ምዕራፍ 13 ቁጥር 4-7
ማቴ 5:3, 6:9        ማቴዎስ ምዕራፍ 5 ቁጥር 3, ምዕራፍ 6 ቁጥር 9
ማቴ 5               ማቴዎስ ምዕራፍ 5         a short form that is no word, or a numbered book
ዜና 2:00 ሰዓት        unchanged: a time
"""

import re
from functools import lru_cache

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.text.abbreviations import PREFIXES
from indextts.text.amharic import TABLES
from indextts.text.ethiopic import ETHIOPIC_LETTERS as L
from indextts.text.ethiopic import merge_homophones

# By the merged spelling, because writers choose freely: ዘፀ, ህዝ, ዮሀ.
_SHORT = {
    merge_homophones(form, "strict"): name
    for name, forms in TABLES["books"].items()
    for form in forms.split()
}
_FULL = frozenset(merge_homophones(name.split()[0], "strict") for name in TABLES["books"])
_NUMBERED, _ONLY_NUMBERED, _WORDS, _CHAPTERS = (
    frozenset(merge_homophones(TABLES["words"][name], "strict").split())
    for name in ("numbered_books", "only_numbered", "books_that_are_words", "names_of_chapters")
)
_KNOWN = _FULL | _SHORT.keys() | _CHAPTERS
_MORE = TABLES["words"]["second_words_of_books"].replace(" ", "|")
_WORD = rf"(?:[{L}]{{0,2}}ሱረ[{L}]*\s[{L}]+|[{L}]{{0,2}}ሱራህ?\s[{L}]+(?:-[{L}]+)?|[{L}]++)"  # or a sura's name
_PREFIX = re.compile(rf"(?:{PREFIXES}){{1,2}}?(?=[{L}]{{2}})")
_DASH = r"\s?[-\u2012-\u2014\u2212]\s?"
_VERSE = rf"\d{{1,3}}(?:{_DASH}\d{{1,3}})?(?![\d:])"
# A number behind a blank is one more verse only at the end: ማቴ 5:3, 6 ሰዎች.
_VERSES = rf"{_VERSE}(?:,{_VERSE}|, {_VERSE}(?=\s*(?:[^\w\s]|$)))*"
_ACROSS = rf"(\d{{1,3}}):(\d{{1,3}}){_DASH}(\d{{1,3}}):(\d{{1,3}})"
_PLACE = re.compile(rf"(?:{_ACROSS}|(\d{{1,3}})\s?:\s?({_VERSES}))(?![\d:]|\.\d)")
_PLACE_ONCE = re.sub(r"(?<!\\)\((?!\?)", "(?:", _PLACE.pattern)
_REFERENCE = re.compile(
    rf"(?:(?<!\d)(?P<number>[1-4])(?P<ordinal>\s?ኛው?)?\s?|(?<![{L}]))(?P<word>{_WORD})(?=[., ምዕ\d])\.?"
    rf"(?:\s?(?P<more>{_MORE})\.?)?"
    rf",?\s?(?P<chapter>ምዕ(?:ራፍ\s|\.\s?)|ም\.\s?)?(?:(?P<places>{_PLACE_ONCE}(?:,\s?{_PLACE_ONCE})*)|(?=\d{{1,3}}(?![\d:/]|[.,]\d)))"
    r"(?!\d*\s?(?:ሰ[ዓዐአኣ]ት|ደቂቃ|ገደማ))"
)


# A fast test: the words before numbers, which are hardly ever books.
_BEFORE_A_NUMBER = re.compile(rf"(?<![{L}]){_WORD}(?=\.?,?\s?(?:\d|(?:{_MORE}|ምዕራፍ|ምዕ|ም)[. ]+\d))")


def verses(text: str, _options: NormalizerOptions) -> str:
    """Return `text` with books written out and words before chapters and verses."""
    if not any(_book(word)[1] for word in _BEFORE_A_NUMBER.findall(text)):
        return text
    return _REFERENCE.sub(_reference, text)


@lru_cache(maxsize=4096)
def _book(written: str) -> tuple[str, str]:
    """Return the prefix and the merged name or short form of a book; an empty name for another word."""
    word = merge_homophones(written, "strict")
    found = None if word in _KNOWN else _PREFIX.match(written)
    prefix = found[0] if found else ""
    name = word[len(prefix) :]
    if name.startswith(("ሱረ", "ሱራ")) and " " in name:
        return prefix, name
    return (prefix, name) if name in _KNOWN else ("", "")


def _reference(match: re.Match[str]) -> str:
    number, ordinal, written, more, places = match.group("number", "ordinal", "word", "more", "places")
    prefix, word = _book(written)
    if not word:
        return match[0]
    short = _SHORT.get(word)
    is_numbered = bool(number) and merge_homophones(short or word, "strict").split()[0] in _NUMBERED
    is_alone = bool(short) and word not in _WORDS
    is_clear = bool(places) or (is_numbered and bool(short or ordinal)) or (is_alone and not number)
    if not is_clear or (word in _ONLY_NUMBERED and not (is_numbered or more)):
        return match[0]
    lead = f"{number}ኛ " if is_numbered else match[0][: match.start("word") - match.start()]
    title = lead + (
        f"{prefix}{short}".replace(f"{prefix}የሐ", f"{prefix}ሐ" if prefix else "የሐ") if short else written
    )
    if more and not merge_homophones(title, "strict").split()[-1].startswith(
        merge_homophones(more, "strict")
    ):
        title += f" {_SHORT.get(more, more)}"
    if not places:
        return f"{title} ምዕራፍ "
    chapter = "" if word in _CHAPTERS else "ምዕራፍ "
    return f"{title} {', '.join(_spoken(place, chapter) for place in _PLACE.finditer(places))}"


def _spoken(place: re.Match[str], chapter_word: str) -> str:
    if place[1]:
        return f"ከምዕራፍ {place[1]} ቁጥር {place[2]} እስከ ምዕራፍ {place[3]} ቁጥር {place[4]}"
    verse_list = place[6].replace(" ", "").replace(",", ", ")
    return f"{chapter_word}{place[5]} ቁጥር {verse_list}"
