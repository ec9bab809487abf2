"""Tests of the columns of new tables in tab 2: what is shown, chosen and passed to the import."""

import json
import re
from pathlib import Path

import pytest

from indextts.commands.data import ImportDataset
from indextts.projects.project import Project, ProjectSettings
from indextts.webui.data.import_form import FIELDS, NEW_SOURCES, import_commands, planned_sources
from indextts.webui.data.import_outlook import import_outlook
from indextts.webui.data.import_sources import (
    ImportSource,
    column_tables_html,
    first_rows_html,
    read_choices,
    with_choice,
)
from indextts.webui.language import LANGUAGES, use_language
from tests.import_sources import run_import
from tests.one_project import OneProject
from tests.parsed_html import Parsed
from tests.test_data_importing_table_preview import (
    AMBIGUOUS,
    ENGLISH,
    OTHERS,
    PATHS,
    TEXTS,
    table,
    write_source,
)

HOSTILE = '<img src=x onerror="alert(1)">\'&'
DECIDED = table(PATHS, TEXTS, ENGLISH, header="file_name,text_am,text_en")


def make(folder: Path, **tables: str) -> tuple[Project, ProjectSettings]:
    """Write a project with an archive NAME.zip for each table."""
    project = Project(folder / "voice")
    project.uploads.mkdir(parents=True)
    for name, content in tables.items():
        source = write_source(folder, {"metadata.csv": content}, is_zip=True)
        source.rename(project.uploads / f"{name}.zip")
    return project, ProjectSettings.model_validate({"name": "voice", "base": folder})


def form(choices: str = "", source: str = NEW_SOURCES, **answers: str) -> list[str]:
    return [source, *(answers.get(name, "") for name in FIELDS), choices]


def sources(project: Project, settings: ProjectSettings, *values: str) -> list[ImportSource]:
    return planned_sources(OneProject(project), project, settings, *(values or form()))


def imports(project: Project, settings: ProjectSettings, *values: str) -> list[ImportDataset]:
    commands = import_commands(OneProject(project), project, settings, *(values or form()))
    return [command for command in commands if isinstance(command, ImportDataset)]


def shown_uses(html: str) -> list[str | None]:
    """Return the chosen value of each dropdown."""
    chosen = [attributes["value"] for tag, attributes in Parsed(html).tags if "selected" in attributes]
    assert chosen == Parsed(html).values("select", "data-use")
    return chosen


def test_new_tables_are_shown_with_their_decided_uses(tmp_path: Path):
    project, settings = make(tmp_path, talks=DECIDED)
    html = column_tables_html(sources(project, settings))
    assert shown_uses(html) == ["audio", "text", ""]
    assert len(set(Parsed(html).values("select", "aria-label"))) == 3
    assert all(text in html for text in ("talks.zip", "text_am", TEXTS[0], ENGLISH[1], "<details"))
    assert " open>" not in html
    assert not import_outlook(project, imports(project, settings)).blockers
    assert imports(project, settings, *form())[0].columns == ""


def test_known_names_of_a_header_are_one_closed_line(tmp_path: Path):
    project, settings = make(tmp_path, talks=table(PATHS, TEXTS, header="path,sentence"))
    html = column_tables_html(sources(project, settings))
    assert re.search(r"<details [^>]*><summary>", html)
    assert " open>" not in html
    assert "path → Recording, sentence → Text" in html


@pytest.mark.parametrize("content", ["", TEXTS[0], "{}"])
def test_nothing_is_shown_without_a_table(tmp_path: Path, content: str):
    project, settings = make(tmp_path, talks=content)
    assert column_tables_html(sources(project, settings)) == ""
    (project.uploads / "broken.zip").write_bytes(b"no archive")
    assert not import_outlook(project, imports(project, settings)).blockers
    assert column_tables_html([]) == ""


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_shows_what_the_import_does_with_the_first_rows(tmp_path: Path, language: str):
    texts = [f"[noise] {TEXTS[0]}", TEXTS[1], f"{HOSTILE} {TEXTS[2]}", "ዛሬ [<b>] [ተሰጥቶታል] ነው"]
    project, settings = make(tmp_path, talks=table(PATHS, [text.replace(",", "") for text in texts]))
    with use_language(language):
        html = first_rows_html(sources(project, settings))
    assert all(text in html for text in ("talks.zip", "[noise]", "[ተሰጥቶታል]"))
    assert Parsed(html).names.isdisjoint({"img", "b", "onerror", "src"})
    assert "[noise]" not in first_rows_html(sources(project, settings.with_fields("data", keep="noise")))


