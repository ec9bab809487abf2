"""By which rules texts are normalised for a tokenizer: a record inside the tokenizer's own file.

SentencePiece's format leaves the fields from 200 on to others and passes over them when it reads and copies a
model. The record is JSON in one of them, so that whoever has the tokenizer (the run that copies it, an
export, the user who moves it) has the version and the options of its normaliser too: there is no second file
to lose.

    ModelProto { 1: pieces  2: trainer_spec ...  20777: {"version": 3, ...} }
"""

import json
from pathlib import Path
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet
from pydantic import ValidationError

from indextts.commands.normalizer_options import NORMALIZER_VERSION, NormalizerOptions
from indextts.errors import UserError

_FIELD = 20_777
_LENGTH_DELIMITED = 2  # protobuf's wire type of bytes


def with_record(model: bytes, record: dict[str, Any]) -> bytes:
    """Return a serialized SentencePiece model that carries `record`; of several in a file the last counts."""
    content = json.dumps(record, ensure_ascii=False).encode()
    field = _varint(_FIELD << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content
    return model if model.endswith(field) else model + field


def stored_tokenizer(entry: dict[str, Any]) -> bytes:
    """Return the SentencePiece file under `tokenizer` in a checkpoint, with how the run's texts were read."""
    model: bytes = entry["model"]
    record = entry.get("normalizer")  # absent in older checkpoints
    return model if record is None else with_record(model, record)


def read_record(proto: Any, path: Path) -> tuple[int, NormalizerOptions] | None:
    """Return the version and the options in a ModelProto, None if it has no record.

    Raises:
        UserError: the record is of a newer version of the normaliser, or damaged.
    """
    fields: Any = UnknownFieldSet(proto)  # the stubs do not know that it can be gone through
    found = [field.data for field in fields if field.field_number == _FIELD]
    if not found:
        return None
    try:
        record = json.loads(found[-1])
        version = int(record.pop("version"))
        if version > NORMALIZER_VERSION:
            raise UserError(
                f"{path}: its texts are normalised by version {version} of the rules, this program has "
                f"version {NORMALIZER_VERSION}; update the program"
            )
        return version, NormalizerOptions.model_validate(record)
    except (TypeError, ValueError, KeyError, AttributeError, ValidationError) as error:
        first = " ".join(str(error).split())
        raise UserError(
            f"{path}: the record of its normaliser is damaged ({first}); make the tokenizer anew with "
            "tools/extend_bpe.py"
        ) from None


def _varint(number: int) -> bytes:
    """Return protobuf's form of a whole number: 7 bits a byte, the lowest first."""
    more = []
    while number > 0x7F:
        more.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*more, number])
