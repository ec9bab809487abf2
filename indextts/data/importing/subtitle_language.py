"""Which subtitles are what is said in Amharic, and which are English, Tigrinya or a machine's translation.

    by the name       talk.en.srt; talk.am-en.vtt is Amharic that was translated from English
    by the header     "Language: en" of WebVTT
    by what yt-dlp    talk.info.json: an address with `tlang=` is a translation, and captions in Amharic of a
    knows             video in another language are one too
    by the letters    the share of Ethiopic ones, and the letters of Tigrinya

A translation into Amharic that none of these show cannot be told from a transcript.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from indextts.text.ethiopic import MAX_TIGRINYA_SHARE, ethiopic_share, tigrinya_share

MIN_ETHIOPIC_SHARE = 0.5  # of the letters: a Latin name does not make a subtitle foreign
_AMHARIC = ("am", "amh")
_TAG = re.compile(r"([a-z]{2,3})(?:-([A-Za-z]{2,4}|[0-9]{3}|orig))*", re.ASCII)
_NOT_TRANSLATED = ("orig", "ethi")  # of yt-dlp's names: the language of the video itself; the script
_MAX_INFO_BYTES = 32 * 2**20


def is_language_tag(text: str) -> bool:
    """Tell whether the part of a file's name before .srt names a language: am, amh, am-ET, en-US, am-en."""
    return _TAG.fullmatch(text) is not None


def foreign_by_name(path: Path) -> str | None:
    """Return why a subtitle file is not Amharic speech by its name, None if the name does not say so."""
    tag = path.stem.rpartition(".")[2]
    if tag == path.stem or not is_language_tag(tag):
        return None
    language, *parts = tag.split("-")
    if language not in _AMHARIC:
        return f"the name says that the language is {language}, Amharic subtitles are needed"
    if any(part.islower() and part not in _NOT_TRANSLATED for part in parts):
        return f"the name says that it was translated from {parts[-1]}, a transcript is needed"
    return None


def foreign_by_header(headers: Mapping[str, str]) -> str | None:
    """Return why WebVTT subtitles are not Amharic by the lines before the first subtitle."""
    language = headers.get("language", "").lower()
    if not language or language.split("-")[0] in _AMHARIC:
        return None
    return f"their header says that the language is {language}, Amharic subtitles are needed"


def foreign_by_info(subtitles: Path, audio: Path) -> str | None:
    """Return why the subtitles of a downloaded video are a translation, by the .info.json beside it."""
    info_file = audio.with_name(f"{audio.stem}.info.json")
    try:
        if info_file.stat().st_size > _MAX_INFO_BYTES:
            return None
        info = json.loads(info_file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(info, dict):
        return None
    language = info.get("language")
    if isinstance(language, str) and language and language.split("-")[0] not in _AMHARIC:
        return f"the video is in {language}, so Amharic subtitles are a translation"
    requested = info.get("requested_subtitles")
    entry = requested.get(subtitles.stem.rpartition(".")[2]) if isinstance(requested, dict) else None
    if isinstance(entry, dict) and re.search(r"[?&]tlang=", str(entry.get("url", ""))):
        return "they were translated by a machine (tlang in the address), a transcript is needed"
    return None


def foreign_by_letters(text: str) -> str | None:
    """Return why the text of all subtitles is not Amharic by its letters."""
    if tigrinya_share(text) > MAX_TIGRINYA_SHARE:
        return f"{tigrinya_share(text):.1%} of the letters are those of Tigrinya, this is not Amharic"
    return foreign_by_script(text)


def foreign_by_script(text: str) -> str | None:
    """Return why a text is not Amharic by its script; of a single subtitle no more can be said."""
    share = ethiopic_share(text)
    return (
        f"{share:.0%} of the letters are Ethiopic, this is not Amharic"
        if share < MIN_ETHIOPIC_SHARE
        else None
    )
