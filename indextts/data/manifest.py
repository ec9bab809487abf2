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
     "original_text": "[ሳቅ] ሰላም",       optional, the text before an import removed marks from it
     "split": "train",                  optional, the side that the data give: train, val or test
     "license": "CC-BY-4.0",            optional, that of the recording
     "group": "names",                  optional, a group of sentences that an evaluation scores apart
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

import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)

from indextts.errors import UserError
from indextts.system.amounts import counted, listed
from indextts.system.json_lines import read_json_lines, sample_json_lines, write_json_lines
from indextts.system.yaml_files import problems_of

logger = logging.getLogger(__name__)

UTTERANCE_FIELDS = ("id", "audio", "text", "speaker", "duration")
PAIR_FIELDS = (
    *("id", "speaker", "prompt_id", "target_id", "target_text", "target_code_len", "target_duration"),
    *("prompt_duration", "features", "prompt_key", "target_key"),
)
_FEATURE_FIELDS = ("features", "features_key", "code_len")
_PREDECESSOR_FIELDS = {"codes_path", "target_codes_path", "condition_path", "prompt_condition_path"}
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_NUMBER = 1e9  # excludes infinity and integers that a float cannot represent


def _checked(value: str) -> str:
    if not value.strip():
        raise ValueError("blank; fill it in or remove the line")
    if _SURROGATE.search(value):
        raise ValueError("it contains a lone surrogate (half a character); correct it")
    return value


def _resolved(written: object, info: ValidationInfo) -> Path:
    line = info.context
    assert isinstance(line, _Line)
    if not isinstance(written, str):
        raise ValueError("it must be a string")
    if written not in line.paths:
        if "\0" in _checked(written):
            raise ValueError("it contains a NUL character; remove it")
        line.paths[written] = _absolute(line.folder, written)
    return line.paths[written]


def _text_if_any(value: object) -> object:
    """Return a text; None for anything else, which other programs write into fields of the same name."""
    return value if isinstance(value, str) and value.strip() else None


Text = Annotated[str, Strict(), AfterValidator(_checked)]
Shared = Annotated[Text, AfterValidator(sys.intern)]  # thousands of lines have the same, which saves memory
SharedIfAny = Annotated[Shared | None, BeforeValidator(_text_if_any)]
Located = Annotated[Path, BeforeValidator(_resolved)]
Seconds = Annotated[float, Strict(), Field(gt=0, lt=_MAX_NUMBER)]
Count = Annotated[int, Strict(), Field(gt=0, lt=_MAX_NUMBER)]
Key = Annotated[Shared, Field(pattern="^[0-9a-f]{64}$")]


TextOrigin = Literal["given", "reviewed", "agreed", "heard", "aligned"]
TEXT_ORIGINS: tuple[TextOrigin, ...] = get_args(TextOrigin)


class Provenance(BaseModel, frozen=True, extra="forbid"):
    """Origin of the text of an utterance."""

    kind: Literal["given", "heard", "aligned"]  # with the recording, by a recognizer, or without times
    by: tuple[str, ...] = ()  # names of the recognizers; the text is what the first heard, or what it aligned
    disagreement: float | None = Field(None, ge=0)  # edits between two readings, over the longer length
    score: float | None = None  # fit of the text to the sound by a CTC model, in nats per letter, at most 0
    other: str = ""  # what the second recognizer heard, or the text nearby that may belong to the clip
    is_doubtful: bool = False  # later stages use the clip only if a person keeps it
    is_reviewed: bool = False  # a person confirmed or corrected the text


