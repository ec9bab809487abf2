"""Tests of tab 6 before a start: outlook, resume card, marks at the fields, one answer for each change."""

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.planning.hardware import MachineFacts
from indextts.planning.preflight import run_preflight
from indextts.planning.recipe import recipes
from indextts.planning.restore_plan import plan_from_meta
from indextts.projects.project import Project, ProjectSettings, write_project
from indextts.projects.stages import plan_stage
from indextts.runs import owner
from indextts.runs.directory import CheckpointMeta
from indextts.runs.restore_rows import RestoreRow, new_run_rows, refused_row, restore_rows
from indextts.system.files import write_json
from indextts.webui.language import t, use_language
from indextts.webui.monitor.curves_view import differences_html
from indextts.webui.running.outlook import Outlook, Start
from indextts.webui.serving.security import Roots
from indextts.webui.training import tab
from indextts.webui.training.resume_card import AUTO, card_values, rows_html
from indextts.webui.training.settings_form import changed_fields, marks_html
from indextts.webui.training.tab import ask_trainer, needs_weights, prepare, resume_update, resume_value
from indextts.webui.training.training_form import (
    AUTOMATIC_VALUES,
    CUSTOM,
    NAMES,
    OWN,
    PROPOSE,
    element_of,
    filled,
    project_values,
    recipe_values,
    run_fillings,
    source_of,
    store_resume,
)
from indextts.webui.training.training_outlook import invalid_outlook, outlook_of, plan_rows
from tests.tiny_run import TinyRun, make_tiny_run, write_tokenizer

CPU = MachineFacts((), 2, 8 << 30)
ETHIOPIC = re.compile(r"[\u1200-\u137f]")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    run = make_tiny_run(tmp_path_factory.mktemp("trained"))
    assert run.train(max_steps=4, save_interval=2, val_interval=2, keep_checkpoints=5) == 0
    (run.output / ".lock").write_text("")  # the pid of this process, which stays alive
    return run


@pytest.fixture
def run(trained: TinyRun, tmp_path: Path) -> TinyRun:
    """A run at step 4 of 12."""
    return TinyRun(shutil.copytree(trained.folder, tmp_path / "run"))


def looked(run: TinyRun, **changes: object) -> Outlook:
    command = parse(Train, run.flags(**{"max_steps": 12, **changes}))
    found = run_preflight(command, CPU)
    return outlook_of(command, found, is_unknown=needs_weights(command, found))


def kinds(run: TinyRun, **changes: object) -> set[str]:
    command = parse(Train, run.flags(**{"max_steps": 12, **changes}))
    return {row.kind for row in plan_rows(command, run_preflight(command, CPU))}


def links(outlook: Outlook) -> list[str]:
    return [blocker.link for blocker in outlook.blockers]


def test_a_resume_that_continues_loses_nothing_and_names_its_step(run: TinyRun):
    outlook = looked(run, resume="auto")
    assert (outlook.blockers, outlook.losses) == ([], [])
    assert "4" in outlook.button
    assert "restarts" not in kinds(run, resume="auto")


def test_a_resume_that_restarts_says_what_is_lost(run: TinyRun):
    write_tokenizer(run.folder / "tokenizer.model", num_appended=300)
    outlook = looked(run, resume="auto")
    [loss] = outlook.losses
    assert outlook.loss_key
    assert "720" in loss.text
    assert "700" in loss.text
    assert "4" in loss.text
    assert loss.link == "#tokenizer"
    assert "restarts" in kinds(run, resume="auto")


def test_a_resume_with_nothing_left_offers_more(run: TinyRun):
    assert links(looked(run, resume="auto", max_steps=4)) == ["#training/Train-max_steps"]
    assert links(looked(run, resume="auto", epochs=1, max_steps=0)) == ["#training/Train-epochs"]
    assert {"finished"} < kinds(run, resume="auto", max_steps=4)
    assert [value for _, value in looked(run, resume="auto", max_steps=4).facts] == ["0 more, to 4"]


