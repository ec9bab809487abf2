"""Tests of indextts/webui/language.py: tables, templates, what a request asks for, what a component says."""

import json
import re
import string
import subprocess

import pytest
from playwright._impl._driver import compute_driver_executable

from indextts.webui.language import (
    ENGLISH,
    LANGUAGES,
    language_of,
    speaking,
    switching_js,
    t,
    table,
    texts_of,
)

ETHIOPIC = re.compile(r"[\u1200-\u137f]")
OTHERS = [language for language in LANGUAGES if language != ENGLISH]


def placeholders(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}


def test_without_a_choice_everything_is_english():
    assert t("Project") == "Project"
    assert t("{steps} steps", steps=3) == "3 steps"
    with speaking("xx"):
        assert t("Project") == "Project"


def test_amharic_is_spoken_within_and_not_after():
    with speaking("am"):
        assert ETHIOPIC.search(t("Project"))
        assert t("no such text {n}", n=1) == "no such text 1"
    assert t("Project") == "Project"


def test_braces_in_a_text_without_values_stay():
    assert t("{a} and {b}") == "{a} and {b}"


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_has_the_values_of_its_template(language: str):
    for english, other in table(language).items():
        assert other.strip(), english
        assert placeholders(english) == placeholders(other), english
        assert ETHIOPIC.search(other) or not re.search("[a-z]{3}", other), english


@pytest.mark.parametrize(
    ("cookies", "language"),
    [
        (None, "en"),
        ("", "en"),
        ("language=am", "am"),
        ("a=1; language=am; b=2", "am"),
        ("language=fr", "en"),
        ("language=../../etc/passwd", "en"),
        ("=;;;language", "en"),
        ('language="am"', "am"),
    ],
)
def test_a_cookie_chooses_among_the_languages_there_are(cookies: str | None, language: str):
    assert language_of(cookies) == language


def test_what_a_person_reads_of_a_component():
    props = {"label": "Stop", "value": "typed", "info": " ", "placeholder": None, "elem_id": "x"}
    assert texts_of("textbox", props) == {"label": "Stop"}
    assert texts_of("button", {"value": "Stop"}) == {"value": "Stop"}


def run_js(function: str, cookie: str) -> list[object]:
    """Return what the function returns in a browser with that cookie; Playwright's node stands for it."""
    page = f"globalThis.document = {{cookie: {json.dumps(cookie)}, documentElement: {{}}}};"
    script = f"{page} console.log(JSON.stringify(({function})()))"
    answer = subprocess.run(
        [compute_driver_executable()[0], "-e", script], capture_output=True, text=True, check=True
    )
    found: list[object] = json.loads(answer.stdout)
    return found


def test_the_page_takes_the_table_of_the_cookie():
    function = switching_js([{"label": "Project"}, {"label": "no such text"}])
    nothing = {"__type__": "update"}
    with speaking("am"):
        amharic = t("Project")
    assert run_js(function, "language=am") == [{**nothing, "label": amharic}, nothing, "am"]
    assert run_js(function, "") == [nothing, nothing, "en"]
    assert run_js(function, "xlanguage=am") == [nothing, nothing, "en"]
    assert run_js(function, "b=1; language=constructor") == [nothing, nothing, "en"]
