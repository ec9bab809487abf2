r"""Marks that nobody speaks in the texts of recordings, removed by kind.

    kind       removed                                                              stays
    markup     <i> <br> &ldquo; {\an8} **bold** == title == [[link|text]] ነው።[3]    the words, a*b, 5 < 6
    escapes    \n \t \u1230, written out: the character itself                      C:\new, path\name
    times      [00:12], 00:00:01,000 --> 00:00:02,000, 0:00:05                      በ3:30, (3:16)
    noise      [noise] <unk> {NS} (ሳቅ) *cough* ♪, by transcript_marks.toml          (በ2010 ዓ.ም.)
    labels     Speaker 1: SPEAKER_00: >> >> ABEBE: and a dash, at a line's start    - 5, HE SAID: go
    brackets   nothing: these words may be spoken, so they are only listed

A name before a colon or a word space (አበበ፡ ሰላም, ABEBE: hello) is a label only if the texts of the source
usually begin so, because a heading (Chapter 1: the end) and the first word of a text with word spaces look
alike. The same holds for a time such as 12:30 and for a name in brackets.
"""

import html
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from indextts.text.ethiopic import merge_homophones

KINDS = ("noise", "times", "labels", "markup", "escapes")
BRACKETS = "brackets"
NOTES = "\u2669\u266a\u266b\u266c\u266d\u266e\u266f\U0001f3b5\U0001f3b6\U0001f3bc"  # of music
_USUAL_SHARE, _REPEATED_SHARE, _REPEATED = 0.5, 0.1, 3  # of the texts that begin with a name, and of one name
_FEW_NAMES = 10  # texts with a name, of which none must repeat
_A_TIME = "0:00"  # stands for any time among the names
_MAX_NAME_CHARS = 32

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_NOISES, _CODES, _BESIDE, _SPOKEN = (
    frozenset(merge_homophones(" ".join(_TABLES[name].values()), "strict").split())
    for name in ("noises", "codes", "beside", "spoken")
)

_OPEN, _CLOSE = r"[\[({（【［｛]", r"[\])}）】］｝]"
_INSIDE = r"[^\[\](){}<>（）【】［］｛｝\n]"
_TIME = r"\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d{1,3})?"
_TO = r"\s*(?:-{1,2}>?|[–—→])\s*"
_STAMP = rf"(?:{_TIME}(?:{_TO}{_TIME})?|\d+(?:\.\d+)?\s?s|\d+\.\d+\s?s?{_TO}\d+\.\d+\s?s?)"
_NAME = r"[^\W\d_][\w./'’-]*(?: [\w./'’-]+){0,2}"
_ROLE = (
    r"(?:(?i:speaker|spkr?|host|guest|interviewer|interviewee|narrator)|ተናጋሪ)(?:[ _-]?#?(?:\d{1,3}|[A-Z]\b))?"
)
_LABEL = (
    rf">{{2,}}\s*(?:[A-Z][A-Z .'’]{{0,30}}:\s+)?|>\s+(?=[^\W\d])|[-‐‑–—]+(?:\s+(?=[^\s\d])|(?=[^\W\d_]))"
    rf"|{_OPEN}{_ROLE}{_CLOSE}\s*:?\s*|{_OPEN}?{_ROLE}{_CLOSE}?[^\S\n]*[:፡፦](?:[^\S\n]+|(?=\n)|(?<=\d[:፡፦])(?=[^\W\d]))"
)
_NOISE = (
    rf"{_OPEN}{{1,3}}{_INSIDE}*{_CLOSE}{{1,3}}|<(?!/?br\b)/?\w[^<>\n]{{0,40}}>|[{NOTES}]+"
    r"|(?<!\w)([*#_~+|]{1,3})[^\W_*#~+|\n][^*#_~+|\n]{0,40}\1(?!\w)"
)
_ESCAPE = r"(?P<codes>(?:\\+u[0-9a-fA-F]{4})+)|\\+(?:[nrtN]|(?P<quote>[\"'/]))"
_ENTITY = r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|#\d{1,7}|#[xX][0-9a-fA-F]{1,6});"
_BARE = r"(?:0?0:\d\d:\d\d(?:[.,]\d+)?|\d{1,2}:\d\d:\d\d[.,]\d{2,3})"  # no time of the day
_NAMED = re.compile(
    rf"(?P<time>\(?{_TIME}\)?)\s+[-–—]?\s*(?=\S)"
    rf"|(?:{_OPEN}(?P<tag>{_NAME}){_CLOSE}\s?[:፡]?|(?P<name>{_NAME}) ?(?P<mark>[:፡፦])(?!(?P=mark)))\s*(?=\S)"
)
_HEADING = re.compile(r"[A-Z][A-Za-z]*[ _]?\d+|[A-Z][A-Z .'’]*")  # or a speaker: Luke 10, HE SAID
_IN_BRACKETS = re.compile(rf"{_OPEN}{_INSIDE}*{_CLOSE}")
_ANY = re.compile(rf"[\[({{<（【［｛*&\\=_#~|+:፡፦>'‐‑–—{NOTES}-]")
_PATH = re.compile(r"\b[A-Za-z]:\\|\A[^\\]*[A-Za-z]\\+[nrt][A-Za-z][^\\]*\Z")


