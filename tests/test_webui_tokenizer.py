from pathlib import Path

import pytest

from indextts.projects.project import Project, make_settings, read_project, write_project
from indextts.projects.stages import plan_check
from indextts.webui.tokenizer.tab import OPTIONS, commands, project_values, store_settings


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    write_project(project, make_settings(name="voice", base=tmp_path, normalizer={"fifty": "አምሳ"}))
    return project


def test_the_chosen_options_are_shown_again_and_reach_the_check(project: Project):
    size, *values = project_values(project)
    chosen = dict(zip(OPTIONS, values, strict=True))
    assert (size, chosen["fifty"], chosen["acronyms"]) == (0, "አምሳ", "keep")
    typed = [3000, *({**chosen, "acronyms": "letters"}).values()]
    store_settings(project, commands(project, read_project(project), *typed))
    assert project_values(project) == typed
    check = plan_check(project, read_project(project))
    assert (check.fifty, check.acronyms) == ("አምሳ", "letters")
