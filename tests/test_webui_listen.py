"""Tests of the export, publishing, scoring and server of tab 8: commands from the forms, and results."""

import hashlib
import io
import json
import re
import shutil
import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.testclient import TestClient

from indextts.commands.speech import Evaluate, ExportModel, PublishModel, Serve
from indextts.commands.terminal import parse, to_argv
from indextts.errors import UserError
from indextts.projects.project import Project, make_settings, read_project
from indextts.speech.export.model_folder import export
from indextts.webui.language import t
from indextts.webui.listen import exporting, scoring, serving
from indextts.webui.listen.exporting import exported
from indextts.webui.listen.renders import newest_pieces, next_folder
from indextts.webui.listen.saved_models import find_model
from indextts.webui.listen.scoring import newest_report, report_html, show
from indextts.webui.listen.tab import empty_state
from indextts.webui.running.outlook import LinkedError, Outlook
from indextts.webui.serving.routes import send_export
from tests.one_project import OneProject
from tests.speaking_run import clips_of, write_adapter
from tests.watched_workspace import make_project


@pytest.fixture
def project(tuned: Project) -> Project:
    return tuned


def planned(project: Project, *values: Any, self_contained: bool = False, language: str = "") -> ExportModel:
    given = (*values, self_contained, language, "training")
    [command] = exporting.prepare(OneProject(project), project, read_project(project), *given).commands
    return command


def test_the_form_decides_type_format_and_mean(project: Project):
    command = planned(project, "latest.pth", "float16", "both", 2)
    assert (command.dtype, command.format, command.average_last) == ("float16", "both", 2)
    assert (command.checkpoint, command.output_dir) == (project.run_dir / "model_step2.pth", project.export)
    assert planned(project, "best.pth", "float32", "pth", None).average_last == 1
    assert planned(project, "best.pth", "float32", "pth", 1, self_contained=True).self_contained
    assert planned(project, None, "float32", "pth", 1) == planned(project, "best.pth", "float32", "pth", 1)
    other = planned(project, "best.pth", "float32", "pth", 1, language="ar")
    assert (other.page_language, other.positions) == ("ar", "training")  # for programs elsewhere
    values = ("latest.pth", "float16", "both", 2, False, "", "published")
    found = exporting.prepare(OneProject(project), project, read_project(project), *values).outlook
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
    assert shown.count("<a href=") == len(files) + 1  # and all of them as one archive
    app = Starlette(
        routes=[Route("/export/{project}.zip", partial(send_export, workspace=project.root.parent))]
    )
    answer = TestClient(app).get(f"/export/{project.root.name}.zip")
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert {folder / name for name in archive.namelist()} == set(files)
    assert TestClient(app).get("/export/other.zip").status_code == 404
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
        [command] = exporting.prepare_publishing(OneProject(project), project, settings, *values).commands
        return command

    with pytest.raises(LinkedError) as refused:
        publish("someone/voice")
    assert refused.value.notice.link == "#listen/listen-export"
    project.export.mkdir(parents=True)
    (project.export / "export.json").touch()
    for values, named in ((("voice",), "USER/NAME"), (("someone/voice", "/etc/licence"), "/etc/licence")):
        with pytest.raises(UserError, match=named):
            publish(*values)
    for typed, kind in (("", "unfilled"), ("voice", "problem")):
        with pytest.raises(LinkedError) as refused:
            publish(typed)
        assert refused.value.notice.kind == kind
    assert publish("someone/voice").dry_run
    command = publish("someone/voice", dry_run=False)
    assert (command.repository, command.dry_run) == ("someone/voice", False)
    assert (command.model_folder, command.run_dir) == (project.export, project.run_dir)


