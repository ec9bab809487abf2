"""Tests of the import on the page: its outlook, uploads, and the names of the voices that it found."""

import csv
import json
import zipfile
from pathlib import Path

import pytest

from indextts.commands.data import ImportDataset
from indextts.data.importing.speakers import write_answers
from indextts.data.importing.voices import read_rows, rename_voice
from indextts.data.manifest import Utterance, write_utterances
from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings, read_project, write_project
from indextts.projects.stages import plan_imports
from indextts.webui.data.import_form import (
    FIELDS,
    NEW_SOURCES,
    import_commands,
    named_paths,
    prepare,
    store_paths,
    store_settings,
    voices_html,
)
from indextts.webui.data.import_outlook import import_outlook, numbers_html, shown_source
from indextts.webui.data.import_sources import source_key, with_chosen_columns
from indextts.webui.data.uploads import store_uploads, upload_message, uploads_html
from tests.one_project import OneProject


def make(folder: Path, **settings: object) -> tuple[Project, ProjectSettings]:
    project = Project(folder / "voice")
    project.root.mkdir()
    return project, ProjectSettings.model_validate({"name": "voice", "base": folder, **settings})


def write_manifest(path: Path, *durations: float | None) -> Path:
    lines = [{"audio": "a.wav", "text": "ሰላም"} | ({"duration": s} if s else {}) for s in durations]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def test_a_project_without_sources_is_blocked_with_a_link_to_the_upload(tmp_path: Path):
    project, settings = make(tmp_path)
    found = prepare(OneProject(project), project, settings, NEW_SOURCES, *[""] * len(FIELDS), "")
    assert found.error
    [blocker] = found.outlook.blockers
    assert blocker.link == "#data/upload"


def test_paths_on_the_server_become_manifest_and_sources_of_the_project(tmp_path: Path):
    project, settings = make(tmp_path)
    write_project(project, settings)
    page, talks = OneProject(project), tmp_path / "talks"
    talks.mkdir()
    manifest = write_manifest(tmp_path / "m.jsonl", 1.0)
    for typed, named in (("absent", "absent"), ("/etc/passwd", "/etc/passwd")):
        with pytest.raises(UserError, match=named):
            store_paths(page, project, typed)
    assert [store_paths(page, project, f"talks\n{manifest}") for _ in "12"] == [True, False]
    stored = read_project(project)
    assert (stored.manifest, stored.data) == (manifest, {"source": [str(talks)]})
    assert named_paths(stored) == f"{manifest}\n{talks}"
    assert store_paths(page, project, " ")
    assert read_project(project).data == {}


def test_a_missing_manifest_is_named_and_blocks(tmp_path: Path):
    project, settings = make(tmp_path, manifest=tmp_path / "absent.jsonl")
    [blocker] = import_outlook(project, plan_imports(project, settings)).blockers
    assert str(tmp_path / "absent.jsonl") in blocker.text
    assert blocker.link


def test_what_will_be_read_and_where_it_goes_is_listed(tmp_path: Path):
    manifest = write_manifest(tmp_path / "set.jsonl", 1800.0, 5400.0)
    project, settings = make(tmp_path, manifest=manifest)
    (project.uploads / "files").mkdir(parents=True)
    (project.uploads / "files/a.wav").write_bytes(b"x" * 1500)
    (project.uploads / "files/a.txt").write_bytes(b"x")
    with zipfile.ZipFile(project.uploads / "talks.zip", "w") as file:
        file.writestr("a/1.flac", b"x")
        file.writestr("a/2.MP3", b"x")
        file.writestr("a/2.txt", b"x")
    outlook = import_outlook(project, plan_imports(project, settings))
    assert not outlook.blockers
    texts = [value for _, value in outlook.facts]
    assert texts[0].startswith("set.jsonl: 2 ")
    assert texts[1].startswith("files: 1 ")
    assert texts[2].startswith("talks.zip: 2 ")
    assert "voice/dataset/" in texts


@pytest.mark.parametrize("content", [b"", b"not a zip"])
def test_an_unreadable_source_has_no_size(tmp_path: Path, content: bytes):
    (tmp_path / "talks.zip").write_bytes(content)
    assert shown_source(tmp_path / "talks.zip", is_manifest=False) == "?"


def test_a_refused_upload_is_a_message_with_its_escaped_name(tmp_path: Path):
    project, _ = make(tmp_path)
    message = upload_message(project, [str(tmp_path / "<img src=x>.wav")], store_uploads)
    assert 'class="bad"' in message
    assert "&lt;img src=x&gt;.wav" in message
    assert uploads_html(project) == ""


def test_imported_data_are_shown_as_numbers(tmp_path: Path):
    project, _ = make(tmp_path)
    assert "<dd>" not in numbers_html(project)
    project.dataset.mkdir()
    clips = [Utterance(str(n), tmp_path / "a.wav", "ሰላም", f"s{n % 2}", 2.0) for n in range(90)]
    write_utterances(project.manifest, clips)
    html = numbers_html(project)
    assert [html.count(f"<dd>{text}<") for text in ("90", "3 min", "2")] == [1, 1, 1]


