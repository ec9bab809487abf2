"""Drafts: form values that were not started yet, which a reload or another browser shows again.

    NAME/drafts/{form}.json    {"values": {"learning_rate": 2e-05, "resume": true, ...}}

A draft is a convenience: a file that is corrupt or too large counts as absent, and unknown fields
are dropped. Drafted values pass the same checks as typed values. No Gradio here.
"""

import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from indextts.projects.project import Project
from indextts.system.files import read_object, written_aside

MAX_DRAFT_BYTES = 256 << 10

Value = str | int | float | bool | None

_FORM = re.compile(r"[a-z][a-z0-9_-]{0,39}")


def read_draft(project: Project, form: str, fields: Collection[str]) -> dict[str, Value]:
    """Return the drafted values of `fields`; fields without a drafted value are absent."""
    content = read_object(_path(project, form))
    values = content.get("values")
    if not isinstance(values, dict):
        return {}
    return {name: value for name, value in values.items() if name in fields and _is_plain(value)}


def write_draft(project: Project, form: str, values: Mapping[str, object]) -> None:
    """Store the plain values of a form; a draft that is too large is not stored.

    On a full disk only the draft is lost.
    """
    plain = {name: value for name, value in values.items() if _is_plain(value)}
    path = _path(project, form)
    with suppress(OSError, UnicodeEncodeError):  # a lone surrogate, which no field accepts
        encoded = json.dumps({"values": plain}, ensure_ascii=False).encode()
        if len(encoded) <= MAX_DRAFT_BYTES:
            path.parent.mkdir(exist_ok=True)
            with written_aside(path, is_unique=True) as aside:  # many pages may write at once
                aside.write_bytes(encoded)


def forget_draft(project: Project, form: str) -> None:
    """Delete a draft; the form shows the project's values again."""
    with suppress(OSError):
        _path(project, form).unlink(missing_ok=True)


def _path(project: Project, form: str) -> Path:
    assert _FORM.fullmatch(form), form  # named by the program, never by a request
    return project.root / "drafts" / f"{form}.json"


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
