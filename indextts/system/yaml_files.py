"""Read YAML and JSON documents that may come from anywhere."""

import json
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from indextts.errors import UserError
from indextts.system.json_lines import shown_value

MAX_DEPTH = 50
MAX_VALUES = 100_000

Kind = TypeVar("Kind")

# Of PyYAML, for a wrong value with an explicit type: !!int "", !!bool x, !!timestamp x, 2020-99-99.
_WRONG_VALUE = (ValueError, LookupError, AttributeError, TypeError, OverflowError)


def read_section(kind: type[Kind], path: Path, advice: str, section: str = "") -> Kind:
    """Return a YAML or JSON file, or a section of it, as a type that pydantic knows; other keys are ignored.

    Args:
        advice: the remedy for a wrong file, for messages.

    Raises:
        UserError: the file cannot be read, or values are missing or invalid; the message has all of them.
    """
    try:
        content = path.read_bytes()
        document = json.loads(content) if path.suffix == ".json" else parse_yaml(content)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); {advice}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: is corrupt ({' '.join(str(error).split())}); {advice}") from None
    if section:
        document = document.get(section) if isinstance(document, dict) else None
    return checked(kind, document, path, advice, section)


def checked(kind: type[Kind], value: object, path: Path, advice: str, section: str = "") -> Kind:
    """Return the value of a section as a type; arguments and errors as for `read_section`."""
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        raise UserError(f"{path}: {'; '.join(problems_of(error, section))}; {advice}") from None


def read_if_valid(kind: type[Kind], path: Path) -> Kind | None:
    """Return the content of a JSON file as a type that pydantic knows; None without a valid file."""
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def problems_of(error: ValidationError, section: str = "") -> list[str]:
    """Return the place, the value and the reason of each invalid value, for messages of one line."""
    problems = []
    for each in error.errors():
        place = ".".join(map(str, [section, *each["loc"]] if section else each["loc"])) or "file"
        reason = each["msg"].removeprefix("Value error, ").replace("Input should", "it must")
        names_fields = each["type"] == "value_error" and isinstance(each["input"], dict)
        if each["type"] == "missing" or names_fields:
            problems.append(f"{place}: {reason}")
        else:
            problems.append(f"{place} is {shown_value(each['input'])}, {reason}")
    return problems


def parse_yaml(content: bytes | str) -> Any:
    """Return the value of a YAML document.

    Raises:
        ValueError: it is no valid YAML, is nested too deeply, or its aliases repeat too many values; the
            message is one line.
    """
    try:
        value = yaml.safe_load(content)
    except RecursionError:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except _WRONG_VALUE as error:
        raise ValueError(f"invalid value: {' '.join(str(error).split())}") from None
    _require_bounded(value)
    return value


def _require_bounded(document: object) -> None:
    """Raise a ValueError if whoever prints or compares the document would not come to an end."""
    pending, num_values = [(document, 1)], 0
    while pending:
        value, depth = pending.pop()
        num_values += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        if num_values > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES:,} values, with what its aliases repeat")
        if isinstance(value, dict):
            pending += [(item, depth + 1) for pair in value.items() for item in pair]
        elif isinstance(value, (list, tuple, set)):
            pending += [(item, depth + 1) for item in value]
