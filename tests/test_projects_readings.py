import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from indextts.commands.data import CheckData
from indextts.commands.normalizer_options import Reading
from indextts.errors import UserError
from indextts.projects.project import Project, make_settings, read_project, write_project
from indextts.projects.readings import apply_edited_readings, read_readings, store_normalizer, store_readings
from indextts.projects.stage_records import is_up_to_date, write_record
from indextts.projects.stages import plan_check, plan_stage
from indextts.text.readings import ReadingRow, write_rows
from indextts.text.tokenizer import Tokenizer
from tests.tiny_run import BASE_TOKENIZER, SENTENCES
from tests.tokenizers import extend

ROWS = [ReadingRow("BBC", "ቢቢሲ", "word"), ReadingRow("UN", "umoja", "word", "sw")]
OWN = (Reading("BBC", "ቢቢሲ", "word"),)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project whose tokenizer stage is done."""
    project = Project(tmp_path / "voice")
    project.base_tokenizer.parent.mkdir(parents=True)
    shutil.copy(BASE_TOKENIZER, project.base_tokenizer)
    project.tokenizer.parent.mkdir()
    project.tokenizer.write_bytes(extend(project.base_tokenizer, SENTENCES, 720))
    write_project(project, make_settings(name="voice", base=tmp_path))
    write_record(project, plan_stage(project, settings(project), "tokenizer"), 1.0)
    return project


def settings(project: Project):
    return make_settings(name="voice", base=project.root.parent)


def is_done(project: Project) -> bool:
    return is_up_to_date(project, plan_stage(project, settings(project), "tokenizer"))


def test_stored_readings_are_in_table_tokenizer_and_commands_and_the_pieces_stay(project: Project):
    before = Tokenizer.load(project.tokenizer)
    assert read_readings(project) == []
    store_readings(project, ROWS)
    assert read_readings(project) == ROWS
    now = Tokenizer.load(project.tokenizer)
    assert (now.options.readings, now.pieces) == (OWN, before.pieces)
    assert is_done(project)  # or the next pipeline would learn all pieces again
    extension, _ = plan_stage(project, settings(project), "tokenizer").commands
    check = plan_check(project, settings(project))
    assert isinstance(check, CheckData)
    assert extension.readings == check.readings == project.readings


def test_an_edited_table_is_stored_in_the_tokenizer(project: Project):
    write_rows(project.readings, ROWS)
    assert is_done(project)
    apply_edited_readings(project, settings(project))
    assert Tokenizer.load(project.tokenizer).options.readings == OWN
    assert is_done(project)
    stamp = project.tokenizer.stat().st_mtime_ns
    apply_edited_readings(project, settings(project))
    assert project.tokenizer.stat().st_mtime_ns == stamp
    project.readings.write_text("written\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"readings\.tsv:1: "):
        apply_edited_readings(project, settings(project))


def test_a_tokenizer_stage_that_is_not_done_stays_so(project: Project):
    project.tokenizer.write_bytes(extend(project.base_tokenizer, SENTENCES, 700))
    assert not is_done(project)
    store_readings(project, ROWS)
    assert not is_done(project)


def test_stored_options_replace_those_of_the_tokenizer_and_the_pieces_stay(project: Project):
    pieces = Tokenizer.load(project.tokenizer).pieces
    store_readings(project, ROWS)
    for years, rules_off in (("hundreds", ["dates"]), ("cardinal", [])):  # back to the default, too
        store_normalizer(project, {"years": years, "rules_off": rules_off})
        now = Tokenizer.load(project.tokenizer)
        assert (now.options.years, list(now.options.rules_off)) == (years, rules_off)
        assert (now.options.readings, now.pieces) == (OWN, pieces)
        stored = read_project(project)
        assert stored.normalizer == {"years": years, "rules_off": rules_off}
        assert is_up_to_date(project, plan_stage(project, stored, "tokenizer"))


def test_readings_wait_for_a_tokenizer(tmp_path: Path):
    project = Project(tmp_path / "voice")
    project.root.mkdir()
    write_project(project, make_settings(name="voice", base=tmp_path))
    store_readings(project, ROWS)
    assert read_readings(project) == ROWS
    assert not project.tokenizer.exists()


def test_a_projects_yaml_has_no_readings(tmp_path: Path):
    with pytest.raises(UserError, match=r"readings\.tsv"):
        make_settings(name="voice", base=tmp_path, normalizer={"readings": []})


def test_two_browsers_store_options_at_once(project: Project):
    values = [{"thousand": thousand} for thousand in ("ሺህ", "ሺ")] * 10
    with ThreadPoolExecutor(8) as browsers:
        list(browsers.map(lambda options: store_normalizer(project, options), values))
    stored = read_project(project).normalizer["thousand"]
    assert Tokenizer.load(project.tokenizer).options.thousand == stored
