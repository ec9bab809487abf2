"""Recordings with equally named texts or subtitles beside them.

NAME.wav NAME.txt                      a clip and its text
NAME.mp3 NAME.srt | NAME.am.vtt ...    a long recording and its subtitles
NAME.info.json                         what yt-dlp knows of a video, if it is there
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from indextts.data.importing.audio_files import AudioFinder
from indextts.data.importing.found import AUDIO_SUFFIXES, SUBTITLE_SUFFIXES, Found, Rejection, Where
from indextts.data.importing.subtitle_language import foreign_by_name, is_language_tag
from indextts.data.importing.text_lines import BadText, whole_text


@dataclass
class _SameName:
    """The files of one folder that share a name, suffixes apart."""

    audio: list[Path] = field(default_factory=list)
    texts: list[Path] = field(default_factory=list)
    subtitles: list[Path] = field(default_factory=list)


def found_files(root: Path, finder: AudioFinder) -> Iterator[Found | Rejection]:
    """Yield the recordings with a text or subtitles below a folder, and what stands alone, by name.

    Args:
        root: a folder, or one recording or subtitle file: then its own name alone counts.
    """
    base = root if root.is_dir() else root.parent
    for (folder, stem), files in sorted(_groups(root).items()):
        relative = folder.relative_to(base)
        key = str(relative / stem)
        if files.audio:
            yield from _with_audio(files, key, "_".join([*relative.parts, stem]), finder)
        else:
            for path in [*files.texts, *files.subtitles]:
                yield Rejection(Where(path), "no_audio", "there is no recording of that name beside it")


def _groups(root: Path) -> dict[tuple[Path, str], _SameName]:
    groups: dict[tuple[Path, str], _SameName] = defaultdict(_SameName)
    subtitles = []
    for path in _files(root if root.is_dir() else root.parent, deep=root.is_dir()):
        suffix = path.suffix.lower()
        if suffix in AUDIO_SUFFIXES:
            groups[path.parent, path.stem].audio.append(path)
        elif suffix == ".txt":
            groups[path.parent, path.stem].texts.append(path)
        elif suffix in SUBTITLE_SUFFIXES:
            subtitles.append(path)
    for path in subtitles:  # now that it is known whether part.one.srt is of part.one.mp3
        name, _, tag = path.stem.rpartition(".")
        is_tagged = name and (path.parent, path.stem) not in groups and is_language_tag(tag)
        groups[path.parent, name if is_tagged else path.stem].subtitles.append(path)
    if root.is_dir():
        return groups
    return {
        key: files for key, files in groups.items() if root in (*files.audio, *files.texts, *files.subtitles)
    }


def _files(folder: Path, *, deep: bool) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):  # symlinks to folders are not followed
        folders[:] = [name for name in folders if deep and not name.startswith(".") and name != "__MACOSX"]
        yield from (Path(place) / name for name in sorted(names) if not name.startswith("."))


def _with_audio(files: _SameName, key: str, id: str, finder: AudioFinder) -> Iterator[Found | Rejection]:
    audio, *others = sorted(
        files.audio, key=lambda path: (path.suffix.lower() not in (".wav", ".flac"), path)
    )
    for other in others:
        yield Rejection(Where(other), "duplicate", f"{audio.name} has the same name and is taken")
    if not finder.may_read(audio):
        yield Rejection(Where(audio), "outside", "the file lies outside of the folders that may be read")
        return
    usable = []
    for path in files.subtitles:
        reason = foreign_by_name(path) if path.stem != audio.stem else None
        if reason:
            yield Rejection(Where(path), "language", reason)
        else:
            usable.append(path)
    if usable:
        # SRT first: players convert WebVTT to it, and leave its rolling lines and word times out.
        subtitles, *unused = sorted(usable, key=lambda path: (path.suffix.lower() != ".srt", path))
        for path in unused:
            yield Rejection(Where(path), "duplicate", f"{subtitles.name} is taken")
        yield Found(key, id, audio, Where(subtitles), subtitles=subtitles)
    elif files.texts:
        yield _with_text(audio, files.texts[0], key, id)
    elif not files.subtitles:
        yield Rejection(Where(audio), "no_text", "there is no text or subtitles of that name beside it")


def _with_text(audio: Path, text_file: Path, key: str, id: str) -> Found | Rejection:
    text = whole_text(text_file)
    if isinstance(text, BadText):
        return Rejection(Where(text_file), text.code, text.reason)
    if not text:
        return Rejection(Where(text_file), "empty_text", "the text is empty, fill it in or remove the file")
    return Found(key, id, audio, Where(text_file), text=text)
