"""Manifests: UTF-8 JSON lines, with one utterance or one pair per line.

    UTTERANCES   manifest.jsonl, train_manifest.jsonl, val_manifest.jsonl

    {"id": "spk000_000012",             unique in the file; any characters
     "audio": "audio/spk000_000012.wav",   relative to the manifest's folder, or absolute
     "text": "ሰላም ለዓለም።",
     "speaker": "spk000",
     "duration": 3.25,                  seconds
     "language": "am",                  optional, else that of the project
     "recording": "video_17",           optional, the file or video that this is a part of
     "original": "/data/a.wav",         optional, the recording that an import trimmed or set to a loudness
     "provenance": {"kind": "heard", "by": ["mms-am"], ...},   optional, where the text comes from: Provenance
     "features": "features/0f3a5d….json",   after preprocessing: the feature store, relative to the manifest
     "features_key": "9c56cc51b3…",     after preprocessing: sha256 of the recording, its key in the store
     "code_len": 162}                   after preprocessing: semantic codes of the utterance

    PAIRS        train_pairs.jsonl, val_pairs.jsonl

    {"id": "TARGET__PROMPT", "speaker": "spk000",
     "prompt_id": "spk000_000001", "target_id": "spk000_000012",
     "prompt_key": "e3b0c44298…", "target_key": "9c56cc51b3…",        their features_key
     "target_text": "ሰላም ለዓለም።", "target_code_len": 162,
     "target_duration": 3.25, "prompt_duration": 5.1,                seconds
     "features": "features/0f3a5d….json",   the feature store, relative to the folder of the pairs file
     "target_text_origin": "agreed"}    one of TextOrigin; absent for a text that came with the recording

Other fields and blank lines are ignored. Anything else that is invalid raises a UserError with file and line.
A manifest has no text ids: the index beside a pairs file (pair_index.py) has those of one tokenizer.
"""

import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, Field, ValidationError

from indextts.errors import UserError
from indextts.system.json_lines import read_json_lines, sample_json_lines, shown_value, write_json_lines

UTTERANCE_FIELDS = ("id", "audio", "text", "speaker", "duration")

_FEATURE_FIELDS = ("features", "features_key", "code_len")
_KEY = re.compile("[0-9a-f]{64}")
_PREDECESSOR_FIELDS = {"codes_path", "target_codes_path", "condition_path", "prompt_condition_path"}
_MAX_NUMBER = 1e9  # excludes infinity and integers that a float cannot represent


TextOrigin = Literal["given", "reviewed", "agreed", "heard", "aligned"]
TEXT_ORIGINS: tuple[TextOrigin, ...] = get_args(TextOrigin)


class Provenance(BaseModel, frozen=True, extra="forbid"):
    """Origin of the text of an utterance.

    Args:
        kind: given: with the recording; heard: a recognizer wrote it; aligned: it was given without times.
        by: names of the recognizers; the text is what the first heard, or what it aligned.
        disagreement: edits between what two recognizers heard, over the length of the longer; None for one.
        score: fit of the text to the sound by a CTC model, in nats per letter, at most 0.
        other: what the second recognizer heard, or the text nearby that may belong to the clip.
        is_doubtful: later stages use the clip only if a person keeps it.
        is_reviewed: a person confirmed or corrected the text.
    """

    kind: Literal["given", "heard", "aligned"]
    by: tuple[str, ...] = ()
    disagreement: float | None = Field(None, ge=0)
    score: float | None = None
    other: str = ""
    is_doubtful: bool = False
    is_reviewed: bool = False

    @property
    def record(self) -> dict[str, object]:
        """The object in a manifest."""
        return self.model_dump(mode="json", exclude_defaults=True)


