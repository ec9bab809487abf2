"""Tests of the check on the page, its report, and the cleaning of what it flagged."""

import json
import os
import re
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from indextts.commands.data import CheckData, CleanAudio
from indextts.commands.quality_limits import QualityLimits
from indextts.data.manifest import read_utterances, write_utterances
from indextts.data.quality.reasons import MEASURES, REASONS
from indextts.data.quality.summary import OVERVIEW_NAME, ReasonCount, read_overview
from indextts.data.review import check_folder
from indextts.data.review_table import CLIPS_NAME
from indextts.data.stored_results import StoredResults
from indextts.errors import UserError
from indextts.projects.jobs.records import read_job
from indextts.projects.jobs.starting import CHECK_JOB
from indextts.projects.project import Project, ProjectSettings, make_settings, read_project, write_project
from indextts.system.files import write_json
from indextts.system.json_lines import read_json_lines
from indextts.system.messages import ENGLISH, table
from indextts.webui.data.check_view import (
    LIMITS,
    in_words,
    keep_all,
    kept_limits,
    overview_html,
    prepare,
    prepare_cleaning,
    store_limits,
)
from indextts.webui.data.review_list import row_html
from indextts.webui.data.review_rows import read_review, row_of
from indextts.webui.language import t
from indextts.webui.running.outlook import Start
from indextts.webui.running.panel import CONTINUE, Stage, show_job
from tests.one_project import OneProject
from tests.running_jobs import ended_job
from tests.test_data_check import TEXTS, write_dataset
from tests.test_data_check import checked as check_dataset

HISTOGRAMS = {name for name, measure in MEASURES.items() if measure.title}


