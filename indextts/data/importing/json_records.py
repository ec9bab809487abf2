"""Bring the JSON of other programs into the form of tables: one object for each row, without inner objects.

{"audio": {"path": "1.wav", "bytes": null}}                       a recording, by its path
{"text": {"am": "...", "en": "..."}}                              texts by language
{"speaker": {"id": "sp0"}}                         a speaker, by id or name
{"messages": [{"role": "user", "content": "<audio>..."},          a chat about a recording
              {"role": "assistant", "content": "..."}], "audios": ["1.wav"]}
000.wav 000.json [000.txt]                                        WebDataset, in a folder
{"text": "...", "segments": [{"start": 0.0, "end": 1.5, "text": "..."}]}   the same, from Whisper
{"data": [{"audio": "1.wav", "text": "..."}]}                     an array in an object
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from indextts.data.importing.headers import column_of
from indextts.data.importing.items import AUDIO_SUFFIXES, SUBTITLE_SUFFIXES, Location, Rejection
from indextts.system.language_codes import standard_code

_AUDIO_MARK = re.compile(r"<\|?(?:audio|AUDIO)\|?>")
_TURNS = ("messages", "conversations")
_OF_SEGMENT = ("start", "end", "text", "speaker")
_MAX_BYTES = 2**24  # of the facts about a recording, or of the segments of one of hours


class Pairs(dict[str, object]):
    """JSON object that knows which of its fields are written twice."""

    def __init__(self, pairs: Sequence[tuple[str, object]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs] if len(self) < len(pairs) else []
        self.repeated = {name for name in names if names.count(name) > 1}


def only_list(record: dict[str, object]) -> list[object] | None:
    """Return the objects of {"data": [{...}, ...]}; None for an object that is a row."""
    lists = [value for value in record.values() if isinstance(value, list) and value]
    is_row = any(name in _TURNS or column_of(name) in ("audio", "text") for name in record)
    is_only = len(lists) == 1 and all(isinstance(each, dict) for each in lists[0])
    return lists[0] if is_only and not is_row else None


def simplify(record: dict[str, object], language: str) -> None:
    """Replace the objects in a record by their values for an import in a language."""
    for name, value in list(record.items()):
        if isinstance(value, dict) and column_of(name) == "speaker":
            record[name] = value.get("id") or value.get("name")
        elif isinstance(value, dict):
            record[name] = _value(value, language)
        elif name in _TURNS and isinstance(value, list):
            del record[name]
            _read_chat(record, [turn for turn in value if isinstance(turn, dict)])


def _value(value: dict[str, object], language: str) -> object:
    """Return the path of a recording or the text in the language; an unknown object stays."""
    if named := [value[key] for key in ("path", "filename", "audio_path") if key in value]:
        return named[0]
    texts = {standard_code(key): text for key, text in value.items()}
    return value if None in texts or not texts else texts.get(language)


def _read_chat(record: dict[str, object], turns: Sequence[dict[str, object]]) -> None:
    """Add the recording and the text of a chat: the answer, or the question that is answered by speech.

    A chat with several answers about a recording is left for a rejection, because any may be its text.
    """
    found = record.pop("audios", None)
    audios = (
        [_value(each, "") if isinstance(each, dict) else each for each in found]
        if isinstance(found, list)
        else []
    )
    said: list[tuple[bool, str]] = []  # whether it is an answer, and its text
    heard = None  # number of the first turn with speech
    for number, turn in enumerate(turns):
        content = turn.get("content", turn.get("value"))
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        parts = [part for part in parts if isinstance(part, dict)]
        spoken = [part for part in parts if part.get("type") != "text"]
        audios += [part.get("audio") or part.get("audio_url") for part in spoken]
        texts = [str(part["text"]) for part in parts if part.get("text")]
        if heard is None and (spoken or any(map(_AUDIO_MARK.search, texts))):
            heard = number
        is_answer = turn.get("role", turn.get("from")) in ("assistant", "gpt")
        said.append((is_answer, _AUDIO_MARK.sub("", " ".join(texts)).strip()))
    if heard is not None and said[heard][0]:
        record["text"] = next((text for is_answer, text in reversed(said[:heard]) if not is_answer), "")
    else:
        answers = [text for is_answer, text in said[heard or 0 :] if is_answer]
        record["text"] = answers if len(answers) > 1 else "".join(answers)
    if len(audios) == 1:
        record["audio"] = audios[0]


def is_webdataset(folder: Path) -> bool:
    """Return whether the first .json file with the name of a recording has its text."""
    _, record = next(webdataset_records(folder), (None, None))
    return isinstance(record, dict) and any(column_of(name) == "text" or name in _TURNS for name in record)


def webdataset_records(folder: Path) -> Iterator[tuple[Location, object]]:
    """Yield the objects in .json files with the names of recordings, and rejections."""
    paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    audio = {path.stem: path.name for path in reversed(paths) if path.suffix.lower() in AUDIO_SUFFIXES}
    cut = {path.name.partition(".")[0] for path in paths if path.suffix.lower() in SUBTITLE_SUFFIXES}
    for path in paths:
        if path.suffix.lower() == ".json" and path.stem in audio and path.stem not in cut:
            try:
                record = json.loads(path.read_bytes()[:_MAX_BYTES], object_pairs_hook=Pairs)
            except (ValueError, RecursionError) as error:
                yield Location(path), Rejection(Location(path), "broken_row", f"not JSON ({error})")
                continue
            segments = record.get("segments") if isinstance(record, dict) else None
            is_cut = isinstance(segments, list) and all(isinstance(each, dict) for each in segments)
            if segments and is_cut and all({"start", "end", "text"} <= each.keys() for each in segments):
                for number, segment in enumerate(segments, start=1):
                    fields = [(name, value) for name, value in segment.items() if name in _OF_SEGMENT]
                    where = Location(path, place=f"segment {number}: ")
                    yield where, Pairs([("audio", audio[path.stem]), *fields])
                continue
            if isinstance(record, dict):
                for name in [name for name in record if column_of(name) == "audio"]:
                    del record[name]  # of another machine
                record["audio"] = audio[path.stem]
            yield Location(path), record