def test_a_data_set_of_the_hub_is_imported_from_the_form_with_its_filters(tmp_path: Path):
    project, settings = make(tmp_path)
    page = OneProject(project)
    options = ["google/fleurs", "am_et", "train\n dev \n", "v1", 2.5, "almaz\nsara", 0.15, -23.0, "", 1, 20]
    values = [NEW_SOURCES, *[""] * len(FIELDS), "", *options]
    command, *_ = import_commands(page, project, settings, *values)
    assert (command.hub, command.hub_subset, command.hub_split) == (
        "google/fleurs",
        "am_et",
        ["train", "dev"],
    )
    assert command.hub_revision == "v1"
    assert (command.max_hours, command.speakers) == (2.5, ["almaz", "sara"])
    assert (command.trim, command.loudness) == (0.15, -23.0)
    outlook = import_outlook(project, [command])
    assert not outlook.blockers
    assert any("google/fleurs am_et train dev" in value for _, value in outlook.facts)


def test_long_uploads_are_cut_with_the_recognizer_of_the_form(tmp_path: Path):
    project, settings = make(tmp_path)
    (project.uploads / "files").mkdir(parents=True)
    (project.uploads / "files/book.mp3").touch()
    page = OneProject(project)
    values = [NEW_SOURCES, *[""] * len(FIELDS), "", "", "", "", "", 0, "", 0, 0, "owner/asr", 2, 12]
    command, *_ = import_commands(page, project, settings, *values)
    assert (command.asr, command.min_clip_s, command.max_clip_s) == ("owner/asr", 2, 12)
    assert command.asr_folder == tmp_path / "recognizers"
    outlook = import_outlook(project, [command])
    assert any(value == "owner/asr" for _, value in outlook.facts)


def test_answers_for_new_uploads_do_not_replace_those_of_an_imported_data_set(tmp_path: Path):
    project, settings = make(tmp_path, data={"hub": "google/fleurs", "hub_subset": "am_et"})
    (project.uploads).mkdir(parents=True)
    (project.uploads / "new.zip").touch()
    project.dataset.mkdir()
    write_answers(project.dataset, {"hub/google--fleurs--am_et": {"speaker": "bekele"}})
    page = OneProject(project)
    answers = dict.fromkeys(FIELDS, "") | {"speaker": "almaz"}
    values = [NEW_SOURCES, *answers.values(), ""]
    hub, upload, *_ = import_commands(page, project, settings, *values)
    assert (hub.hub, hub.speaker) == ("google/fleurs", "")
    assert upload.speaker == "almaz"


def test_a_choice_of_columns_is_for_its_source_and_not_for_the_hub(tmp_path: Path):
    source = tmp_path / "set.csv"
    source.write_text("a,b\n")
    command = ImportDataset(source=[source], hub="google/fleurs", output_dir=tmp_path / "out")
    hub, own = with_chosen_columns(command, {source_key(source): "audio=0,text=1"})
    assert (hub.hub, hub.source, hub.columns) == ("google/fleurs", [], "")
    assert (own.hub, own.source, own.columns) == ("", [source], "audio=0,text=1")


def test_the_options_of_a_started_import_are_those_of_the_project(tmp_path: Path):
    project, settings = make(tmp_path, data={"trim": 0.5, "max_unpacked_gb": 9})
    write_project(project, settings)
    started = ImportDataset(hub="google/fleurs", loudness=-23, output_dir=project.dataset)
    store_settings(project, [started])
    assert read_project(project).data == {"max_unpacked_gb": 9, "hub": "google/fleurs", "loudness": -23}


COLUMNS = [
    "voice",
    "speaker",
    "clips",
    "minutes",
    "closest",
    "distance",
    "sample_1",
    "sample_2",
    "sample_3",
    "farthest",
]


def write_groups(project: Project, names: dict[str, str]) -> None:
    """Write a group for each name, with one recording in the project."""
    (project.dataset / "audio").mkdir(parents=True, exist_ok=True)
    (project.dataset / "audio/a.wav").write_bytes(b"sound")
    record = {"encoder": "e", "threshold": 0.5, "names": names}
    (project.dataset / "voices.json").write_text(json.dumps(record))
    with (project.dataset / "voices.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for voice, name in names.items():
            writer.writerow([voice, name, 12, 1.5, "", "", "audio/a.wav", "", "", "../../outside.wav"])


def test_groups_are_listed_with_their_names_and_a_clip_of_the_project_to_hear(tmp_path: Path):
    project = Project(tmp_path / "project")
    (tmp_path / "outside.wav").write_bytes(b"secret")
    write_groups(project, {"voice_001": "<b>almaz</b>", "voice_002": "voice_001"})
    html = voices_html(project, read_rows(project.dataset))
    assert html.count("&lt;b&gt;almaz") == 2  # voice_002 is merged into voice_001
    assert html.count("<audio") == 2
    assert "outside.wav" not in html


@pytest.mark.parametrize(("voice", "name"), [("voice_009", "almaz"), ("voice_001", "voice_002")])
def test_an_unknown_voice_and_a_circle_are_refused_and_change_nothing(tmp_path: Path, voice: str, name: str):
    project = Project(tmp_path)
    write_groups(project, {"voice_001": "voice_001", "voice_002": "voice_001"})
    content = (project.dataset / "voices.json").read_bytes()
    with pytest.raises(UserError):
        rename_voice(project.dataset, voice, name)
    assert (project.dataset / "voices.json").read_bytes() == content