def test_a_file_without_a_meta_file_is_left_to_the_trainer(run: TinyRun):
    path = run.folder / "base/gpt.pth"
    assert kinds(run, resume=path) == {"unknown"}
    assert "#training/train-read" in [note.link for note in looked(run, resume=path).notes]
    command = parse(Train, run.flags(resume=path))
    with pytest.raises(UserError, match="missing required keys"):
        ask_trainer(command)


def test_a_problem_links_to_the_tab_or_field_that_solves_it(run: TinyRun):
    assert links(looked(run)) == ["#training/train-resume"]
    assert links(looked(run, output_dir=run.folder / "x", resume="auto")) == ["#training/train-resume"]
    (run.folder / "base/gpt.pth").unlink()
    assert links(looked(run, output_dir=run.folder / "x")) == ["#project"]
    (run.folder / "train_pairs.jsonl").unlink()
    assert "#pairs" in links(looked(run, output_dir=run.folder / "x"))


def test_an_invalid_value_is_reported_at_its_field_and_escaped():
    error = UserError("the project's settings of train: --epochs: got '<b>\"'; --gpus: no such GPU")
    outlook = invalid_outlook(error)
    assert links(outlook) == ["#training/Train-epochs", "#training/Launch-gpus"]
    with pytest.raises(UserError) as outside:
        resume_value(Roots(Path("/workspace")), True, "/etc/passwd", Path("/workspace/run"))
    assert links(invalid_outlook(outside.value)) == ["#training/train-resume-path"]
    html = marks_html(None, None, error)
    assert html.count("--problem") == 2
    assert "#Train-epochs{" in html
    assert "<b>" not in html
    assert element_of("no flag") is None
    assert element_of("--no-such-flag: x") is None


def test_chosen_values_are_shown_at_automatic_fields_only(run: TinyRun):
    command = parse(Train, run.flags(batch_tokens=None, amp=None))
    chosen = run_preflight(parse(Train, run.flags(output_dir=run.folder / "x")), CPU).estimate
    html = marks_html(command, chosen.facts.settings)
    assert "#Train-batch_tokens{" in html
    assert "#Train-amp{" in html
    assert "#Train-batch_size{" not in html


def test_a_bare_file_name_is_looked_up_in_the_run_directory(tmp_path: Path):
    roots, run_dir = Roots(tmp_path), tmp_path / "voice/run"
    assert resume_value(roots, True, "model_step2.pth", run_dir) == str(run_dir / "model_step2.pth")
    assert resume_value(roots, True, "voice/x.pth", run_dir) == str(tmp_path / "voice/x.pth")
    assert resume_value(roots, True, " ", run_dir) == "auto"
    assert resume_value(roots, False, "x.pth", run_dir) == ""
    for outside in ("/etc/passwd", "/etc/x.pth", "../x.pth", "..", "metrics.jsonl"):
        with pytest.raises(UserError):
            resume_value(Roots(run_dir), True, outside, run_dir)


def test_the_menu_of_values_names_what_the_form_has(tmp_path: Path):
    (tmp_path / "voice").mkdir()
    own = project_values(Project(tmp_path / "voice"), ProjectSettings(name="voice", base=Path("base")))
    assert source_of(own, own) == OWN
    assert source_of({**own, "resume": True}, own) == OWN
    for recipe in recipes():
        assert source_of({**own, **recipe_values(recipe)}, own) == recipe.id
    assert source_of({**own, "epochs": 77}, own) == CUSTOM
    set_own = {**own, "batch_size": 8}
    assert source_of({**set_own, **AUTOMATIC_VALUES}, set_own) == PROPOSE


