"""The page in Amharic or English: a table for each language besides English, at a switch of each browser.

    locales/am.json     {"English text or template": "the same in Amharic", ...}

A text that stands in the layout is its own key; the browser puts the other language in its place (see
`switching_js`). A text that is made in code goes through `t`. What is in no table stays English: file names,
flags, commands and what the programs print are the same in every language.

Gradio's own `gr.I18n` ignores Amharic. No Gradio here.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

from indextts.system.sentence import Sentence

ENGLISH = "en"
LANGUAGES = {ENGLISH: "English", "am": "አማርኛ"}
COOKIE = "language"
LOCALES = Path(__file__).parent / "locales"

# What a person reads of a component, as its constructor names it.
TEXTS = ("label", "info", "placeholder", "title", "x_title", "y_title")
VALUE_IS_TEXT = ("button", "markdown")

_chosen: ContextVar[str] = ContextVar("language", default=ENGLISH)


@functools.cache
def table(language: str) -> dict[str, str]:
    """Return what the texts are in a language; of English nothing needs to be said."""
    if language == ENGLISH:
        return {}
    content: dict[str, str] = json.loads((LOCALES / f"{language}.json").read_bytes())
    return content


def t(template: str, **values: object) -> str:
    """Return a text in the language of whoever asked, with `values` in its braces."""
    found = table(_chosen.get()).get(template, template)
    return found.format(**values) if values else found


def said(sentence: Sentence) -> str:
    """Return a sentence in the language of whoever asked."""
    return t(sentence.template, **sentence.values)


@contextmanager
def speaking(language: str) -> Iterator[None]:
    """Let `t` speak this language, English if there is no such table."""
    token = _chosen.set(language if language in LANGUAGES else ENGLISH)
    try:
        yield
    finally:
        _chosen.reset(token)


def language_of(cookies: str | None) -> str:
    """Return what a request's Cookie header asks for."""
    try:
        chosen = SimpleCookie(cookies or "").get(COOKIE)
    except CookieError:
        return ENGLISH
    return chosen.value if chosen and chosen.value in LANGUAGES else ENGLISH


def texts_of(kind: str, props: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties of a component that a person reads.

    Args:
        kind: as in Gradio's config, "textbox", "button".
        props: its constructor's arguments.
    """
    names = (*TEXTS, "value") if kind in VALUE_IS_TEXT else TEXTS
    return {name: text for name in names if isinstance(text := props.get(name), str) and text.strip()}


def switching_js(components: list[dict[str, str]]) -> str:
    """Return the JavaScript that puts the chosen language into the page when it is loaded.

    Args:
        components: the texts of each, in the order of the event's outputs.

    Returns:
        A function of no arguments; its values are for the outputs and then the language itself.
    """
    tables = {
        language: [
            {name: found for name, text in texts.items() if (found := table(language).get(text))}
            for texts in components
        ]
        for language in LANGUAGES
        if language != ENGLISH
    }
    return f"""() => {{
  const match = document.cookie.match(/(?:^|; ){COOKIE}=([a-z]+)/);
  const tables = {json.dumps(tables, ensure_ascii=False)};
  const language = match && Object.hasOwn(tables, match[1]) ? match[1] : "{ENGLISH}";
  document.documentElement.lang = language;
  const texts = tables[language] ?? Array({len(components)}).fill({{}});
  return [...texts.map(text => ({{__type__: "update", ...text}})), language];
}}"""


# (the chosen language) -> nothing: the page comes again, in that language
CHOOSE_JS = f"""(language) => {{
  document.cookie = `{COOKIE}=${{language}}; path=/; max-age=31536000; SameSite=Lax`;
  window.location.reload();
}}"""