@dataclass(frozen=True, slots=True)
class Utterance:
    """One recorded sentence; `features`, `num_codes` and `features_key` are None before preprocessing."""

    id: Text
    audio: Located
    text: Text
    speaker: Shared
    duration_s: Annotated[Seconds, Field(alias="duration")]
    language: Shared = ""  # ISO 639 code; "" if the line has none
    recording: Shared | None = None  # the source file; all its utterances are on the same side of the split
    original: Text | None = None  # the recording that `audio` was made from, if an import changed it
    provenance: Provenance | None = None  # None if the text came with the recording
    features: Located | None = None
    features_key: Key | None = None
    num_codes: Annotated[Count | None, Field(alias="code_len")] = None
    original_text: Text | None = None  # with the marks that an import removed
    split: SharedIfAny = None  # "train", "val" or "test"; None leaves it to the program
    license: SharedIfAny = None
    group: SharedIfAny = None  # that an evaluation scores apart, such as "names"

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

    id: Text
    speaker: Shared
    prompt_id: Shared
    target_id: Shared
    target_text: Shared
    target_num_codes: Annotated[Count, Field(alias="target_code_len")]
    target_duration_s: Annotated[Seconds, Field(alias="target_duration")]
    prompt_duration_s: Annotated[Seconds, Field(alias="prompt_duration")]
    features: Located
    prompt_key: Key
    target_key: Key
    target_text_origin: TextOrigin = "given"


LineT = TypeVar("LineT")
ItemT = TypeVar("ItemT", Utterance, Pair)


def read_utterances(path: Path) -> list[Utterance]:
    """Return the utterances of a manifest with absolute paths; a UserError names the first invalid line."""
    return [utterance for _, utterance in read_numbered_utterances(path)]


def read_numbered_utterances(path: Path) -> list[tuple[int, Utterance]]:
    """Return utterances as `read_utterances`, each with its line number for messages."""
    return _read_unique(path, _utterance)


def read_pairs(path: Path) -> list[Pair]:
    """Return the pairs of a pairs file with absolute paths; a UserError names the first invalid line."""
    return [pair for _, pair in _read_unique(path, _pair)]


def stream_pairs(path: Path) -> Iterator[tuple[Pair, str]]:
    """Yield pairs with their `features` as written, without comparing ids; errors as for `read_pairs`."""
    for line in _lines(path):
        yield _pair(line), line.record["features"]


def resolved_path(manifest: Path, written: str) -> Path:
    """Return the absolute path for a path as written in a manifest."""
    return _absolute(_folder(manifest), written)


def sample_pairs(path: Path, max_pairs: int) -> tuple[int, list[Pair]]:
    """Return the number of pairs and up to `max_pairs` evenly spaced ones, fast; errors as `read_pairs`."""
    total, records = sample_json_lines(path, max_pairs)
    return total, [_pair(line) for line in _lines(path, records)]


def read_texts(path: Path) -> list[str]:
    """Return the texts of a manifest in file order, without doubtful transcripts; checks no other field.

    Raises:
        UserError: the file or a line cannot be read, or has no text.
    """
    texts, ids = [], Counter[str]()
    for line in _lines(path):
        _refuse_pair(line)
        found = _parsed(_TEXT, line, needed=("text",))
        ids.update([found.id] if isinstance(found.id, str) else [])
        if found.provenance is None or found.provenance.is_reviewed or not found.provenance.is_doubtful:
            texts.append(found.text)
    if repeated := [id for id, count in ids.items() if count > 1]:
        logger.warning("%s: %s more than once: %s", path, counted(len(repeated), "id"), listed(repeated))
    return texts


def read_hours(path: Path) -> float | None:
    """Return the hours in a manifest, None if a line has no duration; errors as for `read_texts`."""
    seconds = 0.0
    for line in _lines(path):
        if line.record.get("duration") is None:
            return None
        seconds += _parsed(_DURATION, line, needed=("duration",)).duration
    return seconds / 3600


