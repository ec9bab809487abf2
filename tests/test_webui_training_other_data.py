from pathlib import Path

import pytest

from indextts.commands.pairs_file import PairsFile, parse_files
from indextts.errors import UserError
from indextts.webui.training.other_data import with_file, with_share

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
