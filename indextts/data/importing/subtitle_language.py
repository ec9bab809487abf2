"""Detect subtitles that are not transcripts of the speech: other languages and machine translations.

    name          talk.en.srt is English; talk.am-en.vtt is Amharic translated from English
    header        "Language: en" of WebVTT
    yt-dlp        talk.info.json: a URL with `tlang=` is a translation, and so are captions in the language of
                  the data set of a video in another one
    letters       the share of letters in the script of the language; for Amharic, letters of Tigrinya

Other translations into the language cannot be distinguished from transcripts.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from indextts.system.language_codes import standard_code
from indextts.text.ethiopic import MAX_TIGRINYA_SHARE, tigrinya_share
from indextts.text.languages import AMHARIC, Language

MIN_OWN_SHARE = 0.5  # of the letters: a Latin name does not make a subtitle foreign
_TAG = re.compile(r"([a-z]{2,3})(?:-([A-Za-z]{2,4}|[0-9]{3}|orig))*", re.ASCII)
_ORIGINAL = "orig"  # of yt-dlp's names: the language of the video itself
_MAX_INFO_BYTES = 32 * 2**20


def is_language_tag(text: str) -> bool:
    """Return whether the part of a file name before .srt is a language tag: am, amh, am-ET, en-US, am-en."""
    return _TAG.fullmatch(text) is not None


def foreign_by_name(path: Path, language: Language) -> str | None:
    """Return the reason to reject a subtitle file by its name, or None."""
    tag = path.stem.rpartition(".")[2]
    if tag == path.stem or not is_language_tag(tag):
        return None
    code, *parts = tag.split("-")
    if standard_code(code) != language.code:
        return f"by its name, the language is {code}; use {language.name} subtitles"
    not_translated = {_ORIGINAL, *map(str.lower, language.scripts)}
    if any(part.islower() and part not in not_translated for part in parts):
        return f"by its name, it is translated from {parts[-1]}; use a transcript"
    return None


def foreign_by_header(headers: Mapping[str, str], language: Language) -> str | None:
    """Return the reason to reject WebVTT subtitles by their header, or None."""
    code = headers.get("language", "").lower()
    if not code or standard_code(code) == language.code:
        return None
    return f"by its header, the language is {code}; use {language.name} subtitles"


def foreign_by_info(subtitles: Path, audio: Path, language: Language) -> str | None:
    """Return the reason to reject subtitles of a downloaded video by its .info.json, or None."""
    info_file = audio.with_name(f"{audio.stem}.info.json")
    try:
        if info_file.stat().st_size > _MAX_INFO_BYTES:
            return None
        info = json.loads(info_file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(info, dict):
        return None
    code = info.get("language")
    if isinstance(code, str) and code and standard_code(code) != language.code:
        return f"the video is in {code}, so {language.name} subtitles are a translation; use a transcript"
    requested = info.get("requested_subtitles")
    entry = requested.get(subtitles.stem.rpartition(".")[2]) if isinstance(requested, dict) else None
    if isinstance(entry, dict) and re.search(r"[?&]tlang=", str(entry.get("url", ""))):
        return "machine-translated subtitles (tlang in the URL); use a transcript"
    return None


def foreign_by_letters(text: str, language: Language) -> str | None:
    """Return the reason to reject the text of all subtitles by its letters, or None."""
    if language.code == AMHARIC and tigrinya_share(text) > MAX_TIGRINYA_SHARE:
        return f"{tigrinya_share(text):.1%} of the letters are Tigrinya; use Amharic subtitles"
    return foreign_by_script(text, language)


def foreign_by_script(text: str, language: Language) -> str | None:
    """Return the reason to reject a text, such as a single subtitle, by its script, or None."""
    share = language.share(text)
    return (
        f"only {share:.0%} of the letters are in the script of {language.name}; use subtitles in it"
        if share < MIN_OWN_SHARE
        else None
    )