@dataclass(frozen=True, slots=True)
class Utterance:
    """One recorded sentence; `features`, `num_codes` and `features_key` are None before preprocessing."""

    id: str
    audio: Path
    text: str
    speaker: str
    duration_s: float
    language: str = ""  # ISO 639 code; "" if the line has none
    features: Path | None = None
    num_codes: int | None = None
    features_key: str | None = None
    recording: str | None = None  # the source file; all its utterances are on the same side of the split
    original: str | None = None  # the recording that `audio` was made from, if an import changed it
    provenance: Provenance | None = None  # None if the text came with the recording

    @property
    def is_doubtful(self) -> bool:
        """A program found the text and doubts it, and no person has confirmed it."""
        found = self.provenance
        return found is not None and found.is_doubtful and not found.is_reviewed

    @property
    def text_origin(self) -> TextOrigin:
        """The best evidence for the text: `agreed` if two recognizers heard it, `heard` if one did."""
        found = self.provenance
        if found is None or found.is_reviewed:
            return "given" if found is None else "reviewed"
        return "agreed" if found.kind == "heard" and len(found.by) > 1 else found.kind


@dataclass(frozen=True, slots=True)
class Pair:
    """A prompt and a target utterance of one speaker, both in the feature store `features`."""

    id: str
    speaker: str
    prompt_id: str
    target_id: str
    target_text: str
    target_num_codes: int
    target_duration_s: float
    prompt_duration_s: float
    features: Path
    prompt_key: str
    target_key: str
    target_text_origin: TextOrigin = "given"


ItemT = TypeVar("ItemT", Utterance, Pair)


def read_utterances(path: Path) -> list[Utterance]:
    """Return the utterances of a manifest, raw or preprocessed, with absolute paths.

    Raises:
        UserError: the file is invalid; the message has the first invalid line.
    """
    return [utterance for _, utterance in read_numbered_utterances(path)]


def read_numbered_utterances(path: Path) -> list[tuple[int, Utterance]]:
    """Return utterances as `read_utterances`, each with its line number for messages."""
    return _read_unique(path, UTTERANCE_FIELDS, _utterance)


def read_pairs(path: Path) -> list[Pair]:
    """Return the pairs of a pairs file, with absolute paths.

    Raises:
        UserError: the file is invalid; the message has the first invalid line.
    """
    return [pair for _, pair in _read_unique(path, PAIR_FIELDS, _pair)]


def stream_pairs(path: Path) -> Iterator[tuple[Pair, str]]:
    """Yield the pairs of a pairs file, each with its `features` as written; does not compare ids.

    Raises:
        UserError: a line is invalid.
    """
    for line in _lines(path, PAIR_FIELDS):
        yield _pair(line), line.string("features")


def resolved_path(manifest: Path, written: str) -> Path:
    """Return the absolute path for a path as written in a manifest."""
    return _absolute(_folder(manifest), written)


def sample_pairs(path: Path, max_pairs: int) -> tuple[int, list[Pair]]:
    """Return the number of pairs of a file, and at most `max_pairs` evenly spaced ones; fast for any file.

    Raises:
        UserError: a sampled line is invalid.
    """
    total, records = sample_json_lines(path, max_pairs)
    return total, [_pair(line) for line in _lines(path, PAIR_FIELDS, records)]


def read_texts(path: Path) -> list[str]:
    """Return the texts of a manifest in file order, without doubtful transcripts; checks no other field.

    Raises:
        UserError: the file or a line cannot be read, or has no text.
    """
    texts = []
    for line in _lines(path, needed=("text",)):
        line.refuse_pair()
        text, found = line.string("text"), line.provenance()
        if found is None or found.is_reviewed or not found.is_doubtful:
            texts.append(text)
    return texts


def read_hours(path: Path) -> float | None:
    """Return the hours of speech in a manifest; None if a line has no duration.

    Raises:
        UserError: the file or a line cannot be read, or a duration is invalid.
    """
    seconds = 0.0
    for line in _lines(path, needed=("text",)):
        if not line.has("duration"):
            return None
        seconds += line.seconds("duration")
    return seconds / 3600


