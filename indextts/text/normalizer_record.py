"""The normaliser version and options of a tokenizer, recorded inside the tokenizer file.

SentencePiece ignores and preserves protobuf fields from 200 on. The record is JSON in such a field, so every
copy of the tokenizer (in a run, in an export, moved by the user) carries it and the readings, and there is no
second file.

    ModelProto { 1: pieces  2: trainer_spec ...  20777: {"version": 7, ...} }
"""

import json
from pathlib import Path
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet
from pydantic import ValidationError

from indextts.commands.normalizer_options import NORMALIZER_VERSION, NormalizerOptions
from indextts.errors import UserError

_FIELD = 20_777
_LENGTH_DELIMITED = 2  # protobuf wire type


def with_record(model: bytes, record: dict[str, Any]) -> bytes:
    """Return a serialized SentencePiece model with `record` appended; the last record of a file counts."""
    content = json.dumps(record, ensure_ascii=False).encode()
    field = _varint(_FIELD << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content
    return model if model.endswith(field) else model + field


def read_record(proto: Any, path: Path) -> tuple[int, NormalizerOptions] | None:
    """Return the version and options in a ModelProto, None without; a UserError if corrupt or newer."""
    fields: Any = UnknownFieldSet(proto)  # iterable, unlike its stub
    found = [field.data for field in fields if field.field_number == _FIELD]
    return parse_record(found[-1], path) if found else None


def parse_record(content: bytes, path: Path) -> tuple[int, NormalizerOptions]:
    """Return the normaliser version and options in the JSON of a record; errors as for `read_record`."""
    try:
        record = json.loads(content)
        version = int(record.pop("version"))
        if version > NORMALIZER_VERSION:
            raise UserError(
                f"{path}: needs version {version} of the normaliser, but this program has version "
                f"{NORMALIZER_VERSION}; update the program"
            )
        return version, NormalizerOptions.model_validate(record)
    except (TypeError, ValueError, KeyError, AttributeError, ValidationError) as error:
        first = " ".join(str(error).split())
        raise UserError(
            f"{path}: its normaliser record is corrupt ({first}); rebuild the tokenizer with "
            "tools/extend_bpe.py"
        ) from None


def _varint(number: int) -> bytes:
    """Return the protobuf encoding of an integer: 7 bits per byte, lowest first."""
    more = []
    while number > 0x7F:
        more.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*more, number])