def test_a_server_has_chosen_voices_and_a_key_of_which_only_the_digest_is_stored(project: Project):
    clip, page = clips_of(project)[0], OneProject(project)

    def serve(*voices: str) -> Serve:
        values = ("best.pth", None, list(voices), 0, "", None, None)
        [command] = serving.prepare(page, project, read_project(project), *values).commands
        return command

    with pytest.raises(LinkedError) as refused:
        serve(f"clip:{clip.id}")
    assert (refused.value.notice.link, refused.value.notice.kind) == ("#listen/serve-new-key", "unfilled")
    key = serving.create_key(project)
    stored = project.server_keys.read_text()
    assert key not in stored
    assert hashlib.sha256(key.encode()).hexdigest() in stored
    command = serve(f"clip:{clip.id}")
    assert (command.voices, command.key_file, command.port) == ([clip.audio], project.server_keys, 0)
    with pytest.raises(LinkedError, match=clip.audio.stem):
        serve(f"clip:{clip.id}", f"clip:{clip.id}")
    project.server_keys.unlink()


DEFAULTS = [100, 3, 0, "auto", 25]


def scored(
    project: Project, chosen: list[str] | None, asr: str = "", *values: Any, strength: float | None = None
) -> Evaluate:
    settings, given = read_project(project), values or DEFAULTS
    [command] = scoring.prepare(
        OneProject(project), project, settings, chosen, strength, asr, *given
    ).commands
    return command


def test_a_piece_of_sound_that_is_still_written_is_not_played(tmp_path: Path):
    project = make_project(tmp_path, "tiny")
    folder = project.listen / "0001/a/001.pieces"
    folder.mkdir(parents=True)
    for name in ("001.wav", ".tmp-002.wav"):
        (folder / name).touch()
    assert newest_pieces(project) == [folder / "001.wav"]


def test_the_checkpoints_speak_the_validation_sentences(project: Project):
    command = scored(project, ["model_step1.pth", "best.pth"])
    best = find_model(project, "best.pth").name
    assert [path.name for path in command.checkpoint] == list(dict.fromkeys(["model_step1.pth", best]))
    assert (command.manifest, command.output_dir) == (project.utterances("val"), project.scores / "0001")
    assert parse(Evaluate, to_argv(command)) == command
    assert scored(project, ["best.pth"], "", 7, 3, 3, "cpu", 25).model_dump(
        include={"num_clips", "seed"}
    ) == {"num_clips": 7, "seed": 3}
    adapter = project.listen / "adapters/mine.safetensors"
    write_adapter(project, adapter)
    with_adapter = scored(
        project, ["best.pth", "adapter:tiny/listen/adapters/mine.safetensors"], strength=0.5
    )
    assert (with_adapter.checkpoint[1], with_adapter.adapter_strength) == (adapter, 0.5)
    exported_one = planned(project, "adapter:tiny/listen/adapters/mine.safetensors", "float32", "pth", 1)
    assert exported_one.checkpoint == adapter
    shutil.rmtree(adapter.parent)
    assert scored(project, ["best.pth"], strength=0.5).adapter_strength == 1  # is no LoRA
    asr = project.root / "hears"
    with_asr = scored(project, ["best.pth"], f"\n{asr}\nsomeone/asr\n")
    assert with_asr.asr == [str(asr), "someone/asr"]  # a model of the hub
    assert with_asr.asr_folder == read_project(project).base / "recognizers"
    outside = scored(project, ["best.pth"], "indextts/text").asr  # a folder where the program runs
    assert outside == [str(project.root.parent / "indextts/text")]
    (project.root.parent / "someone/asr").mkdir(parents=True)
    assert scored(project, ["best.pth"], "someone/asr").asr == [str(project.root.parent / "someone/asr")]


def test_missing_and_outside_choices_are_refused(project: Project):
    cases: list[tuple[list[str] | None, str, str]] = [
        (None, "", t("listen.none_to_score")),
        ([], "", t("listen.none_to_score")),
        (["best.pth", "../../other/best.pth"], "", t("listen.no_checkpoint")),
        (["best.pth"], "/etc", "'/etc'"),
        (["best.pth"], "../asr", "'../asr'"),
        (["best.pth"], "a\0b", "a recognizer"),
        (["best.pth"], "ሀ" * 300, "a recognizer"),
        (["best.pth"], "linked/away", "'linked/away'"),
    ]
    (project.root.parent / "linked").mkdir()
    (project.root.parent / "linked/away").symlink_to("/etc")
    for chosen, asr, problem in cases:
        with pytest.raises(UserError, match=re.escape(problem)):
            scored(project, chosen, asr)