def write_utterances(path: Path, utterances: Iterable[Utterance], *, keeps_links: bool = False) -> None:
    """Write a manifest aside and rename it, with relative paths; a UserError if that fails.

    Args:
        keeps_links: leave the paths of recordings outside the folder absolute.
    """
    folder = _folder(path)
    records = (_utterance_record(utterance, folder, keeps_links) for utterance in utterances)
    write_json_lines(path, records)


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Write a pairs file aside and rename it, paths relative to its folder; a UserError if that fails."""
    folder = _folder(path)
    records = (
        _PAIR.dump_python(pair, by_alias=True, exclude_defaults=True)
        | {"features": os.path.relpath(pair.features, folder)}
        for pair in pairs
    )
    write_json_lines(path, records)


@dataclass(frozen=True, slots=True)
class _Text:
    """The fields that `read_texts` needs."""

    text: Text
    provenance: Provenance | None = None
    id: object = None


@dataclass(frozen=True, slots=True)
class _Duration:
    """The field that `read_hours` needs."""

    duration: Seconds


_UTTERANCE, _PAIR = TypeAdapter(Utterance), TypeAdapter(Pair)
_TEXT, _DURATION = TypeAdapter(_Text), TypeAdapter(_Duration)


@dataclass(frozen=True, slots=True)
class _Line:
    """JSON object of a line."""

    manifest: Path
    number: int  # from 1
    record: dict[str, Any]
    folder: Path  # of the manifest
    paths: dict[str, Path]  # those of all lines, as written: thousands have the same feature store

    @property
    def where(self) -> str:
        return f"{self.manifest}:{self.number}"


def _parsed(adapter: TypeAdapter[LineT], line: _Line, needed: tuple[str, ...]) -> LineT:
    """Return the content of a line; fields that are null and may be absent count as absent."""
    record = {name: value for name, value in line.record.items() if value is not None or name in needed}
    try:
        return adapter.validate_python(record, context=line)
    except ValidationError as error:
        if missing := [name for name in needed if name not in record]:
            required = ", ".join(needed)
            message = f"the field {missing[0]!r} is missing, a line requires {required}"
        else:
            message = problems_of(error)[0]
        raise UserError(f"{line.where}: {message}") from None


def _refuse_pair(line: _Line) -> None:
    if "target_id" in line.record:
        raise UserError(
            f"{line.where}: this is a pairs file; use the manifest of utterances that it was built from"
        )


def _refuse_predecessor(line: _Line) -> None:
    found = sorted(_PREDECESSOR_FIELDS.intersection(line.record))
    if found:
        raise UserError(
            f"{line.where}: {found[0]} belongs to the features of another program; preprocess the "
            "recordings with tools/preprocess_data.py"
        )


def _utterance(line: _Line) -> Utterance:
    _refuse_predecessor(line)
    _refuse_pair(line)
    if len({line.record.get(name) is None for name in _FEATURE_FIELDS}) > 1:
        raise UserError(
            f"{line.where}: some of the fields {', '.join(_FEATURE_FIELDS)} are missing; preprocess the "
            "manifest again"
        )
    return _parsed(_UTTERANCE, line, needed=UTTERANCE_FIELDS)


def _pair(line: _Line) -> Pair:
    _refuse_predecessor(line)
    if "target_id" not in line.record and "audio" in line.record and "text" in line.record:
        raise UserError(
            f"{line.where}: this is a manifest of utterances; build a pairs file from it with "
            "tools/build_gpt_prompt_pairs.py"
        )
    return _parsed(_PAIR, line, needed=PAIR_FIELDS)


def _read_unique(path: Path, parse: Callable[[_Line], ItemT]) -> list[tuple[int, ItemT]]:
    items = []
    number_of: dict[str, int] = {}
    for line in _lines(path):
        item = parse(line)
        first = number_of.setdefault(item.id, line.number)
        if first != line.number:
            raise UserError(
                f"{line.where}: line {first} already has the id {item.id!r}; give each line a unique id"
            )
        items.append((line.number, item))
    return items


def _lines(path: Path, records: Iterable[tuple[int, dict[str, object]]] | None = None) -> Iterator[_Line]:
    """Yield the lines of a manifest, or of `records` if they are given."""
    folder, paths = _folder(path), dict[str, Path]()
    for number, record in read_json_lines(path) if records is None else records:
        yield _Line(path, number, record, folder, paths)


def _utterance_record(utterance: Utterance, folder: Path, keeps_links: bool) -> dict[str, Any]:
    record: dict[str, Any] = _UTTERANCE.dump_python(utterance, by_alias=True, exclude_defaults=True)
    is_link = keeps_links and not utterance.audio.is_relative_to(folder)
    record["audio"] = str(utterance.audio) if is_link else os.path.relpath(utterance.audio, folder)
    if utterance.features is not None:
        record["features"] = os.path.relpath(utterance.features, folder)
    return record


def _absolute(folder: Path, written: str) -> Path:
    return Path(os.path.normpath(f"{folder}/{written}" if not written.startswith("/") else written))


def _folder(path: Path) -> Path:
    """Return the base folder of the manifest's relative paths, with symlinks resolved because of `..`."""
    return path.parent.resolve()