@pytest.mark.parametrize("language", LANGUAGES)
def test_an_undecided_column_blocks_the_import_until_it_is_chosen(tmp_path: Path, language: str):
    project, settings = make(tmp_path, talks=AMBIGUOUS)
    with use_language(language):
        found = sources(project, settings)
        html = column_tables_html(found)
        [blocker] = import_outlook(project, imports(project, settings)).blockers
    assert shown_uses(html) == ["audio", "?", "?"]
    assert "talks.zip" in blocker.text
    assert f'id="{blocker.link.removeprefix("#data/")}"' in html
    choices = with_choice({}, found, [found[0].key, "set/metadata.csv", "0=audio", "2=text"])
    values = form(json.dumps(choices))
    assert not import_outlook(project, imports(project, settings, *values)).blockers
    assert [command.columns for command in imports(project, settings, *values)] == [
        "audio=file_name,text=second"
    ]
    chosen = column_tables_html(sources(project, settings, *values))
    assert shown_uses(chosen) == ["audio", "", "text"]


def test_each_source_has_its_own_choice(tmp_path: Path):
    project, settings = make(tmp_path, a=AMBIGUOUS, b=AMBIGUOUS.replace("second", "other"))
    found = sources(project, settings)
    first = with_choice({}, found, [found[0].key, "set/metadata.csv", "0=audio", "1=text"])
    both = with_choice(first, found, [found[1].key, "set/metadata.csv", "0=audio", "2=text"])
    commands = imports(project, settings, *form(json.dumps(both), speaker="s"))
    assert [(command.columns, command.speaker) for command in commands] == [
        ("audio=file_name,text=first", "s"),
        ("audio=file_name,text=other", "s"),
    ]


def test_a_replaced_source_loses_its_choice(tmp_path: Path):
    project, settings = make(tmp_path, talks=AMBIGUOUS)
    found = sources(project, settings)
    choices = with_choice({}, found, [found[0].key, "set/metadata.csv", "0=audio", "1=text"])
    other = AMBIGUOUS.replace("first", "changed")
    write_source(tmp_path, {"metadata.csv": other}, is_zip=True).replace(project.uploads / "talks.zip")
    assert sources(project, settings, *form(json.dumps(choices)))[0].preview.undecided
    assert imports(project, settings, *form(json.dumps(choices)))[0].columns == ""


@pytest.mark.parametrize(
    ("uses", "is_kept"),
    [
        (["0=audio", "1=?", "2=?"], False),
        (["0=audio"], True),
        ([], True),
        (["0=audio", "9=text"], True),
        (["0=audio", "1=speech"], True),
        (["0=audio", "1=text\n--prune"], True),
        (["99999=audio", "1", "", "x=y"], True),
    ],
)
def test_an_incomplete_or_invalid_choice_blocks_the_import(tmp_path: Path, uses: list[str], is_kept: bool):
    project, settings = make(tmp_path, talks=AMBIGUOUS)
    found = sources(project, settings)
    choices = with_choice({}, found, [found[0].key, "set/metadata.csv", *uses])
    assert (found[0].key in choices) == is_kept
    assert import_outlook(project, imports(project, settings, *form(json.dumps(choices)))).blockers
    found = sources(project, settings, *form(json.dumps(choices)))
    assert len(shown_uses(column_tables_html(found))) == 3  # it can be corrected


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '{"a": 1}', '{"a": "\\ud800"}', '{"a": "\\n"}', "[" * 9999]
)
def test_invalid_choices_are_none(text: str):
    assert read_choices(text) == {}


def test_a_known_source_is_shown_only_if_it_is_chosen_or_undecided(tmp_path: Path):
    project, settings = make(tmp_path)
    write_source(tmp_path, {"metadata.csv": DECIDED}).rename(project.uploads / "files")
    run_import(project.uploads / "files", project.dataset, speaker="s")
    assert column_tables_html(sources(project, settings)) == ""
    chosen = sources(project, settings, *form(source="files"))
    assert shown_uses(column_tables_html(chosen)) == ["audio", "text", ""]
    (project.uploads / "files/metadata.csv").unlink()
    (project.uploads / "files/other.csv").write_text(AMBIGUOUS, encoding="utf-8")
    assert shown_uses(column_tables_html(sources(project, settings))) == ["audio", "?", "?"]


def test_texts_of_an_upload_are_escaped(tmp_path: Path):
    cells = [HOSTILE.replace('"', "")] * 4
    header = f"file_name,first,second,{HOSTILE.replace(chr(34), '')}"
    project, settings = make(tmp_path)
    content = table(PATHS, TEXTS, OTHERS, cells, header=header)
    name = "a<b>&'\".csv"
    write_source(tmp_path, {name: content}, is_zip=True).rename(project.uploads / "<i>talks.zip")
    found = sources(project, settings)
    html = column_tables_html(found)
    assert Parsed(html).names.isdisjoint({"img", "i", "onerror", "src"})
    assert shown_uses(html) == ["audio", "?", "?", ""]
    choices = with_choice({}, found, [found[0].key, f"set/{name}", "0=audio", "1=text", "3=speaker"])
    resolved = sources(project, settings, *form(json.dumps(choices)))
    assert shown_uses(column_tables_html(resolved)) == ["audio", "text", "", "speaker"]