class Mark(NamedTuple):
    """A removed mark, or words in brackets that stay."""

    kind: str
    text: str


class Cleaned(NamedTuple):
    """A text without marks, as it was if there were none, and what was found in it."""

    text: str
    marks: tuple[Mark, ...] = ()


def clean_transcripts(texts: Iterable[str], keep: Collection[str] = ()) -> list[Cleaned]:
    """Return the texts of a source without marks, except for the kinds to keep."""
    cleaned = [clean_transcript(text, keep) for text in texts]
    names = _usual_names([each.text for each in cleaned])
    names -= {name for name in names if ("times" if name == _A_TIME else "labels") in keep}
    return [_without_name(each, names) for each in cleaned] if names else cleaned


def clean_transcript(text: str, keep: Collection[str] = ()) -> Cleaned:
    """Return a text without marks but the kinds to keep and those that only other texts reveal."""
    if not _ANY.search(text):
        return Cleaned(text)
    marks: list[Mark] = []
    cleaned = text
    for kind, signs, pattern, stays in _RULES:
        if kind in keep or not any(sign in cleaned for sign in signs):
            continue

        cleaned = pattern.sub(partial(_replaced, kind, stays, marks), cleaned)
    if marks:
        cleaned = re.sub(r" (?=[።፣፤፥፧,!?])", "", " ".join(cleaned.split()))
        cleaned = cleaned if any(map(str.isalnum, cleaned)) else ""
    found = (match for match in _IN_BRACKETS.finditer(cleaned) if any(map(str.isalnum, match[0])))
    stay = (Mark(BRACKETS, each[0]) for each in found if not _is_noise(each[0]) or _is_in_a_sentence(each))
    return Cleaned(cleaned, (*marks, *stay))


def _replaced(
    kind: str, stays: str | Callable[[re.Match[str]], str], marks: list[Mark], match: re.Match[str]
) -> str:
    if kind == "markup" and stays != "\n" and _is_noise(match[0]) and not _is_in_a_sentence(match):
        return match[0]  # a noise to keep, and not <br>
    left = match.expand(stays) if isinstance(stays, str) else stays(match)
    marks += [Mark(kind, match[0].strip())] if left != match[0] else []
    return left


def _usual_names(texts: Sequence[str]) -> set[str]:
    """Return the names, and `_A_TIME` for times, that the texts of a source usually begin with."""
    counts = Counter(found[0] for text in texts if (found := _name_of(text)))
    total = counts.total()
    if total >= max(2, _USUAL_SHARE * len(texts)):
        may_differ = max(counts.values()) > 1 or not any(map(_HEADING.fullmatch, counts))
        return {name for name, count in counts.items() if count > 1 or (total < _FEW_NAMES and may_differ)}
    repeated = {name: count for name, count in counts.items() if count >= _REPEATED and name != _A_TIME}
    return set(repeated) if sum(repeated.values()) >= _REPEATED_SHARE * len(texts) else set()


def _name_of(text: str) -> tuple[str, str] | None:
    """Return the name or `_A_TIME` before the words of a text, and the words; None without a name."""
    match = _NAMED.match(text) if _ANY.search(text, 0, _MAX_NAME_CHARS) else None
    if match is None or match.end() > _MAX_NAME_CHARS:
        return None
    rest = text[match.end() :]
    if (mark := match["mark"]) is None:
        return None if _is_noise(match[0]) else (match["tag"] or _A_TIME, rest)  # a noise may be kept
    # more of the same marks stand between words, and so may this one
    is_space = re.search(rf"[^\W\d]{mark}(?!{mark})", rest) or not (match[0][-1].isspace() or " " in rest)
    return None if is_space else (match["name"], rest)


def _without_name(cleaned: Cleaned, names: Collection[str]) -> Cleaned:
    name, rest = _name_of(cleaned.text) or ("", "")
    if name not in names:
        return cleaned
    mark = Mark("times" if name == _A_TIME else "labels", cleaned.text[: -len(rest)].strip())
    others = (each for each in cleaned.marks if each != (BRACKETS, mark.text))
    return Cleaned(rest, (*others, mark))