SCORE = {
    "name": "recordings",
    "step": None,
    "num_clips": 2,
    "cer": {"ctc<b>": 0.1},
    "cer_interval": {"ctc<b>": [0.05, 0.15]},
    "likeness": None,
    "syllables_per_s": 7.0,
    "length_ratio": 1.0,
    "no_stop": None,
    "loops": None,
    "silent": 0.0,
}


def write_report(folder: Path, note: str, *, is_complete: bool = True) -> None:
    folder.mkdir(parents=True)
    (folder / "report.md").write_text(f"# Evaluation\n\n* {note}\n\n| | step |\n", encoding="utf-8")
    rows = [SCORE, SCORE | {"name": "model_step1200.pth", "step": 1200, "cer": {"ctc<b>": 0.25}}]
    (folder / "summary.jsonl").write_text("\n".join(map(json.dumps, rows)))
    if is_complete:
        (folder / "scores.png").write_bytes(b"\x89PNG")


def test_the_newest_complete_report_is_shown_with_its_downloads(tmp_path: Path):
    project = Project(tmp_path / "voice")
    assert show(project)[1] == ""
    write_report(project.scores / "0001", "older")
    write_report(project.scores / "0009", "newer")
    write_report(project.scores / "0010", "stopped", is_complete=False)
    assert newest_report(project) == project.scores / "0009"
    assert next_folder(project.scores) == project.scores / "0011"
    report, picture = show(project)
    assert "newer" in report
    assert picture.count("download=") == 3
    assert "/0009/scores.png?" in picture


def test_scores_are_a_table_of_aligned_numbers(tmp_path: Path):
    write_report(tmp_path / "0001", "<i>note</i>")
    shown = report_html(tmp_path / "0001")
    assert (shown.count("<tr>"), shown.count("<td>")) == (3, 4)  # name and group
    for cell in ("1,200", "10.0 % (5.0 to 15.0)", "25.0 % (5.0 to 15.0)", "2.50", "-"):
        assert f'<td class="number">{cell}</td>' in shown
    assert "<b>" not in shown
    assert "<i>" not in shown
    missing_rate = SCORE | {"name": "model_step2400.pth", "step": 2400, "cer": {}}
    (tmp_path / "0001/summary.jsonl").write_text("\n".join(map(json.dumps, [SCORE, missing_rate])))
    shown = report_html(tmp_path / "0001")
    assert '<td class="number">0.00</td>' not in shown
    # of no score, of no step, of no rate
    assert shown.count('<td class="number">-</td>') == 2 * (3 + 4) + 1 + 2
    (tmp_path / "0001/summary.jsonl").write_text('{"name": 1}')
    assert "<table" not in report_html(tmp_path / "0001")


def test_a_run_without_validation_sentences_cannot_be_scored(project: Project, tmp_path: Path):
    values = (["best.pth"], None, "", *DEFAULTS)
    settings = read_project(project)

    def looked(of: Project) -> Outlook:
        return scoring.prepare(OneProject(of), of, settings, *values).outlook

    assert not looked(project).blockers
    bare = Project(tmp_path / "bare")
    shutil.copytree(project.run_dir, bare.run_dir)
    [blocker] = looked(bare).blockers
    assert (blocker.link, blocker.kind) == ("#preprocess", "missing")
    bare.utterances("val").parent.mkdir(parents=True)
    bare.utterances("val").touch()  # a split without validation: the stage ran, with an unusable setting
    [blocker] = looked(bare).blockers
    assert (blocker.link, blocker.kind) == ("#preprocess", "problem")
