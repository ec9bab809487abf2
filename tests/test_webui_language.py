"""Tests of indextts/webui/language.py and of the tables in indextts/system/locales.

A new text of the page needs an id in both tables; these tests name ids that are missing or no longer used.
"""

import json
import re
import string
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from indextts.commands.base import Command
from indextts.commands.launching import Launch
from indextts.data.quality.reasons import MEASURES, REASON_OF
from indextts.errors import UserError
from indextts.planning.recipe import recipes
from indextts.projects.project import Project
from indextts.system.messages import ENGLISH, LOCALES, Message, table
from indextts.webui.data.review_rows import checked_text
from indextts.webui.data.uploads import store_uploads
from indextts.webui.language import LANGUAGES, field_texts, language_of, t, text_of, use_language
from indextts.webui.listen.renders import vote
from tests.conftest import REPOSITORY
from tools.commands_page import COMMANDS

ETHIOPIC = re.compile(r"[\u1200-\u137f]")
OTHERS = [language for language in LANGUAGES if language != ENGLISH]

SAME = {"IndexTTS2", "IndexTTS2 Amharic", "TensorBoard"}  # in every language


def placeholders(template: str) -> set[tuple[str, str | None]]:
    """Return the values of a template, each with how its number is written."""
    return {(name, spec) for _, name, spec, _ in string.Formatter().parse(template) if name is not None}


def test_without_a_choice_the_language_is_english():
    assert t("app.project") == "Project"
    assert t("monitor.days", days=3) == "3 days"
    with use_language("xx"):
        assert t("app.project") == "Project"


def test_a_message_shows_nested_messages_in_its_language():
    message = Message("monitor.no_new_metrics", {"time": Message("monitor.days", {"days": 2})})
    with use_language("am"):
        inner, outer = t("monitor.days", days=2), text_of(message)
    assert inner in outer
    assert "2 days" in str(message)


REFUSALS: list[Callable[[Project], object]] = [
    lambda project: checked_text(" "),
    lambda project: vote(project, "0001", 1, "first"),
    lambda project: store_uploads(project, ["/etc/passwd"], project.root),
]


@pytest.mark.parametrize("refused", REFUSALS)
def test_a_refusal_is_in_the_language_of_the_client(tmp_path: Path, refused: Callable[[Project], object]):
    project = Project(tmp_path / "voice")
    with pytest.raises(UserError) as english:
        refused(project)
    with use_language("am"), pytest.raises(UserError) as amharic:
        refused(project)
    assert not ETHIOPIC.search(str(english.value))
    assert ETHIOPIC.search(str(amharic.value))


def field_ids() -> dict[str, str]:
    """Return the English title and help of each field of a command by their ids."""
    commands: tuple[type[Command], ...] = (*COMMANDS, Launch)
    texts: dict[str, str] = {}
    for command in commands:
        for name in command.model_fields:
            texts |= field_texts(command, name)
    return texts


@pytest.mark.parametrize("language", OTHERS)
def test_a_translation_has_the_values_of_its_template(language: str):
    english = table(ENGLISH) | field_ids()
    for id, other in table(language).items():
        assert other.strip(), id
        assert placeholders(english[id]) == placeholders(other), id
        words = re.sub(r"{.*?}", "", other)
        assert ETHIOPIC.search(other) or not re.search("[a-z]{3}", words) or other in SAME, id


@pytest.mark.parametrize("language", OTHERS)
def test_all_tables_have_the_same_ids(language: str):
    ids = table(language).keys()
    assert table(ENGLISH).keys() - ids == set()
    assert ids - table(ENGLISH).keys() - field_ids().keys() == set()


FILES = {"project.json", "readings.tsv", "texts.json", "tokenizer.json", "tokenizer.model"}  # named like ids


@cache
def strings() -> tuple[set[str], set[str]]:
    """Return the strings of the program, and the beginnings of its formatted strings, as `data.reasons.`."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "indextts").rglob("*.py"))
    plain = re.findall(r"""(?=["']([^"'\n]*)["'])""", source)  # what is between any two quotes
    return set(plain), set(re.findall(r"""f["']([^"'{\n]+){""", source))


def test_every_id_that_is_used_is_in_the_table():
    ids = table(ENGLISH).keys()
    groups = {id.partition(".")[0] for id in ids}
    plain, heads = strings()
    named = {text for text in plain if re.fullmatch(r"[a-z_]+(\.[a-z_0-9]+)+", text)}
    assert {text for text in named if text.partition(".")[0] in groups} - ids - heads == FILES


def test_every_id_of_the_table_is_used():
    plain, heads = strings()
    heads = {head for head in heads if re.fullmatch(r"[a-z]+[._][a-z._]*", head)}
    stems = {id: re.sub(r"^(health\..*)_(evidence|advice)$", r"\1", id) for id in table(ENGLISH)}
    plain |= {*REASON_OF, *MEASURES}  # from a table
    plain |= {part for recipe in recipes() for part in (recipe.id, recipe.origin)}
    plain |= {f"{id}_help" for id in plain}  # of a component, see layout.labelled
    built = {id for id, stem in stems.items() if any(stem.removeprefix(head) in plain for head in heads)}
    assert sorted(table(ENGLISH).keys() - plain - built) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_id_is_in_a_table_once(language: str):
    """A merge may leave two, of which the later one would be shown."""
    texts = json.loads((LOCALES / f"{language}.json").read_bytes(), object_pairs_hook=list)
    assert [id for id, count in Counter(id for id, _ in texts).items() if count > 1] == []


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
def test_a_cookie_chooses_among_the_known_languages(cookies: str | None, language: str):
    assert language_of(cookies) == language
