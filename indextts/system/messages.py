"""Texts of the page, by short ids, in every language.

    locales/en.json    {"outlook.ready": "Ready to start.", ...}
    locales/am.json    the same ids in Amharic, and those of the commands' fields (see `webui.language`)

A template has `{name}` for each value, as for `str.format`; without values its braces stay as they are.
A terminal prints `str(message)`, which is English.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ENGLISH = "en"
LOCALES = Path(__file__).parent / "locales"


@dataclass(frozen=True)
class Message:
    """A text that can be shown in any language.

    Args:
        values: of the template; a value that is a Message is shown in the same language.
    """

    id: str
    values: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return render(self)


def as_is(text: str) -> Message:
    """Return a message that is the same in every language, such as an error of a program."""
    return Message("as_is", {"text": text})


@functools.cache
def table(language: str) -> dict[str, str]:
    """Return the templates of a language by id."""
    content: dict[str, str] = json.loads((LOCALES / f"{language}.json").read_bytes())
    return content


def template(id: str, language: str = ENGLISH) -> str:
    """Return the template of an id; English where the language has none."""
    return table(language).get(id) or table(ENGLISH)[id]


def render(message: Message, language: str = ENGLISH) -> str:
    """Return the text of a message in a language."""
    if not message.values:
        return template(message.id, language)
    values = {
        name: render(value, language) if isinstance(value, Message) else value
        for name, value in message.values.items()
    }
    return template(message.id, language).format(**values)
