"""Tests of demo/plot_codes.py: how the codes of checkpoints compare with the recordings'."""

from pathlib import Path

import pytest

from demo.plot_codes import main
from indextts.errors import UserError
from indextts.runs.directory import checkpoints
from tests.speaking_run import make_speaking_project


@pytest.mark.slow
def test_each_checkpoint_gets_a_line_and_the_run_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run_dir = make_speaking_project(tmp_path).run_dir
    capsys.readouterr()
    assert main([str(run_dir), str(tmp_path / "codes.png")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("| step |")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[3:]]
    steps = sorted({meta.step for _, meta in checkpoints(run_dir)})
    assert [int(row[0]) for row in rows] == steps == [1, 2]
    for _, _, length, stopped, _, distance in rows:
        assert float(length) >= 0
        assert 0 <= int(stopped.rstrip("%")) <= 100
        assert 0 < float(distance) <= 1
    assert (tmp_path / "codes.png").read_bytes().startswith(b"\x89PNG")


def test_a_folder_without_checkpoints_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match="holds no checkpoints"):
        main([str(tmp_path), str(tmp_path / "codes.png")])
