"""Results of models in the check: stored at once, by version, without lines that a kill cut off."""

from pathlib import Path

import pytest

from indextts.data.stored_results import StoredResults
from indextts.errors import UserError


def _file(folder: Path) -> Path:
    return folder / "measured" / "scores.jsonl"


def test_results_of_another_version_are_replaced(tmp_path):
    with StoredResults(tmp_path, "scores", "model-1") as results:
        results.add("a", 1)
    with StoredResults(tmp_path, "scores", "model-2") as results:
        assert results.known == {}
        results.add("b", 2)
    assert StoredResults(tmp_path, "scores", "model-2").known == {"b": 2}
    assert StoredResults(tmp_path, "scores", "model-1").known == {}


@pytest.mark.parametrize("num_lost", [1, 5, 20])
def test_a_line_that_a_kill_cut_off_does_not_count(tmp_path, num_lost):
    with StoredResults(tmp_path, "scores", "model-1") as results:
        results.add("a", 1)
        results.add("b", 2)
    _file(tmp_path).write_bytes(_file(tmp_path).read_bytes()[:-num_lost])
    with StoredResults(tmp_path, "scores", "model-1") as results:
        results.add("c", 3)
    known = StoredResults(tmp_path, "scores", "model-1").known
    assert known["a"] == 1
    assert known["c"] == 3
    assert all(line.endswith(b"}\n") for line in _file(tmp_path).read_bytes().splitlines(keepends=True))


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "measured").write_text("")
    with StoredResults(tmp_path, "scores", "model-1") as results, pytest.raises(UserError, match="measured"):
        results.add("a", 1)
