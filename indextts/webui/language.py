"""The page in Amharic or English: the language of each browser, and the switch between them.

The texts are in `indextts.system.messages`, by short ids. A field of a command has its English title and help
in itself, and its Amharic under the ids `field.COMMAND.NAME.title` and `.help`. What has no id stays as it
is: file names, flags, commands and what the programs print are the same in every language. The page is built
in each language, and the server sends the one of the browser's cookie (see `CheckedBlocks.config`).

Gradio's own `gr.I18n` ignores Amharic. No Gradio here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.cookies import CookieError, SimpleCookie
from inspect import get_annotations

from indextts.commands.base import Command
from indextts.system.messages import ENGLISH, Message, render, table

LANGUAGES = {ENGLISH: "English", "am": "አማርኛ"}
COOKIE = "language"

_chosen: ContextVar[str] = ContextVar("language", default=ENGLISH)


def t(id: str, **values: object) -> str:
    """Return the text of an id in the current language, with `values` in its placeholders."""
    return render(Message(id, values), _chosen.get())


def text_of(message: Message) -> str:
    return render(message, _chosen.get())


def t_or(id: str, otherwise: str) -> str:
    """Return the text of an id that may be absent, such as one made of a name in a file."""
    return t(id) if id in table(ENGLISH) else otherwise


def field_texts(command: type[Command], name: str) -> dict[str, str]:
    """Return the English title and help of a command's field by their ids."""
    field = command.model_fields[name]
    owner = next(base for base in command.__mro__ if name in get_annotations(base))
    id = f"field.{owner.__name__}.{name}"
    texts = {f"{id}.title": field.title or name.replace("_", " ")}
    return texts | {f"{id}.help": field.description} if field.description else texts


def field_title(command: type[Command], name: str) -> str:
    """Return the title of a command's field in the current language."""
    (id, english), *_ = field_texts(command, name).items()
    return table(_chosen.get()).get(id, english)


def field_help(command: type[Command], name: str) -> str | None:
    """Return the help of a command's field in the current language, None if it has none."""
    for id, english in list(field_texts(command, name).items())[1:]:
        return table(_chosen.get()).get(id, english)
    return None


def current_language() -> str:
    return _chosen.get()


@contextmanager
def use_language(language: str) -> Iterator[None]:
    """Make this the current language; English if there is no such table."""
    token = _chosen.set(language if language in LANGUAGES else ENGLISH)
    try:
        yield
    finally:
        _chosen.reset(token)


def language_of(cookies: str | None) -> str:
    """Return the language that a request's Cookie header asks for."""
    try:
        chosen = SimpleCookie(cookies or "").get(COOKIE)
    except CookieError:
        return ENGLISH
    return chosen.value if chosen and chosen.value in LANGUAGES else ENGLISH


# (the chosen language) -> nothing: the page reloads in that language
CHOOSE_JS = f"""(language) => {{
  document.cookie = `{COOKIE}=${{language}}; path=/; max-age=31536000; SameSite=Lax`;
  window.location.reload();
}}"""


def shown_hours(seconds: float) -> str:
    """Return an amount of speech: "40 s", "12 min", "3.2 h"."""
    if seconds < 60:
        return t("amount.seconds", count=seconds)
    return (
        t("amount.minutes", count=seconds / 60) if seconds < 3600 else t("amount.hours", count=seconds / 3600)
    )