def test_the_settings_of_a_run_are_loaded_by_its_project_and_compared(tmp_path: Path):
    project, other = (Project(tmp_path / name) for name in ("voice", "other"))
    settings = ProjectSettings(name="voice", base=Path("base"))
    own = project_values(project, settings)
    for each, epochs in ((project, 3), (other, 77)):
        each.run_dir.mkdir(parents=True)
        write_project(each, settings.model_copy(update={"name": each.root.name}))
        command = plan_stage(each, settings, "train").commands[0].model_dump(mode="json")
        write_json(each.run_dir / "config.json", {"command": {**command, "epochs": epochs, "batch_size": 9}})
    runs = run_fillings(tmp_path)
    assert runs["run:other"]["batch_size"] is None  # which suits a machine
    assert source_of({**own, **runs["run:other"]}, own, runs) == "run:other"
    html = differences_html(tmp_path, project, ["other:0", "../x:0", "voice:1"])
    assert re.findall(r'<td class="number">(\w+)</td>', html) == ["3", "77"]
    assert differences_html(tmp_path, project, []) == ""


def test_a_resume_is_ticked_with_the_first_checkpoint_unless_the_user_unticked_it(tmp_path: Path):
    project = Project(tmp_path / "voice")
    project.run_dir.mkdir(parents=True)
    assert "value" not in resume_update(project)[0]
    (project.run_dir / "latest.pth").touch()
    assert resume_update(project)[0].value is True
    settings = ProjectSettings(name="voice", base=Path("base"))
    changed_fields(project, settings, project_values(project, settings) | {"resume": False})
    assert resume_update(project)[0].value is True  # the form was filled before the checkpoint
    store_resume(project, settings, False)
    assert "value" not in resume_update(project)[0]
    assert filled(project, settings)["resume"] is False
    store_resume(project, settings, True)
    assert resume_update(project)[0].value is True


def planned(run: TinyRun, **changes: object) -> list[RestoreRow]:
    found = plan_from_meta(parse(Train, run.flags(resume="auto", **changes)))
    assert found is not None
    return restore_rows(found)


@pytest.mark.parametrize(("rank", "happens"), [(0, "merged"), (2, "reduced"), (8, "kept")])
@pytest.mark.failure(74)
def test_changed_adapters_are_a_row_that_says_what_happens_to_them(run: TinyRun, rank: int, happens: str):
    path = run.output / "model_step4.json"
    meta = CheckpointMeta.read(path)
    meta.model_copy(update={"settings": {**meta.settings, "lora_rank": 4}}).write(path)
    kinds = {row.name.id: (row.kind, row.text.id) for row in planned(run, lora_rank=rank)}
    assert kinds["restore.adapters"] == ("changed", f"restore.adapters_{happens}")
    assert kinds["restore.optimizer"][0] == "restarts"


def test_the_plan_is_in_the_language_of_the_page(run: TinyRun):
    write_tokenizer(run.folder / "tokenizer.model", num_appended=300)
    rows = planned(run, learning_rate=0.005, seed=7)
    english = rows_html(rows)
    with use_language("am"):
        names = re.findall(r"<b>(.*?)</b><span>(.*?)</span>", rows_html(rows))
    assert len(names) == len(re.findall("<b>", english))
    assert all(ETHIOPIC.search(name) and ETHIOPIC.search(text) for name, text in names)
    assert not ETHIOPIC.search(english)


def test_rows_are_counted_by_kind_and_escaped_and_held_settings_share_a_row(run: TinyRun):
    html = rows_html([refused_row("<b>no</b>"), *new_run_rows(Path("base.pth"), 12, 0, 0)])
    assert "&lt;b&gt;no" in html
    assert f'<span class="continues">{t("restore.kind.continues")} 2</span>' in html
    assert f'<span class="refused">{t("restore.kind.refused")} 1</span>' in html
    assert 'class="restarts"' not in html
    held = rows_html(planned(run, learning_rate=None, batch_size=None))
    assert held.count(t("restore.settings")) == 1


