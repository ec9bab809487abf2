"""Tests of indextts/webui/language.py: tables, templates, what a request asks for, what a component says.

Whoever adds a text to the page adds it to the tables in indextts/webui/locales too; these tests name what is
missing, and what no text uses any more.
"""

import json
import re
import string
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from playwright._impl._driver import compute_driver_executable

from indextts.errors import UserError
from indextts.features.published_files import Purpose
from indextts.projects.project import Project
from indextts.webui.data.review_rows import VERDICTS, checked_text, read_review
from indextts.webui.data.uploads import remove, take_in
from indextts.webui.language import (
    ENGLISH,
    LANGUAGES,
    LOCALES,
    language_of,
    speaking,
    switching_js,
    t,
    table,
    texts_of,
)
from indextts.webui.listen.renders import vote
from indextts.webui.listen.saved_models import find_recording
from indextts.webui.listen.speaking import texts_in
from indextts.webui.monitor.charts import KINDS
from indextts.webui.serving.security import Roots
from indextts.webui.training.training_outlook import MACHINES
from tests.conftest import REPOSITORY
from tests.page_texts import all_strings, spoken_texts

ETHIOPIC = re.compile(r"[\u1200-\u137f]")
OTHERS = [language for language in LANGUAGES if language != ENGLISH]

SAME = {"# IndexTTS2 Amharic", "TensorBoard"}  # in every language
FROM_ELSEWHERE = {  # reach `t` as values of something
    *get_args(Purpose),
    *("checked", "there", "absent"),  # a published file
    *VERDICTS.values(),
    *(word for _, word in KINDS),
    *("processor", "memory", "disk", "card"),
    *("finished", "stopped"),  # in exit.json
    *MACHINES,
}

LAID_OUT = """
import json, pathlib, sys
from indextts.commands.app import WebUI
from indextts.webui.app import build_app
from indextts.webui.language import texts_of
demo = build_app(WebUI(workspace=pathlib.Path(sys.argv[1])))
components = demo.get_config_file()["components"]
texts = {text for c in components for text in texts_of(c["type"], c["props"]).values()}
headers = {name for c in components if c["type"] == "dataframe" for name in c["props"]["headers"] or ()}
print(json.dumps(sorted(texts | headers)))
"""


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return what a person reads on the page that was built, with its one path as the template has it."""
    workspace = tmp_path_factory.mktemp("language") / "workspace"
    answer = subprocess.run(
        [sys.executable, "-c", LAID_OUT, str(workspace)], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert answer.returncode == 0, answer.stderr
    folder = str((workspace / "checkpoints").resolve())
    return {text.replace(folder, "{folder}") for text in json.loads(answer.stdout.splitlines()[-1])}


def placeholders(template: str) -> set[tuple[str, str | None]]:
    """Return the values of a template, each with how its number is written."""
    return {(name, spec) for _, name, spec, _ in string.Formatter().parse(template) if name is not None}


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


REFUSALS: list[Callable[[Project], object]] = [
    lambda project: checked_text(" "),
    lambda project: checked_text("a" * 2001),
    lambda project: read_review(project).find("clip"),
    lambda project: texts_in(""),
    lambda project: texts_in("a\n" * 101),
    lambda project: vote(project, 1, "first"),
    lambda project: remove(project, "talks.zip"),
    lambda project: take_in(project, ["/etc/passwd"], project.root),
    lambda project: find_recording(project, None, Roots(project.root, ())),
]


@pytest.mark.parametrize("refused", REFUSALS)
def test_a_refusal_is_said_in_the_language_of_who_asked(tmp_path: Path, refused: Callable[[Project], object]):
    project = Project(tmp_path / "voice")
    with pytest.raises(UserError) as english:
        refused(project)
    with speaking("am"), pytest.raises(UserError) as amharic:
        refused(project)
    assert not ETHIOPIC.search(str(english.value))
    assert ETHIOPIC.search(str(amharic.value))


def test_braces_in_a_text_without_values_stay():
    assert t("{a} and {b}") == "{a} and {b}"


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_has_the_values_of_its_template(language: str):
    for english, other in table(language).items():
        assert other.strip(), english
        assert placeholders(english) == placeholders(other), english
        assert ETHIOPIC.search(other) or not re.search("[a-z]{3}", other), english


@pytest.mark.parametrize("language", OTHERS)
def test_all_that_is_laid_out_is_translated(language: str, laid_out: set[str]):
    assert len(laid_out) > 300
    assert sorted(laid_out - table(language).keys() - SAME) == []


@pytest.mark.parametrize("language", OTHERS)
def test_all_that_is_said_in_code_is_translated(language: str):
    said = spoken_texts() | FROM_ELSEWHERE
    # one for each way to `t`: a literal, a dict's key, a condition, an import, a sentence for later
    assert said >= {
        "Not possible",
        "to train on",
        "{count} pieces, {unknown} unknown",
        "at once",
        "the program could not be started",
    }
    assert sorted(said - table(language).keys() - SAME) == []


@pytest.mark.parametrize("language", OTHERS)
def test_no_translation_is_of_a_text_that_is_gone(language: str, laid_out: set[str]):
    assert sorted(table(language).keys() - laid_out - all_strings()) == []


@pytest.mark.parametrize("language", OTHERS)
def test_a_text_stands_in_a_table_once(language: str):
    """A merge may leave two, of which the later one would be said."""
    texts = json.loads((LOCALES / f"{language}.json").read_bytes(), object_pairs_hook=list)
    assert [text for text, count in Counter(text for text, _ in texts).items() if count > 1] == []


@pytest.mark.parametrize("language", OTHERS)
def test_a_table_is_punctuated_as_its_script_is(language: str):
    for english, other in table(language).items():
        assert not re.search(r"[\u1200-\u137f] ?[,;:](?= |$)", other), english
        assert other.endswith("።") or not re.fullmatch(r"[A-Z].*[a-z)]\.", english), english


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
