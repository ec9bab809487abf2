"""Tests of the training form: launch settings, drafts, automatic values, and pairs of another project."""

from collections import Counter
from pathlib import Path

import pytest

from indextts.commands.launching import ALONE, Launch
from indextts.commands.pairs_file import PairsFile, parse_files
from indextts.commands.terminal import to_argv
from indextts.commands.train import Train
from indextts.data.manifest import Pair
from indextts.data.pair_summary import summarise, write_summary
from indextts.data.pairs import PairsResult
from indextts.errors import UserError
from indextts.planning.hardware import GpuFacts
from indextts.planning.recipe import find_recipe
from indextts.projects.project import Project, ProjectSettings
from indextts.webui.forms import read_draft
from indextts.webui.serving.security import Roots
from indextts.webui.training.settings_form import changed_fields, other_nodes, with_file, with_share
from indextts.webui.training.tab import command_of, foreign_machines, launch_in
from indextts.webui.training.training_form import (
    AUTOMATIC_VALUES,
    FIELDS,
    FORM,
    LAUNCH,
    NAMES,
    filled,
    project_values,
    recipe_values,
)

L4 = GpuFacts("NVIDIA L4", 22_478 << 20, (8, 9))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "voice").mkdir()
    return Project(tmp_path / "voice")


def settings_with(**launch: object) -> ProjectSettings:
    return ProjectSettings(name="voice", base=Path("base"), launch=launch)


def launched(*values: object) -> Launch:
    return launch_in([None] * len(FIELDS) + list(values))


def test_the_form_shows_the_projects_launch_settings(project: Project):
    own = project_values(project, settings_with(processes=2, gpus=[1, 0]))
    assert tuple(own) == NAMES
    assert [own[name] for name in LAUNCH] == [2, "1,0", 1, ""]
    with pytest.raises(UserError, match="launch: --processes: "):
        project_values(project, settings_with(processes=0))


def test_an_emptied_field_takes_the_default_and_not_the_projects_value():
    assert launched(None, "", None, None) == ALONE
    assert launched(2.0, "", 1, "") == Launch(processes=2)
    with pytest.raises(UserError, match="--gpus"):
        launched(1, "0; reboot", 1, "")


def test_typed_values_survive_a_reload(project: Project):
    settings = settings_with(gpus="0,1")
    own = project_values(project, settings)
    changed_fields(project, settings, own | {"processes": 2, "nodes": 2, "endpoint": "gpu-0"})
    assert set(read_draft(project, FORM, NAMES)) == {"processes", "nodes", "endpoint"}
    again = filled(project, settings)
    assert [again[name] for name in LAUNCH] == [2, "0,1", 2, "gpu-0"]
    changed_fields(project, settings, again | {"endpoint": ""})  # two machines without an address
    assert [filled(project, settings)[name] for name in LAUNCH] == [2, "0,1", 1, ""]


def test_the_recipe_for_base_and_hours_is_offered_until_it_is_used(project: Project):
    settings = settings_with()
    own = project_values(project, settings)
    _, text, use, *_ = changed_fields(project, settings, own)
    assert not use.visible  # no pairs yet
    assert "Japanese" in text
    assert "Vietnamese" not in text  # of another base
    pairs = project.pairs("train")
    pairs.parent.mkdir()
    hours_40 = Pair("b__a", "s", "a", "b", "ሰላም", 75, 3600 * 40, 2, Path("f"), "a", "b")
    write_summary(pairs, summarise(PairsResult([hours_40], [], [], Counter())))
    _, text, use, *_ = changed_fields(project, settings, own)
    assert "For IndexTTS-2.0 and 40.0 hours: " in text
    assert use.visible
    _, _, use, *_ = changed_fields(project, settings, own | recipe_values(find_recipe("hours_50")))
    assert not use.visible


def test_an_automatic_setting_is_kept_apart_from_a_typed_one(project: Project):
    roots = Roots(project.root.parent)
    settings = settings_with().with_fields("train", batch_size=8, amp=False)

    def command(values: dict[str, object]) -> Train:
        return command_of(roots, project, settings, False, "", [values[name] for name in (*FIELDS, *LAUNCH)])

    own = filled(project, settings)
    assert [own[name] for name in ("batch_size", "batch_tokens", "amp", "grad_checkpointing")] == [
        8,
        None,
        "off",
        "",
    ]
    assert command(own).model_fields_set & Train.automatic == {"batch_size", "amp"}
    assert "--batch-size=8" in to_argv(command(own))

    changed_fields(project, settings, own | {"batch_size": None, "amp": "", "num_workers": 0})
    again = filled(project, settings)
    assert [again[name] for name in ("batch_size", "amp", "num_workers")] == [None, "", 0]
    assert command(again).model_fields_set & Train.automatic == {"num_workers"}

    demo = again | recipe_values(find_recipe("demo"))
    assert Train.automatic - {"step_pairs"} <= command(demo).model_fields_set
    assert command(demo | AUTOMATIC_VALUES).model_fields_set & Train.automatic == set()


def test_each_other_machine_gets_a_command_with_its_rank(tmp_path: Path):
    manifests = {"train_manifest": [tmp_path / "a b"], "val_manifest": [tmp_path]}
    command = Train(**manifests, tokenizer=tmp_path)
    lines = other_nodes(command, Launch(nodes=3, processes=8, endpoint="gpu-0")).split("\n\n")
    assert [line.splitlines()[0] for line in lines] == [
        f"# on machine {rank}, in the root of the repository" for rank in (1, 2)
    ]
    first, second = (line.splitlines()[1] for line in lines)
    assert first.replace("--node-rank=1", "--node-rank=2") == second
    assert "--nnodes=3" in first
    assert first.endswith(f"--tokenizer={tmp_path}")
    assert other_nodes(command, ALONE) == ""


def test_the_page_joins_only_machines_that_the_project_names():
    launch = Launch(nodes=2, endpoint="gpu-0")
    assert foreign_machines(settings_with(nodes=2, endpoint="gpu-0"), launch) is None
    assert foreign_machines(settings_with(), ALONE) is None
    for own in ({}, {"nodes": 2, "endpoint": "gpu-1"}, {"nodes": 3, "endpoint": "gpu-0"}):
        assert "project.json" in str(foreign_machines(settings_with(**own), launch))


OLD = PairsFile(Path("old"), "en", 0.2)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["new"], ["new@0.8", "old@en@0.2"]),
        (["new@0.85", "old@en@0.15"], ["new@0.8", "old@en@0.2"]),
        (["a@3", "b@1"], ["a@0.6", "b@0.2", "old@en@0.2"]),
    ],
)
def test_an_added_file_takes_its_share_and_the_others_keep_their_proportions(
    typed: list[str], found: list[str]
):
    assert [str(file) for file in with_share(parse_files(typed), OLD)] == found


def test_files_without_shares_have_no_known_proportions():
    with pytest.raises(UserError, match=r"@0\.5"):
        with_share(parse_files(["a", "b"]), OLD)


def test_a_validation_file_is_added_once():
    files = with_file(parse_files(["new", "old"]), PairsFile(Path("old"), "en"))
    assert [str(file) for file in files] == ["new", "old@en"]
