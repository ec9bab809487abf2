"""Tests of notebooks/colab.ipynb: executed twice, as before and after a disconnect, on a small demo."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from indextts.runs.directory import read_metrics
from tests.conftest import REPOSITORY

NOTEBOOK = REPOSITORY / "notebooks/colab.ipynb"


def execute(folder: Path, steps: int) -> str:
    """Execute the notebook in a folder, with training up to `steps`; return what its cells printed."""
    nbformat: Any = pytest.importorskip("nbformat", reason="needs the extra dev")
    nbclient: Any = pytest.importorskip("nbclient", reason="needs the extra dev")
    pytest.importorskip("ipykernel", reason="needs the extra dev")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    settings = notebook.cells[1]
    assert "DEMO_STEPS = 0 " in settings.source
    settings.source = settings.source.replace("DEMO_STEPS = 0 ", f"DEMO_STEPS = {steps} ")
    settings.source += "\nWITHOUT_GPU = True"
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=None, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("audio" in str(output.get("data", "")) for output in outputs)
    return "".join(output.get("text", "") for output in outputs)


def test_without_a_gpu_the_notebook_stops_with_a_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    settings, drive_and_code = ("".join(cell["source"]) for cell in cells[:2])
    with pytest.raises(SystemExit, match="GPU"):
        exec(f"{settings}\n{drive_and_code}", {})


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # of Jupyter's packages
def test_the_notebook_runs_and_resumes_on_a_new_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    execute(tmp_path, steps=2)
    run = tmp_path / "drive/demo/training_output"
    assert (run / "model_step2.pth").is_file()
    assert not list(tmp_path.glob("drive/**/latest.*"))

    shutil.rmtree(tmp_path / "workspace")  # the machine is gone, Drive is left
    assert "Copied the work back from Drive" in execute(tmp_path, steps=3)
    lines = read_metrics(tmp_path / "workspace/demo/training_output/metrics.jsonl")
    assert [line["step"] for line in lines if line["kind"] == "start"] == [0, 2]
    assert (run / "model_step3.pth").is_file()
