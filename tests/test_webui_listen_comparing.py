"""Tests of the blind comparison in tab 8: what it shows before and after a vote, and without two models."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.webui.listen.comparing import next_number, show
from indextts.webui.listen.renders import vote
from tests.test_webui_listen_renders import write_side

BUTTONS = slice(-4, -1)


def comparison(tmp_path: Path, **changes: object) -> Project:
    """Make a project with three texts that two models spoke."""
    project = Project(tmp_path / "voice")
    for side in "ab":
        write_side(project.listen / "0001", side, **changes)  # type: ignore[arg-type]
    for path in project.listen.rglob("*.wav"):
        soundfile.write(path, np.zeros(240), 24_000)
    return project


def test_a_text_is_blind_until_its_vote_and_then_has_no_vote_buttons(tmp_path: Path):
    project = comparison(tmp_path)
    for number in (1, None):
        nothing, body, text, first, second, result, tally, *buttons, heard = show(project, number)
        assert (nothing, body.visible, text, result, tally) == ("", True, "t1", "", "")
        assert first[0] == second[0] == 24_000
        assert all(button.interactive for button in buttons)
    vote(project, heard, 1, "same")
    shown = show(project, 1)
    assert "200" in shown[5]
    assert "236" in shown[5]
    assert not any(button.interactive for button in shown[BUTTONS])
    assert shown[6].count("<audio") == 2
    assert all(button.interactive for button in show(project, 2)[BUTTONS])


def test_a_model_against_itself_cannot_be_judged(tmp_path: Path):
    project = comparison(tmp_path, step=236)
    nothing, body, *_ = shown = show(project, 1)
    assert "236" in nothing
    assert body.visible is False
    assert not any(button.interactive for button in shown[BUTTONS])
    with pytest.raises(UserError):
        vote(project, shown[-1], 1, "first")


def test_the_next_text_follows_and_the_first_follows_the_last(tmp_path: Path):
    project = comparison(tmp_path)
    assert [next_number(project, number) for number in (None, 1, 2, 3)] == [1, 2, 3, 1]
    nothing, body, text, *_ = show(project, 9)
    assert (nothing, body.visible) == ("", True)
    assert "9" in text