def _is_noise(words: str, *, is_round: bool = False) -> bool:
    found = re.findall(r"[^\W\d_]+", merge_homophones(words.lower(), "strict"))
    found = [word if word in _NOISES else word.removeprefix("የ") for word in found]
    known = _NOISES if is_round else _NOISES | _CODES
    is_known = not known.isdisjoint(found) and known | _BESIDE >= set(found)
    return is_known or "".join(found) in _NOISES


def _is_in_a_sentence(match: re.Match[str]) -> bool:
    """Return whether a noise may be a word of an English sentence: (music) and *music*, but not [music]."""
    start, end = match.span()
    around = match.string[max(0, start - 2) : start] + match.string[end : end + 2]
    words = match[0].strip("()（）*#_~+|").lower()
    return words in _SPOKEN and re.fullmatch("[A-Za-z]  [A-Za-z]", around) is not None


def _after_noise(match: re.Match[str]) -> str:
    is_empty = not any(map(str.isalnum, match[0]))
    if _is_in_a_sentence(match):
        return match[0]
    return " " if is_empty or _is_noise(match[0], is_round=match[0][0] in "(（") else match[0]


@lru_cache(maxsize=1)  # of the text whose escapes are replaced
def _has_path(text: str) -> bool:
    return bool(_PATH.search(text))


def _written_out(match: re.Match[str]) -> str:
    if _has_path(match.string):
        return match[0]
    if match["codes"] is None:
        return match["quote"] or "\n"
    units = b"".join(int(code, 16).to_bytes(2) for code in re.findall("[0-9a-fA-F]{4}", match["codes"]))
    return re.sub("[\x00-\x1f\x7f]", " ", units.decode("utf-16-be", "ignore"))


# In order: entities hide other marks, and a noise is no link, tag or emphasis.
_RULES = tuple(
    (kind, signs, re.compile(pattern, re.MULTILINE), stays)  # of a text with any of the signs
    for kind, signs, pattern, stays in (
        *2 * (("markup", "&", _ENTITY, lambda match: html.unescape(match[0])),),  # &amp;nbsp;
        ("markup", "{", r"\{\\[^{}\n]*\}", ""),
        ("escapes", "\\", _ESCAPE, _written_out),
        ("noise", f"[({{<（【［｛*#_~+|{NOTES}", _NOISE, _after_noise),
        ("times", "[{<（【［｛", rf"[\[{{<（【［｛]\s*{_STAMP}\s*[\]}}>）】］｝]:?", " "),
        ("times", "(", rf"\(\s*(?:0?0:\d\d|\d{{1,2}}:\d\d:\d\d)(?:[.,]\d+)?(?:{_TO}{_TIME})?\s*\)", " "),
        ("times", ">", rf"(?<![\w:.,])(?:\d+\n)?{_TIME}\s*--?>\s*(?:{_TIME}(?:[^\S\n]+[a-z]+:\S+)*)?", " "),
        ("times", ":", rf"(?<![\w:.,]){_BARE}(?![\w:])(?: [-–—](?= ))?", " "),
        (
            "markup",
            "<{",
            r"<!--.{0,1000}?-->|<(ref|style|script)\b[^<>]*(?<!/)>.{0,1000}?</\1>|\{\{[^{}]*\}\}",
            " ",
        ),
        ("markup", "[", r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]+)\]\]", r"\1"),
        ("markup", "[", r"\[([^\[\]\n]+)\]\((?:https?:|www\.|[/#])[^()\s]*\)", r"\1"),
        ("markup", "[", r"(?<=[^\W\d_]|[።፣፤.,!?”»])\[\d{1,3}\]", ""),
        ("markup", "<", r"(?i)</?(?:br|p|div|li|tr|h\d)\b[^<>\n]{0,300}>", "\n"),
        ("markup", "<", r"</?[A-Za-z][\w.:-]*(?:\s[^<>\n]{0,300})?/?>", ""),
        ("markup", "*", r"(?<![\w*])(\*{1,3})(?=[^\s*])([^*\n]+)(?<=\S)\1(?![\w*])", r"\2"),
        ("markup", "_~'", r"(?<!\w)(__|~~|''')(?=\S)(.{1,300}?)(?<=\S)\1(?!\w)", r"\2"),
        ("markup", "=", r"(={2,6})([^=\n]+)\1", r"\2\n"),
        ("labels", ":፡፦>-‐‑–—])", rf"^[^\S\n]*(?:{_LABEL})+", ""),
    )
)
