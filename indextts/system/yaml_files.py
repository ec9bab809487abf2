"""Read YAML documents that may come from anywhere."""

from typing import Any

import yaml

MAX_DEPTH = 50
MAX_VALUES = 100_000

# Of PyYAML, for a wrong value with an explicit type: !!int "", !!bool x, !!timestamp x, 2020-99-99.
_WRONG_VALUE = (ValueError, LookupError, AttributeError, TypeError, OverflowError)


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
