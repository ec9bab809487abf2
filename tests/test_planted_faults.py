"""Tests of tests/planted_faults.py: every fault can be planted, and the test of its module finds one."""

from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.planted_faults import FAULTS, Fault, copy_sources, importers, outcome_of, planted


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_changes_one_place_that_exists(fault: Fault):
    source = (REPOSITORY / fault.path).read_text(encoding="utf-8")
    compile(planted(source, fault), fault.path, "exec")
    assert importers(REPOSITORY, fault.path), "no test imports the module"


def test_there_are_ten_faults_of_each_area():
    assert set(Counter(fault.area for fault in FAULTS).values()) == {10}
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) == 30


@pytest.mark.long
def test_a_fault_is_found_and_a_harmless_change_is_not(tmp_path: Path):
    copy = copy_sources(tmp_path)
    [fault] = [fault for fault in FAULTS if fault.name == "repeated codes become likelier"]
    harmless = Fault(fault.area, "harmless", fault.path, fault.old, f"({fault.old})")
    assert "sampling" in outcome_of(fault, copy, runs_all=False).found_by
    assert outcome_of(harmless, copy, runs_all=False).found_by == ""
    assert (copy / fault.path).read_text() == (REPOSITORY / fault.path).read_text()
