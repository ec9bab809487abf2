"""Tests of the export, publishing and server of tab 8: the commands from the forms, and the downloads."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from indextts.commands.speech import ExportModel, PublishModel, Serve
from indextts.errors import UserError
from indextts.projects.project import Project, make_settings, read_project
from indextts.speech.export.model_folder import export
from indextts.webui.listen import publishing
from indextts.webui.listen.exporting import commands, exported, outlook
from indextts.webui.listen.saved_models import find_model
from indextts.webui.listen.serving import create_key, serve_commands
from indextts.webui.listen.tab import empty_state
from indextts.webui.running.outlook import LinkedError
from tests.one_project import OneProject
from tests.speaking_run import clips_of
from tests.watched_workspace import make_project


@pytest.fixture
def project(speaking_project: Project) -> Project:
    return speaking_project


def planned(project: Project, *values: Any, self_contained: bool = False) -> ExportModel:
    [command] = commands(project, read_project(project), *values, self_contained)
    assert isinstance(command, ExportModel)
    return command


def test_the_form_decides_type_format_and_mean(project: Project):
    command = planned(project, "latest.pth", "float16", "both", 2)
    assert (command.dtype, command.format, command.average_last) == ("float16", "both", 2)
    assert (command.checkpoint, command.output_dir) == (project.run_dir / "model_step2.pth", project.export)
    assert planned(project, "best.pth", "float32", "pth", None).average_last == 1
    assert planned(project, "best.pth", "float32", "pth", 1, self_contained=True).self_contained
    assert planned(project, None, "float32", "pth", 1) == planned(project, "best.pth", "float32", "pth", 1)
    found = outlook(project, read_project(project), [command])
    assert not found.blockers
    assert str(project.export) in [value for _, value in found.facts]
    with pytest.raises(UserError):
        planned(project, "../../secret.pth", "float32", "pth", 1)
    with pytest.raises(UserError, match="--average-last"):
        planned(project, "latest.pth", "float32", "pth", 0)


def test_every_file_of_the_export_is_a_link_and_nothing_else(project: Project, tmp_path: Path):
    assert "<a href=" not in exported(project)
    folder = export(planned(project, "latest.pth", "bfloat16", "both", 2)).parent
    (tmp_path / "secret").write_text("mine")
    (folder / "link").symlink_to(tmp_path / "secret")
    shown = exported(project)
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert {"gpt.pth", "gpt.safetensors", "builtin.npz", "export.json"} <= {path.name for path in files}
    assert shown.count("<a href=") == len(files)
    assert ">spoken_text/text/normalize.py</a>" in shown
    assert all(f'download="{path.name}"' in shown for path in files)
    assert "secret" not in shown
    (folder / "link").unlink()


def test_a_project_without_a_checkpoint_leads_to_its_next_step(project: Project, tmp_path: Path):
    new = make_project(tmp_path, "new")
    assert empty_state(project) == ""
    assert 'href="#data"' in empty_state(new)  # the next step
    with pytest.raises(LinkedError) as refused:
        find_model(new, "best.pth")
    assert (refused.value.notice.link, refused.value.notice.kind) == ("#training", "missing")


def test_only_an_exported_model_is_published_and_to_a_named_repository(tmp_path: Path):
    project, settings = Project(tmp_path / "voice"), make_settings(name="voice", base=tmp_path)

    def publish(repository: str, licence: str = "", *, dry_run: bool = True) -> PublishModel:
        values = (repository, licence, "", "", dry_run)
        return publishing.commands(OneProject(project), project, settings, *values)[0]

    with pytest.raises(LinkedError) as refused:
        publish("someone/voice")
    assert refused.value.notice.link == "#listen/listen-export"
    project.export.mkdir(parents=True)
    (project.export / "export.json").touch()
    for values, named in ((("voice",), "USER/NAME"), (("someone/voice", "/etc/licence"), "/etc/licence")):
        with pytest.raises(UserError, match=named):
            publish(*values)
    assert publish("someone/voice").dry_run
    command = publish("someone/voice", dry_run=False)
    assert (command.repository, command.dry_run) == ("someone/voice", False)
    assert (command.model_folder, command.run_dir) == (project.export, project.run_dir)


def test_a_server_has_chosen_voices_and_a_key_of_which_only_the_digest_is_stored(project: Project):
    clip, page = clips_of(project)[0], OneProject(project)

    def serve(*voices: str) -> Serve:
        values = ("best.pth", list(voices), 0, "", None, None)
        return serve_commands(page, project, read_project(project), *values)[0]

    with pytest.raises(LinkedError) as refused:
        serve(f"clip:{clip.id}")
    assert refused.value.notice.link == "#listen/serve-new-key"
    key = create_key(project)
    stored = project.server_keys.read_text()
    assert key not in stored
    assert hashlib.sha256(key.encode()).hexdigest() in stored
    command = serve(f"clip:{clip.id}")
    assert (command.voices, command.key_file, command.port) == ([clip.audio], project.server_keys, 0)
    with pytest.raises(LinkedError, match=clip.audio.stem):
        serve(f"clip:{clip.id}", f"clip:{clip.id}")
    project.server_keys.unlink()
