"""Tests of the export in tab 8: the command from the form, and the downloads."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from indextts.commands.speech import ExportModel
from indextts.errors import UserError
from indextts.projects.project import Project, read_project
from indextts.speech.export.model_folder import export
from indextts.webui.listen.exporting import commands, exported, outlook, weights_bytes
from indextts.webui.listen.saved_models import find_model
from indextts.webui.listen.tab import empty_state
from indextts.webui.running.outlook import LinkedError
from tests.one_project import OneProject
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
    page = OneProject(project)
    assert "<a href=" not in exported(page, "tiny")
    folder = export(planned(project, "latest.pth", "bfloat16", "both", 2)).parent
    (tmp_path / "secret").write_text("mine")
    (folder / "link").symlink_to(tmp_path / "secret")
    shown = exported(page, "tiny")
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert {"gpt.pth", "gpt.safetensors", "builtin.npz", "export.json"} <= {path.name for path in files}
    assert shown.count("<a href=") == len(files)
    assert ">spoken_text/text/normalize.py</a>" in shown
    assert all(f'download="{path.name}"' in shown for path in files)
    assert "secret" not in shown
    (folder / "link").unlink()


@pytest.mark.long
def test_the_outlook_has_the_size_of_the_weights(project: Project):
    sizes = []
    for dtype, format in (("float32", "pth"), ("float16", "pth"), ("float16", "both")):
        command = planned(project, "best.pth", dtype, format, 1)
        size = weights_bytes(project, find_model(project, "best.pth"), command)
        assert size is not None
        sizes.append(size)
    assert sizes[0] == 2 * sizes[1] == sizes[2]
    weights = export(planned(project, "best.pth", "float32", "pth", 1))
    tensors = torch.load(weights, weights_only=True).values()
    assert sizes[0] == pytest.approx(4 * sum(tensor.numel() for tensor in tensors), rel=0.01)


def test_a_project_without_a_checkpoint_leads_to_its_next_step(project: Project, tmp_path: Path):
    new = make_project(tmp_path, "new")
    page: Any = SimpleNamespace(find_project=lambda name: project if name == "tiny" else new)
    assert empty_state(page, "tiny") == ""
    assert 'href="#data"' in empty_state(page, "new")  # the next step
    with pytest.raises(LinkedError) as refused:
        find_model(new, "best.pth")
    assert (refused.value.notice.link, refused.value.notice.kind) == ("#training", "missing")