@pytest.fixture(scope="module")
def checked_once(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project with seven clips of two seconds and a report on them, which all are too short."""
    project = Project(tmp_path_factory.mktemp("checked"))
    project.dataset.mkdir()
    write_dataset(project.dataset, TEXTS)
    check_dataset(project.dataset, "check", min_duration_s=3, warn_min_duration_s=4, min_snr_db=15)
    return project


@pytest.fixture
def project(checked_once: Project, tmp_path: Path) -> Project:
    """Return a copy of the checked project, with the times of its files."""
    shutil.copytree(checked_once.dataset, tmp_path / "dataset")
    return Project(tmp_path)


def shown(project: Project) -> str:
    return overview_html(project, check_folder(project.manifest))


def test_before_a_check_a_link_leads_on(tmp_path: Path):
    project = Project(tmp_path)
    assert shown(project) == ""  # the run panel leads to the import
    project.dataset.mkdir()
    write_dataset(project.dataset, TEXTS)
    assert 'href="#data/check-start"' in shown(project)


def test_each_reason_has_its_count_and_a_link_to_its_clips(project: Project):
    html = shown(project)
    [row] = [row for row in re.findall(r"<tr>.*?</tr>", html) if "too_short" in row]
    assert 'href="#data/data-tab-review"' in row
    assert re.findall(r">(\d+) clips<", row) == ["7"]
    assert html.count('<li class="bad">') == 2  # too many rejected, and no voice left


def test_histograms_have_the_limits_that_were_checked(project: Project):
    html = shown(project)
    of_models = {
        "error_percent",
        "alignment",
        "sig",
        "bak",
        "ovrl",
        "bak_below",
        "sig_below",
        "voice_deviation",
        "halves_deviation",
        "length_deviation",  # of too few clips
        "music_db",  # of too short pauses
    }
    assert html.count("<svg") == len(HISTOGRAMS - of_models)
    assert "&lt; 15" in html


def test_a_limit_has_a_slider_with_the_number_of_clips_that_each_value_keeps(project: Project):
    overview = read_overview(check_folder(project.manifest))
    [found] = [each for each in overview.histograms if each.measure == "snr_db"]
    hard, soft = found.limits
    values = [
        clip["measures"]["snr_db"] for _, clip in read_json_lines(check_folder(project.manifest) / CLIPS_NAME)
    ]
    assert (hard.field, soft.choices) == ("min_snr_db", [])
    assert hard.choices == [(value, sum(snr >= value for snr in values)) for value, _ in hard.choices]
    assert hard.choices[0][1] == 7  # the lowest keeps all clips
    assert 15 in dict(hard.choices)  # the limit of the check
    assert 'data-field="min_snr_db"' in shown(project)


def test_all_clips_of_a_reason_are_kept_at_once_except_for_those_a_person_rejected(project: Project):
    assert json.dumps(["too_short", "keep"]) in unescape(shown(project))
    review = read_review(project)
    review.decide(0, {"verdict": "reject"})
    html = keep_all(project, "too_short")[1]
    assert [read_review(project).is_kept.sum(), review.is_kept[0]] == [6, False]
    assert '"keep"' not in unescape(html)


def test_the_end_of_a_check_is_told_in_clips_with_a_link_to_what_solves_it(project: Project):
    job = read_job(ended_job(project.jobs / "20260101_000000_data", "", reason="failed", status=1))
    assert job
    os.utime(check_folder(project.manifest) / OVERVIEW_NAME)
    words, links = in_words(project, job)
    assert (words.count("7"), "status" in words) == (3, False)  # clips, rejected, too short
    assert "#data/check-limits" in [link for link, _ in links]
    os.utime(check_folder(project.manifest) / OVERVIEW_NAME, (0, 0))  # of an earlier check
    assert in_words(project, job) == ("", ())


def test_checked_data_lead_to_the_tokenizer_with_the_main_button(project: Project):
    write_project(project, ProjectSettings.model_validate({"name": "voice", "base": project.root}))
    (project.dataset / "audio").mkdir()
    project.base_checkpoint.parent.mkdir(exist_ok=True)
    project.base_checkpoint.touch()
    stage = Stage(CHECK_JOB, "data.check", lambda *_: Start(), onward=CONTINUE)
    link = show_job(project, stage, "")[5]
    assert ("primary-link" in link, 'href="#tokenizer"' in link) == (True, True)
    project.manifest.unlink()
    assert show_job(project, stage, "")[5] == ""


def test_the_limits_of_a_check_are_those_of_the_next_import(tmp_path: Path):
    project = Project(tmp_path)
    write_project(project, ProjectSettings.model_validate({"name": "voice", "base": tmp_path}))
    store_limits(project, [CheckData(min_snr_db=3)])
    assert read_project(project).check == {"min_snr_db": 3}
    assert 3 in kept_limits(project, "")


def prepared(workspace: Path, project: Project, asr: str | None = "", quality: str = "full") -> Start:
    settings = ProjectSettings.model_validate({"name": "voice", "base": workspace / "checkpoints"})
    values = [getattr(QualityLimits(), name) for name in LIMITS]
    return prepare(OneProject(Project(workspace / "any")), project, settings, asr, quality, *values)


def facts(*given: Any, **changes: Any) -> dict[str, str]:
    return dict(prepared(*given, **changes).outlook.facts)


def test_a_check_needs_imported_data(tmp_path: Path, project: Project):
    [blocker] = prepared(tmp_path, Project(tmp_path / "new")).outlook.blockers
    assert blocker.link == "#data/upload"
    assert not prepared(tmp_path, project).outlook.blockers


def test_the_recognizer_of_the_form_is_in_the_command_and_in_the_outlook(tmp_path: Path, project: Project):
    for typed, asr in ((None, ""), (" someone/asr ", "someone/asr"), ("asr", str(tmp_path / "asr"))):
        [command] = prepared(tmp_path, project, typed).commands
        assert isinstance(command, CheckData)
        assert command.asr == asr
        shown_asr = facts(tmp_path, project, typed)[t("data.facts.recognizer")]
        assert shown_asr == (asr or t("data.no_recognizer"))
    assert command.asr_folder == tmp_path / "checkpoints/recognizers"
    with pytest.raises(UserError, match="'/etc'"):
        prepared(tmp_path, project, "/etc")


def test_the_outlook_has_the_time_of_the_ratings_that_are_missing(tmp_path: Path, project: Project):
    label = t("data.facts.rating")
    assert label not in facts(tmp_path, project, quality="fast")
    assert facts(tmp_path, project)[label].startswith("7 ")
    with StoredResults(check_folder(project.manifest), "dnsmos", "1") as results:
        for number in range(7):
            results.add(str(number), [3.0, 3.0, 3.0])
    assert facts(tmp_path, project)[label] == t("data.facts.all_rated")


def test_every_reason_measure_and_code_has_a_text():
    ids = {f"data.reasons.{reason.name}" for reason in REASONS}
    ids |= {f"data.measures.{name}" for name in HISTOGRAMS}
    ids |= {f"data.problems.{code}" for code in ("other_script", "too_many_rejected", "no_voice")}
    assert ids <= table(ENGLISH).keys()


def test_a_cleaning_needs_a_check_and_flags_and_checks_again(tmp_path: Path, project: Project):
    def looked() -> Start:
        return prepare_cleaning(OneProject(project), project, make_settings(name="voice", base=tmp_path))

    overview = read_overview(check_folder(project.manifest))
    [blocker] = looked().outlook.blockers
    assert blocker.kind == "finished"  # too short clips are not cleaned
    overview.reasons.append(ReasonCount(name="noisy", count=2, hours=0.1))
    write_json(check_folder(project.manifest) / OVERVIEW_NAME, overview.model_dump())
    assert not looked().outlook.blockers
    shutil.rmtree(check_folder(project.manifest))
    [blocker] = looked().outlook.blockers
    assert blocker.link == "#data/check-start"
    clean, check = looked().commands
    assert isinstance(clean, CleanAudio)
    assert isinstance(check, CheckData)
    assert clean.manifest == check.train_manifest == project.manifest


def test_a_cleaned_clip_has_players_before_and_after(project: Project):
    # in the copied manifest, the recordings are those of the checked project
    clips = read_utterances(project.manifest)
    own = [replace(clip, audio=project.dataset / clip.audio.name) for clip in clips]
    write_utterances(project.manifest, own)
    (project.dataset / "audio").mkdir()
    shutil.copy(project.dataset / "1.wav", project.dataset / "audio/two.wav")
    scores = {"ovrl": 2.0, "sig": 3.0, "bak": 2.0, "snr_db": 10.0}
    record = {"id": "u0", "input": "two.wav", "before": scores, "after": scores}
    for is_used, count in ((True, 2), (False, 0)):
        line = json.dumps({**record, "is_used": is_used})
        (project.dataset / "cleaned.jsonl").write_text(f"{line}\n", encoding="utf-8")
        review = read_review(project)
        html = row_html(project, row_of(review, review.table.place_of["u0"]))
        assert html.count("<audio") == count
        assert html.count("two.wav") == count / 2
        assert "<audio" not in row_html(project, row_of(review, review.table.place_of["u1"]))
