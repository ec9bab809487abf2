"""Test of benchmarks/planted_faults.py: a small set is written, checked and counted."""

import pytest

from benchmarks.fault_kinds import KINDS
from benchmarks.planted_faults import CLEAN, main
from indextts.data.manifest import read_utterances

pytestmark = pytest.mark.long


def test_each_kind_of_fault_has_a_row_with_what_was_found(tmp_path):
    folder, output = tmp_path / "set", tmp_path / "report.md"
    assert main(["--clean=6", "--per-kind=1", f"--folder={folder}", f"--output={output}"]) == 0

    rows = [line.split("|")[1:-1] for line in output.read_text(encoding="utf-8").splitlines() if "|" in line]
    found = {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in rows}
    assert {kind.name for kind in KINDS} <= set(found)
    assert found["level of -46 dBFS"][:2] == ["1", "1"]
    assert found["telephone band"][:2] == ["0 + 1", "0 + 1"]  # only a warning
    assert all(float(cell) > 0 for name in ("signal", "+ DNSMOS") for cell in found[name])
    kinds = [utterance.id.rpartition("/")[0] for utterance in read_utterances(folder / "manifest.jsonl")]
    assert kinds == [CLEAN] * 6 + [kind.name for kind in KINDS]
