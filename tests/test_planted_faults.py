"""Tests of tests/planted_faults.py: every fault can be planted, and the test of its module finds one."""

from collections import Counter

import pytest

from tests.conftest import REPOSITORY
from tests.planted_faults import FAULTS, Fault, importers, planted


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_changes_one_place_that_exists(fault: Fault):
    source = (REPOSITORY / fault.path).read_text(encoding="utf-8")
    compile(planted(source, fault), fault.path, "exec")
    assert importers(REPOSITORY, fault.path), "no test imports the module"


def test_there_are_ten_faults_of_each_area():
    assert set(Counter(fault.area for fault in FAULTS).values()) == {10}
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) == 30
