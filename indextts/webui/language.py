"""The page in Amharic or English: the language of each browser, and the switch between them.

The texts are in `indextts.system.messages`, by short ids. A field of a command has its English title and help
in itself, and its Amharic under the ids `field.COMMAND.NAME.title` and `.help`. What is built into the page
is English; the browser puts the other language in its place (see `switching_js`). What has no id stays as it
is: file names, flags, commands and what the programs print are the same in every language.

Gradio's own `gr.I18n` ignores Amharic. No Gradio here.
"""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape, unescape
from http.cookies import CookieError, SimpleCookie
from inspect import get_annotations
from typing import Any

from indextts.commands.base import Command
from indextts.commands.launching import Launch
from indextts.commands.reference_page import COMMANDS
from indextts.system.messages import ENGLISH, Message, render, table

LANGUAGES = {ENGLISH: "English", "am": "አማርኛ"}
COOKIE = "language"

# Visible texts of a component, by the name of the constructor argument.
TEXTS = ("label", "info", "placeholder")
VALUE_IS_TEXT = ("button", "markdown")
HEADING = re.compile(
    r"<h2>(.*?)</h2>(?:<p>(.*?)</p>)?"
)  # HTML that is made of texts only, see `heading_html`

_chosen: ContextVar[str] = ContextVar("language", default=ENGLISH)


def t(id: str, **values: object) -> str:
    """Return the text of an id in the current language, with `values` in its placeholders."""
    return render(Message(id, values), _chosen.get())


def text_of(message: Message) -> str:
    """Return a message in the current language."""
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


@functools.cache
def translations(language: str) -> dict[str, str]:
    """Return the translation of each English text of the page; equal texts have equal translations."""
    english = dict(table(ENGLISH))
    commands: tuple[type[Command], ...] = (*COMMANDS, Launch)
    for command in commands:
        for name in command.model_fields:
            english |= field_texts(command, name)
    other = table(language)
    return {text: other[id] for id, text in english.items() if other.get(id, text) != text}


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


def texts_of(kind: str, props: Mapping[str, Any]) -> dict[str, str]:
    """Return the visible texts of a component.

    Args:
        kind: as in Gradio's config, "textbox", "button".
        props: its constructor's arguments.
    """
    value = props.get("value")
    is_text = kind in VALUE_IS_TEXT or (kind == "html" and HEADING.fullmatch(str(value)))
    names = (*TEXTS, "value") if is_text else TEXTS
    return {name: text for name in names if isinstance(text := props.get(name), str) and text.strip()}


def heading_html(title: str, lead: str = "") -> str:
    """Return a heading with an optional sentence below it, both texts."""
    return f"<h2>{escape(title)}</h2>" + (f"<p>{escape(lead)}</p>" if lead else "")


def switched(text: str, language: str) -> str | None:
    """Return a visible text of a component in another language; None if it has no translation."""
    found = translations(language)
    if heading := HEADING.fullmatch(text):
        title, lead = (unescape(part or "") for part in heading.groups())
        return heading_html(found.get(title, title), found.get(lead, lead))
    return found.get(text)


def switching_js(components: list[dict[str, str]]) -> str:
    """Return the JavaScript that puts the texts of the chosen language into the components.

    Args:
        components: the texts of each, in the order of the event's outputs.
    """
    tables = {
        language: [
            {name: found for name, text in texts.items() if (found := switched(text, language))}
            for texts in components
        ]
        for language in LANGUAGES
        if language != ENGLISH
    }
    return f"""() => {{
  const texts = {json.dumps(tables, ensure_ascii=False)}[document.documentElement.lang];
  return (texts ?? Array({len(components)}).fill({{}})).map(text => ({{__type__: "update", ...text}}));
}}"""


# () -> the language that the browser chose
CHOSEN_JS = f"""() => {{
  const match = document.cookie.match(/(?:^|; ){COOKIE}=([a-z]+)/);
  const language = match && {json.dumps(list(LANGUAGES))}.includes(match[1]) ? match[1] : "{ENGLISH}";
  document.documentElement.lang = language;
  return language;
}}"""
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
