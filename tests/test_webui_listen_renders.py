"""Tests of indextts/webui/listen/renders.py and comparing.py: renders are found again and judged blindly."""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.webui.listen.comparing import next_number, show
from indextts.webui.listen.renders import (
    history_html,
    model_title,
    newest_render,
    next_folder,
    tally,
    vote,
    votes,
)

STEPS = {"a": 200, "b": 236}


def write_side(folder: Path, side: str, count: int = 3, **changes: object) -> None:
    (folder / side).mkdir(parents=True)
    lines = []
    for number in range(1, count + 1):
        (folder / side / f"{number:03}.wav").write_bytes(side.encode())
        record = {"file": f"{number:03}.wav", "text": f"t{number}", "spoken": f"s{number}", "seconds": 1.0}
        rest = {"has_stopped": True, "checkpoint": f"{side}.pth", "step": STEPS[side], "part": 1, "more": 1}
        lines.append(json.dumps(record | rest | changes))
    (folder / side / "spoken.jsonl").write_text("\n".join(lines) + "\n")


def compared(tmp_path: Path, count: int = 3) -> Project:
    project = Project(tmp_path / "voice")
    folder = next_folder(project.listen)
    for side in "ab":
        write_side(folder, side, count)
    return project


def test_the_newest_complete_render_is_shown_and_the_next_gets_a_new_name(tmp_path: Path):
    project = Project(tmp_path / "voice")
    assert newest_render(project, is_comparison=False) is None
    assert next_folder(project.listen).name == "0001"
    write_side(project.listen / "0009", "a")
    (project.listen / "0010/a").mkdir(parents=True)
    (project.listen / "0010/a/001.wav").touch()  # stopped: no record
    (project.listen / "voices").mkdir()
    render = newest_render(project, is_comparison=False)
    assert newest_render(project, is_comparison=True) is None
    assert (render.name, render.is_comparison) == ("0009", False)
    assert [sound.path.name for sound in render.sides[0] if sound.path] == ["001.wav", "002.wav", "003.wav"]
    assert next_folder(project.listen).name == "0011"


def test_a_lora_at_two_strengths_is_two_models(tmp_path: Path):
    project = Project(tmp_path / "voice")
    for side, strength in (("a", 1.0), ("b", 0.5)):
        write_side(project.listen / "0001", side, 1, checkpoint="best.pth", step=9, strength=strength)
    assert vote(project, "0001", 1, "same").choice == "same"
    assert {vote.first for vote in votes(project)} | {vote.second for vote in votes(project)} == {
        "step 9",
        "step 9 at strength 0.5",
    }
    assert model_title("step 9 at strength 0.5") == "Step 9, adapter strength 0.5"


def test_a_record_cannot_name_a_file_outside_its_folder(tmp_path: Path):
    project = Project(tmp_path / "voice")
    (tmp_path / "secret.wav").write_bytes(b"x")
    write_side(project.listen / "0001", "a", 1, file="../../../../secret.wav")
    assert newest_render(project, is_comparison=False).sides[0][0].path is None


def test_the_order_of_a_comparison_is_random_and_fixed(tmp_path: Path):
    project = compared(tmp_path, count=60)
    render, again = (newest_render(project, is_comparison=True) for _ in range(2))
    orders = [render.pair(number)[0].spoken.checkpoint for number in range(1, 61)]
    assert orders == [again.pair(number)[0].spoken.checkpoint for number in range(1, 61)]
    assert all(count > 15 for count in Counter(orders).values())  # of 60, half on average
    assert {sound.spoken.step for sound in render.pair(1)} == {200, 236}


def test_votes_are_stored_and_counted_for_the_model_that_was_played(tmp_path: Path):
    project = compared(tmp_path)
    render = newest_render(project, is_comparison=True)
    winner = render.pair(1)[0].spoken.step
    assert vote(project, render.name, 1, "first").first == f"step {winner}"
    loser = render.pair(2)[1].spoken.step
    vote(project, render.name, 2, "second")
    vote(project, render.name, 3, "same")
    wins = Counter([winner, loser])
    assert tally(votes(project)) == [["step 200", "step 236", wins[200], wins[236], 1]]
    assert [one.text for one in votes(project)] == ["t1", "t2", "t3"]


def test_a_text_gets_one_vote_and_only_with_two_checkpoints(tmp_path: Path):
    project = Project(tmp_path / "voice")
    with pytest.raises(UserError):
        vote(project, "0001", 1, "first")
    project = compared(tmp_path)
    render = newest_render(project, is_comparison=True)
    vote(project, render.name, 1, "first")
    with pytest.raises(UserError, match="text 1 "):
        vote(project, render.name, 1, "second")
    for number in (0, 4, -1):
        with pytest.raises(UserError, match=rf"(?<!\S){number}\b"):
            vote(project, render.name, number, "first")
    with pytest.raises(UserError, match="'both'"):
        vote(project, render.name, 2, "both")
    with pytest.raises(UserError, match="newer comparison"):
        vote(project, f"{int(render.name) - 1:04}", 2, "first")  # heard before
    assert len(votes(project)) == 1


def test_a_folder_that_an_active_job_will_write_is_taken(tmp_path: Path):
    project = Project(tmp_path / "voice")
    write_side(project.listen / "0004", "a", 1)
    words = (f"--output={project.listen}/0006/b", f"--text=--output={project.listen}/0009", "--output=0011")
    jobs: Any = [SimpleNamespace(is_active=is_active, argvs=(words,)) for is_active in (True, False)]
    assert next_folder(project.listen, jobs).name == "0007"
    assert next_folder(project.listen, jobs[1:]).name == "0005"


def test_the_history_has_a_player_for_each_file_inside_the_project(tmp_path: Path):
    project = Project(tmp_path / "voice")
    assert history_html(project) == ""
    write_side(project.listen / "0001", "a", 2, spoken="<b>")
    write_side(project.listen / "0002", "a", 1, file="../../../secret.wav")
    for side in "ab":
        write_side(project.listen / "0003", side, 1)
    write_side(project.listen / "0004", "a", 1)
    shown = history_html(project)
    assert shown.count("<li>") == 3  # the newest text is beside the form, a comparison is heard blindly
    assert shown.count("<audio") == 2
    assert "secret" not in shown
    assert "<b>" not in shown
    write_side(project.listen / "0005", "a", 200)
    assert history_html(project).count("<li>") == 100


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
        assert first.count("data:audio/wav;base64,") == second.count("data:audio/wav;base64,") == 1
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
