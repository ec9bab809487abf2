"""Tests of indextts/projects/project.py: the YAML file and the folder of a project."""

import re
from pathlib import Path

import pytest

from indextts.commands.terminal import to_argv
from indextts.data.importing.importer import import_dataset
from indextts.errors import UserError
from indextts.projects.project import Project, read_settings
from indextts.projects.stages import plan_check, plan_imports, plan_stage
from tests.import_sources import write_parquet, write_tone

GOOD = "name: voice\nmanifest: m.jsonl\nbase: base\ntrain: {epochs: 3}\n"


def test_relative_paths_are_relative_to_the_file(tmp_path: Path):
    (tmp_path / "p.yaml").write_text(GOOD)
    settings = read_settings(tmp_path / "p.yaml")
    assert settings.manifest == tmp_path / "m.jsonl"
    assert settings.base == tmp_path / "base"
    assert settings.train == {"epochs": 3}


def test_one_source_needs_no_list(tmp_path: Path):
    (tmp_path / "p.yaml").write_text("name: voice\nbase: base\ndata: {source: my talks}\n", "utf-8")
    assert read_settings(tmp_path / "p.yaml").data == {"source": [str(tmp_path / "my talks")]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "valid dictionary"),
        ("a: [", "corrupt"),
        ("[" * 5000, "corrupt"),
        (GOOD + "check: {min_snr_db: 2020-99-99}\n", "corrupt"),
        (GOOD + 'check: {min_snr_db: !!int ""}\n', "corrupt"),
        (
            GOOD + "a0: &a0 [1]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(40)),
            "corrupt",
        ),
        ("name: voice\nmanifest: m\n", "base: Field required"),
        (GOOD + "colour: red\n", 'colour is "red", Extra inputs'),
        (GOOD.replace("voice", "../voice"), 'name is "../voice"'),
        (GOOD.replace("{epochs: 3}", "fast"), 'train is "fast", it must be a valid dictionary'),
    ],
)
def test_an_invalid_project_file_is_an_error_of_one_line(tmp_path: Path, text: str, problem: str):
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(UserError, match=problem) as caught:
        read_settings(tmp_path / "p.yaml")
    assert "\n" not in str(caught.value)
    assert "p.yaml" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"--config .*absent\.yaml: .*No such file"):
        read_settings(tmp_path / "absent.yaml")


def planned(tmp_path: Path, more: str) -> list[str]:
    (tmp_path / "p.yaml").write_text(GOOD + more, "utf-8")
    plan_stage(Project(tmp_path / "w"), read_settings(tmp_path / "p.yaml"), "data")
    stage = plan_stage(Project(tmp_path / "w"), read_settings(tmp_path / "p.yaml"), "tokenizer")
    return to_argv(stage.commands[0])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with an upload."""
    (tmp_path / "p.yaml").write_text(GOOD)
    project = Project(tmp_path / "w")
    project.uploads.mkdir(parents=True)
    (project.uploads / "talks.zip").touch()
    return project


def test_every_import_has_the_language_of_the_project_unless_the_settings_of_the_data_name_one(
    project: Project, tmp_path: Path
):
    settings = read_settings(tmp_path / "p.yaml").model_copy(update={"language": "ti"})  # one more than now
    assert [command.language for command in plan_imports(project, settings)] == ["ti", "ti"]
    named = settings.with_fields("data", language="am")
    assert [command.language for command in plan_imports(project, named)] == ["am", "ti"]


def test_a_data_set_of_the_hub_is_imported_before_the_uploads(project: Project, tmp_path: Path):
    hub = "data: {hub: google/fleurs, hub_subset: am_et, hub_split: [train]}\n"
    (tmp_path / "p.yaml").write_text(GOOD.replace("manifest: m.jsonl\n", hub))
    described, upload = plan_imports(project, read_settings(tmp_path / "p.yaml"))
    assert (described.hub, described.hub_subset, described.hub_split) == ("google/fleurs", "am_et", ["train"])
    assert (upload.hub, upload.source) == ("", [project.uploads / "talks.zip"])


def test_every_import_has_the_voice_encoder_of_the_base_and_edited_voices_repeat_it(
    project: Project, tmp_path: Path
):
    settings = read_settings(tmp_path / "p.yaml")
    wanted = settings.base / "campplus/campplus_cn_common.bin"
    assert {command.voice_encoder for command in plan_imports(project, settings)} == {wanted}
    assert project.dataset / "voices.json" in plan_stage(project, settings, "data").reads


def test_normaliser_options_apply_to_the_whole_project(tmp_path: Path):
    argv = planned(tmp_path, "normalizer: {homophones: strict, thousand: ሺ}\n")
    assert {"--homophones=strict", "--thousand=ሺ"} <= set(argv)
    check = plan_check(Project(tmp_path / "w"), read_settings(tmp_path / "p.yaml"))
    assert (check.homophones, check.thousand) == ("strict", "ሺ")
    assert not any("homophones" in flag for flag in planned(tmp_path, "normalizer: {homophones: off}\n"))


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("normalizer: {dialect: any}\n", 'normalizer: dialect is "any", Extra inputs are not permitted'),
        ("normalizer: {homophones: some}\n", "homophones is \"some\", it must be 'off', 'strict' or 'loose'"),
        ("tokenizer: {homophones: strict}\n", ": homophones: "),
        ("check: {thousand: ሺ}\n", ": thousand: "),
    ],
)
def test_an_unknown_or_misplaced_option_is_refused(tmp_path: Path, more: str, problem: str):
    with pytest.raises(UserError, match=re.escape(problem)):
        planned(tmp_path, more)


@pytest.mark.parametrize("column", ["audio", "path of audio"])
def test_an_upload_cannot_name_recordings_outside_itself(tmp_path: Path, column: str):
    project = Project(tmp_path / "w")
    names = [str(write_tone(tmp_path / "secret.wav")), "../../secret.wav", "../voices/hers.wav"]
    write_tone(project.uploads / "voices/hers.wav")
    audio = names if column == "audio" else [{"bytes": None, "path": name} for name in names]
    columns = {"audio": audio, "text": ["ሰላም"] * 3, "speaker_id": ["s"] * 3}
    write_parquet(project.uploads / "x.parquet", columns)
    (tmp_path / "p.yaml").write_text(GOOD.replace("manifest: m.jsonl\n", ""))
    command = plan_imports(project, read_settings(tmp_path / "p.yaml"))[-1]
    assert command.source == [project.uploads / "x.parquet"]
    with pytest.raises(UserError, match=r"\(3 outside"):
        import_dataset(command)
