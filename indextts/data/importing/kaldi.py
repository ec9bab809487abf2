"""Read folders in the layouts of Kaldi and LibriSpeech. Each line is a key, spaces and a value.

    Kaldi        wav.scp     RECORDING PATH         a command with one recording in it counts as its path
                 text        UTTERANCE WORDS
                 utt2spk     UTTERANCE SPEAKER
                 segments    UTTERANCE RECORDING START_S END_S, optional; -1 is the end
    LibriSpeech  SPEAKER/CHAPTER/SPEAKER-CHAPTER.trans.txt with UTTERANCE WORDS, beside UTTERANCE.flac
                 train/transcripts.txt with SPEAKER_BOOK_NUMBER WORDS, and audio/SPEAKER/BOOK/ beside it,
                 as in Multilingual LibriSpeech

Commands in wav.scp are never run. Formats: https://kaldi-asr.org/doc/data_prep.html,
https://www.openslr.org/12 and https://www.openslr.org/94.
"""

from collections.abc import Iterator
from pathlib import Path

from indextts.data.importing.items import AUDIO_SUFFIXES, Items, Location, Rejection, Row, Times
from indextts.data.importing.text_lines import text_lines
from indextts.errors import UserError

TRANSCRIPTS = "*.trans.txt"
MULTILINGUAL_TRANSCRIPTS = "transcripts.txt"

Line = tuple[Location, str, str]  # where, key and value


def is_kaldi(folder: Path) -> bool:
    """Return whether a folder has files that only Kaldi's data folders have."""
    return (folder / "wav.scp").is_file() or (folder / "utt2spk").is_file()


def is_librispeech(folder: Path) -> bool:
    """Return whether a folder has transcripts of LibriSpeech."""
    return any(folder.glob(TRANSCRIPTS)) or _is_multilingual(folder / MULTILINGUAL_TRANSCRIPTS)


def _is_multilingual(transcript: Path) -> bool:
    return transcript.is_file() and (transcript.parent / "audio").is_dir()


def read_kaldi(folder: Path) -> Items:
    """Yield the utterances of a Kaldi folder in the order of `text`; a UserError if a file is missing."""
    missing = [name for name in ("wav.scp", "text", "utt2spk") if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"{folder.name} looks like a Kaldi data folder without {', '.join(missing)}; add these files, or "
            "pass another --layout"
        )
    paths = _table(folder / "wav.scp")
    speakers = _table(folder / "utt2spk")
    segments = _table(folder / "segments") if (folder / "segments").is_file() else None
    for line in _lines(folder / "text"):
        if isinstance(line, Rejection):
            yield line
            continue
        where, key, text = line
        recording, times = key, None
        if segments is not None:
            found = _segment(segments.get(key, ""))
            if found is None:
                yield Rejection(
                    where, "bad_time", f"{key} has no line UTTERANCE RECORDING START END in segments"
                )
                continue
            recording, times = found
        audio = _path(paths.get(recording, ""))
        if not audio:
            reason = f"{recording} has no path in wav.scp; write the path of its recording, and no command"
            yield Rejection(where, "missing_audio", reason)
            continue
        yield Row(
            where,
            audio,
            text,
            speakers.get(key) or None,
            id=key,
            recording=recording if times else None,
            times=times,
        )


def read_librispeech(root: Path) -> Items:
    """Yield the utterances of all transcripts below a folder, and rejections."""
    multilingual = [path for path in root.rglob(MULTILINGUAL_TRANSCRIPTS) if _is_multilingual(path)]
    for transcript in [*sorted(root.rglob(TRANSCRIPTS)), *sorted(multilingual)]:
        for line in _lines(transcript):
            if isinstance(line, Rejection):
                yield line
                continue
            where, key, text = line
            if transcript.name == MULTILINGUAL_TRANSCRIPTS:
                speaker, chapter = [*key.split("_"), ""][:2]
                folder = transcript.parent / "audio" / speaker / chapter
            else:
                speaker, _, chapter = transcript.name.partition(".")[0].partition("-")
                folder = transcript.parent
            recording = f"{speaker}-{chapter}" if chapter else None
            yield Row(where, "", text, speaker or None, id=key, recording=recording, folders=(folder,))


def _lines(path: Path) -> Iterator[Line | Rejection]:
    for where, line in text_lines(path):
        if isinstance(line, Rejection):
            yield line
        elif line.strip():
            key, *value = line.split(maxsplit=1)
            yield where, key, " ".join(value).strip()


def _table(path: Path) -> dict[str, str]:
    """Return the values of a file by their keys, without broken lines."""
    return {line[1]: line[2] for line in _lines(path) if not isinstance(line, Rejection)}


def _segment(value: str) -> tuple[str, Times] | None:
    """Return recording, start and end; None if they are absent. spans.py decides whether they are a span."""
    words = value.split()
    try:
        recording, (start_s, end_s) = words[0], map(float, words[1:3])
    except (IndexError, ValueError):
        return None
    return recording, (start_s, end_s, "s")


def _path(value: str) -> str:
    """Return the path in a value of wav.scp; "" if there is not exactly one in a command."""
    if not value.endswith("|"):
        return value
    words = [word for word in value.split() if Path(word).suffix.lower() in AUDIO_SUFFIXES]
    return words[0] if len(words) == 1 else ""