def write_utterances(path: Path, utterances: Iterable[Utterance], *, keeps_links: bool = False) -> None:
    """Write a manifest through a temporary file; paths become relative to its folder.

    Args:
        keeps_links: leave the paths of recordings outside the folder absolute.

    Raises:
        UserError: the file cannot be written.
    """
    folder = _folder(path)
    records = (_utterance_record(utterance, folder, keeps_links) for utterance in utterances)
    write_json_lines(path, records)


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Write a pairs file through a temporary file; paths become relative to its folder.

    Raises:
        UserError: the file cannot be written.
    """
    folder = _folder(path)
    write_json_lines(path, (_pair_record(pair, folder) for pair in pairs))


@dataclass(frozen=True, slots=True)
class _Line:
    """JSON object of a line, with accessors that raise a UserError with the place of an invalid value."""

    manifest: Path
    number: int  # from 1
    folder: Path  # of the manifest
    record: dict[str, object]
    needed: Collection[str]  # required fields
    shared_paths: dict[str, Path]

    @property
    def where(self) -> str:
        return f"{self.manifest}:{self.number}"

    def string(self, name: str) -> str:
        value = self._present(name)
        if not isinstance(value, str):
            raise UserError(f"{self.where}: {name} is {shown_value(value)}, it must be a string")
        if not value.strip():
            raise UserError(f"{self.where}: {name} is blank; fill it in or remove the line")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"{self.where}: {name} contains a lone surrogate (half a character); correct it"
            ) from None
        return value

    def shared_string(self, name: str) -> str:
        return sys.intern(self.string(name))  # thousands of lines have the same, which saves memory

    def path(self, name: str) -> Path:
        value = self.string(name)
        if "\0" in value:
            raise UserError(f"{self.where}: {name} contains a NUL character; remove it")
        return _absolute(self.folder, value)

    def shared_path(self, name: str) -> Path:
        value = self.string(name)
        if value not in self.shared_paths:
            self.shared_paths[value] = self.path(name)
        return self.shared_paths[value]

    def seconds(self, name: str) -> float:
        value = self._present(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < _MAX_NUMBER:
            raise UserError(
                f"{self.where}: {name} is {shown_value(value)}, it must be a number of seconds above 0"
            )
        return float(value)

    def count(self, name: str) -> int:
        value = self._present(name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < _MAX_NUMBER:
            raise UserError(f"{self.where}: {name} is {shown_value(value)}, it must be an integer above 0")
        return value

    def key(self, name: str) -> str:
        value = self.shared_string(name)
        if not _KEY.fullmatch(value):
            raise UserError(
                f"{self.where}: {name} is {shown_value(value)}, it must be a sha256 of 64 hex digits; "
                "preprocess the manifest again"
            )
        return value

    def provenance(self) -> Provenance | None:
        value = self.record.get("provenance")
        try:
            return None if value is None else Provenance.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, ("provenance", *first["loc"])))
            raise UserError(f"{self.where}: {field}: {first['msg']}; correct or remove it") from None

    def text_origin(self) -> TextOrigin:
        value = self.record.get("target_text_origin", "given")
        found = next((origin for origin in TEXT_ORIGINS if origin == value), None)
        if found is None:
            raise UserError(
                f"{self.where}: target_text_origin is {shown_value(value)}, it must be one of "
                f"{', '.join(TEXT_ORIGINS)}"
            )
        return found

    def has(self, name: str) -> bool:
        return self.record.get(name) is not None

    def refuse_pair(self) -> None:
        if "target_id" in self.record:
            raise UserError(
                f"{self.where}: this is a pairs file; use the manifest of utterances that it was built from"
            )

    def refuse_utterance(self) -> None:
        if "target_id" not in self.record and "audio" in self.record and "text" in self.record:
            raise UserError(
                f"{self.where}: this is a manifest of utterances; build a pairs file from it with "
                "tools/build_gpt_prompt_pairs.py"
            )

    def refuse_predecessor(self) -> None:
        found = sorted(_PREDECESSOR_FIELDS.intersection(self.record))
        if found:
            raise UserError(
                f"{self.where}: {found[0]} belongs to the features of another program; preprocess the "
                "recordings with tools/preprocess_data.py"
            )

    def _present(self, name: str) -> object:
        if name in self.record:
            return self.record[name]
        raise UserError(
            f"{self.where}: the field {name!r} is missing, a line requires {', '.join(self.needed)}"
        )


PAIR_FIELDS: dict[str, Callable[[_Line, str], Any]] = {  # in the order of the fields of Pair
    "id": _Line.string,
    "speaker": _Line.shared_string,
    "prompt_id": _Line.shared_string,
    "target_id": _Line.shared_string,
    "target_text": _Line.shared_string,
    "target_code_len": _Line.count,
    "target_duration": _Line.seconds,
    "prompt_duration": _Line.seconds,
    "features": _Line.shared_path,
    "prompt_key": _Line.key,
    "target_key": _Line.key,
}


def _utterance(line: _Line) -> Utterance:
    line.refuse_predecessor()
    line.refuse_pair()
    is_preprocessed = line.has("features")
    if any(line.has(name) != is_preprocessed for name in _FEATURE_FIELDS):
        raise UserError(
            f"{line.where}: some of the fields {', '.join(_FEATURE_FIELDS)} are missing; preprocess the "
            "manifest again"
        )
    return Utterance(
        id=line.string("id"),
        audio=line.path("audio"),
        text=line.string("text"),
        speaker=line.shared_string("speaker"),
        duration_s=line.seconds("duration"),
        language=line.shared_string("language") if line.has("language") else "",
        features=line.shared_path("features") if is_preprocessed else None,
        num_codes=line.count("code_len") if is_preprocessed else None,
        features_key=line.key("features_key") if is_preprocessed else None,
        recording=line.shared_string("recording") if line.has("recording") else None,
        original=line.string("original") if line.has("original") else None,
        provenance=line.provenance(),
    )


def _pair(line: _Line) -> Pair:
    line.refuse_predecessor()
    line.refuse_utterance()
    values = [read(line, name) for name, read in PAIR_FIELDS.items()]
    values.append(line.text_origin())
    return Pair(*values)


def _read_unique(
    path: Path, needed: Collection[str], parse: Callable[[_Line], ItemT]
) -> list[tuple[int, ItemT]]:
    items = []
    number_of: dict[str, int] = {}
    for line in _lines(path, needed):
        item = parse(line)
        first = number_of.setdefault(item.id, line.number)
        if first != line.number:
            raise UserError(
                f"{line.where}: line {first} already has the id {item.id!r}; give each line a unique id"
            )
        items.append((line.number, item))
    return items


def _lines(
    path: Path,
    needed: Collection[str],
    records: Iterable[tuple[int, dict[str, object]]] | None = None,
) -> Iterator[_Line]:
    """Yield the lines of a manifest, or of `records` if they are given."""
    folder = _folder(path)
    shared_paths: dict[str, Path] = {}
    for number, record in read_json_lines(path) if records is None else records:
        yield _Line(path, number, folder, record, needed, shared_paths)


def _utterance_record(utterance: Utterance, folder: Path, keeps_links: bool) -> dict[str, object]:
    is_link = keeps_links and not utterance.audio.is_relative_to(folder)
    record: dict[str, object] = {
        "id": utterance.id,
        "audio": str(utterance.audio) if is_link else os.path.relpath(utterance.audio, folder),
        "text": utterance.text,
        "speaker": utterance.speaker,
        "duration": utterance.duration_s,
    }
    if utterance.language:
        record["language"] = utterance.language
    if utterance.recording is not None:
        record["recording"] = utterance.recording
    if utterance.original is not None:
        record["original"] = utterance.original
    if utterance.provenance is not None:
        record["provenance"] = utterance.provenance.record
    if utterance.features is not None:
        record["features"] = os.path.relpath(utterance.features, folder)
        record["features_key"] = utterance.features_key
        record["code_len"] = utterance.num_codes
    return record


def _pair_record(pair: Pair, folder: Path) -> dict[str, object]:
    values = (getattr(pair, field.name) for field in fields(pair))
    record: dict[str, object] = dict(zip(PAIR_FIELDS, values, strict=False))  # the last field is optional
    record["features"] = os.path.relpath(pair.features, folder)
    if pair.target_text_origin != "given":
        record["target_text_origin"] = pair.target_text_origin
    return record


def _absolute(folder: Path, written: str) -> Path:
    return Path(os.path.normpath(f"{folder}/{written}" if not written.startswith("/") else written))


def _folder(path: Path) -> Path:
    """Return the base folder of the manifest's relative paths, with symlinks resolved because of `..`."""
    return path.parent.resolve()
