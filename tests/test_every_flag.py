"""Each flag of the trainer changed alone: the plan of a resume is what the start does."""

import pytest

from indextts.commands.train import Train
from tests.every_flag import CHANGES, FILES, PAGE, TABLE, command_of, make_run, planned, started, table
from tests.tiny_run import TinyRun


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return make_run(tmp_path_factory.mktemp("flags") / "tiny")


def test_every_flag_is_in_the_table():
    assert set(CHANGES) == Train.model_fields.keys() - Train.of_process


@pytest.mark.parametrize("field", [*CHANGES, *FILES])
def test_the_plan_is_what_the_start_does(run: TinyRun, field: str):
    command = command_of(run, field)
    assert planned(command) == started(command)


def test_the_documented_table_is_up_to_date(run: TinyRun):
    [found] = TABLE.findall(PAGE.read_text("utf-8"))
    assert found == table(run).replace(str(run.folder.parent), "")
