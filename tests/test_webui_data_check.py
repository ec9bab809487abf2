"""Tests of the report of the check on the page."""

import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from indextts.commands.quality_limits import QualityLimits
from indextts.data.quality.reasons import MEASURES, REASONS
from indextts.data.review import check_folder
from indextts.data.stored_results import StoredResults
from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings
from indextts.system.messages import ENGLISH, table
from indextts.webui.data.check_view import LIMITS, check_commands, check_outlook, overview_html
from indextts.webui.language import t
from indextts.webui.running.outlook import Outlook
from tests.one_project import OneProject
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


def test_before_an_import_and_before_a_check_a_link_leads_on(tmp_path: Path):
    project = Project(tmp_path)
    assert 'href="#data/upload"' in shown(project)
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
    }
    assert html.count("<svg") == len(HISTOGRAMS - of_models)
    assert "&lt; 15" in html


def outlook_of(workspace: Path, project: Project, asr: str = "", quality: str = "full") -> Outlook:
    settings = ProjectSettings.model_validate({"name": "voice", "base": workspace / "checkpoints"})
    values, page = [getattr(QualityLimits(), name) for name in LIMITS], OneProject(Project(workspace / "any"))
    planned = check_commands(page, project, settings, asr, quality, *values)
    return check_outlook(page, project, settings, planned)


def test_a_check_needs_imported_data(tmp_path: Path, project: Project):
    [blocker] = outlook_of(tmp_path, Project(tmp_path / "new")).blockers
    assert blocker.link == "#data/upload"
    assert not outlook_of(tmp_path, project).blockers


def test_the_recognizer_of_the_form_is_in_the_command_and_in_the_outlook(tmp_path: Path, project: Project):
    settings = ProjectSettings.model_validate({"name": "voice", "base": tmp_path / "checkpoints"})
    values = ["full", *(getattr(QualityLimits(), name) for name in LIMITS)]
    planned = partial(check_commands, OneProject(Project(tmp_path / "any")), Project(tmp_path), settings)
    assert planned(None, *values)[0].asr == ""
    [command] = planned(" someone/asr ", *values)
    assert (command.asr, command.asr_folder) == ("someone/asr", tmp_path / "checkpoints/recognizers")
    assert planned("asr", *values)[0].asr == str(tmp_path / "asr")
    with pytest.raises(UserError, match="'/etc'"):
        planned("/etc", *values)
    shown_without, shown_with = (
        dict(outlook_of(tmp_path, project, asr).facts) for asr in ("", "someone/asr")
    )
    assert shown_with[t("data.facts.recognizer")] == "someone/asr"
    assert shown_without[t("data.facts.recognizer")] == t("data.no_recognizer")


def test_the_outlook_has_the_time_of_the_ratings_that_are_missing(tmp_path: Path, project: Project):
    label = t("data.facts.rating")
    assert label not in dict(outlook_of(tmp_path, project, quality="fast").facts)
    assert dict(outlook_of(tmp_path, project).facts)[label].startswith("7 ")
    with StoredResults(check_folder(project.manifest), "dnsmos", "1") as results:
        for number in range(7):
            results.add(str(number), [3.0, 3.0, 3.0])
    assert dict(outlook_of(tmp_path, project).facts)[label] == t("data.facts.all_rated")


def test_every_reason_measure_and_code_has_a_text():
    ids = {f"data.reasons.{reason.name}" for reason in REASONS}
    ids |= {f"data.measures.{name}" for name in HISTOGRAMS}
    ids |= {f"data.problems.{code}" for code in ("other_script", "too_many_rejected", "no_voice")}
    assert ids <= table(ENGLISH).keys()
