"""Tests of the table of voices in tab 2, and of the names that a user gives them."""

import csv
import json
from pathlib import Path

import pytest

from indextts.data.importing.voices import read_rows, rename_voice
from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.webui.data.voices import voices_html

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
    project = Project(tmp_path)
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