def test_the_menu_lists_the_checkpoints_whatever_the_path_is(run: TinyRun):
    (run.output / "model_step9.pth").write_bytes(b"of another program")
    absent = str(run.output / "absent.pth")
    _title, menu, _plan, _read = card_values(run.output, absent, None, [], can_read=False)
    assert menu.value is None
    assert [name for _, name in menu.choices] == [
        AUTO,
        "model_step4.pth",
        "model_step2.pth",
        "model_step9.pth",
    ]
    for resume in ("model_step2.pth", "latest.pth"):
        path = run.output / resume
        title, menu, *_ = card_values(run.output, str(path), None, [], can_read=False)
        step = "4" if resume == "latest.pth" else "2"
        assert menu.value == f"model_step{step}.pth"
        assert t("training.at_step", step=step) in title


PAGE_SETTINGS = ProjectSettings(name="voice", base=Path("base"))


def prepared(workspace: Path, **changes: Any) -> Start:
    project = Project(workspace / "voice")
    project.root.mkdir(exist_ok=True)
    values = project_values(project, PAGE_SETTINGS) | changes
    page: Any = SimpleNamespace(workspace=workspace, roots=Roots(workspace))
    return prepare(page, project, PAGE_SETTINGS, *(values[name] for name in NAMES))


def test_one_answer_has_the_command_its_blockers_and_the_card(tmp_path, monkeypatch):
    calls = []
    preflight = tab.run_preflight
    monkeypatch.setattr(tab, "run_preflight", lambda *args: calls.append(args) or preflight(*args))
    found = prepared(tmp_path, epochs=3)
    [command] = found.commands
    assert command.epochs == 3
    assert len(calls) == 1
    assert {blocker.link for blocker in found.outlook.blockers} >= {"#pairs", "#tokenizer"}
    assert found.error == ""  # a job that waits may find the files at its turn
    with pytest.raises(UserError, match=r"train_pairs\.jsonl is missing"):
        found.check()
    assert (tmp_path / "voice/drafts/train.json").is_file()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"epochs": 0}, "--epochs"),
        ({"output_dir": "/etc"}, "Run directory"),
        ({"processes": 64}, "64 processes"),
        ({"nodes": 2, "endpoint": "gpu-0"}, r"project\.json"),
    ],
)
def test_an_invalid_form_and_a_forbidden_launch_can_never_start(
    tmp_path: Path, changes: dict[str, Any], problem: str
):
    found = prepared(tmp_path, **changes)
    assert found.outlook.blockers
    assert re.search(problem, found.error)


def test_while_a_trainer_runs_a_forbidden_launch_is_refused_and_no_other_starts(tmp_path: Path):
    [command] = prepared(tmp_path).commands
    owner.prepare(command.output_dir)
    with owner.run_lock(command.output_dir):
        assert "project.json" in prepared(tmp_path, nodes=2, endpoint="gpu-0").error
        found = prepared(tmp_path)
        assert found.error == ""
        with pytest.raises(UserError, match="a training run is using"):
            found.check()


def test_a_training_of_another_project_is_noticed(tmp_path: Path):
    assert not any("other voice" in note.text for note in prepared(tmp_path).outlook.notes)
    other = Project(tmp_path / "other")
    other.root.mkdir()
    write_project(other, ProjectSettings(name="other", title="other voice", base=Path("base")))
    owner.prepare(other.run_dir)
    with owner.run_lock(other.run_dir):
        assert any("other voice" in note.text for note in prepared(tmp_path).outlook.notes)


def test_the_trainer_is_asked_once_for_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = []

    def run(argv: list[str], **streams: Any) -> SimpleNamespace:
        asked.append(argv)
        streams["stdout"].write("[Info] a log line\nold.pth: step 3\n")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    path = tmp_path / "old.pth"
    path.touch()
    files = [f"--{name}={tmp_path / name}" for name in ("train-manifest", "val-manifest", "tokenizer")]
    command = parse(Train, [*files, f"--output-dir={tmp_path}", f"--resume={path}"])
    assert ask_trainer(command) == ask_trainer(command) == "old.pth: step 3"
    assert len(asked) == 1
    path.write_text("another file")
    ask_trainer(command)
    assert len(asked) == 2
    assert "--plan" in asked[-1]
