"""Tests of the export in tab 8: the command from the form, and the downloads."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from indextts.commands.speech import ExportModel
from indextts.errors import UserError
from indextts.projects.project import Project, read_project
from indextts.speech.export import export
from indextts.webui.listen.tab import commands, exported
from tests.speaking_run import make_speaking_project


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return make_speaking_project(tmp_path_factory.mktemp("workspace"))


def planned(project: Project, *values: Any) -> ExportModel:
    [command] = commands(project, read_project(project), *values)
    assert isinstance(command, ExportModel)
    return command


def test_the_form_decides_type_format_and_mean(project: Project):
    command = planned(project, "latest.pth", "float16", "both", 2)
    assert (command.dtype, command.format, command.average_last) == ("float16", "both", 2)
    assert (command.checkpoint, command.output_dir) == (project.run_dir / "latest.pth", project.export)
    assert planned(project, None, "float32", "pth", None).average_last == 1
    assert planned(project, "../../secret.pth", "float32", "pth", 1).checkpoint.parent == project.run_dir
    with pytest.raises(UserError, match="--average-last"):
        planned(project, "latest.pth", "float32", "pth", 0)


def test_every_file_of_the_export_is_a_link_and_nothing_else(project: Project, tmp_path: Path):
    page: Any = SimpleNamespace(find_project=lambda _: project)
    assert exported(page, "tiny") == ""
    folder = export(planned(project, "latest.pth", "bfloat16", "both", 2)).parent
    (tmp_path / "secret").write_text("mine")
    (folder / "link").symlink_to(tmp_path / "secret")
    shown = exported(page, "tiny")
    files = [path for path in folder.iterdir() if not path.is_symlink()]
    assert {"gpt.pth", "gpt.safetensors", "builtin.npz", "export.json"} <= {path.name for path in files}
    assert shown.count("<a href=") == len(files)
    assert all(f'download="{path.name}"' in shown for path in files)
    assert "secret" not in shown
