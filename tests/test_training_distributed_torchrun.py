"""The place of a process among others, as torchrun's environment says it."""

import pytest

from indextts.errors import UserError
from indextts.training.distributed.torchrun import Place, log_name

SECOND = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


def test_without_torchrun_there_is_one_process():
    assert Place.of_this_process({}) == Place()
    assert Place.of_this_process({"WORLD_SIZE": "4"}) == Place()  # as clusters set it for all that they start
    assert Place().is_first


def test_torchruns_variables_say_the_place():
    place = Place.of_this_process(SECOND | {"TORCHELASTIC_RESTART_COUNT": "2"})
    assert place == Place(rank=1, size=4, local_rank=1, local_size=2, restarts=2)
    assert not place.is_first
    assert place.log_name == "train_rank1.log"


def test_the_first_process_writes_the_log_of_the_run():
    assert Place.of_this_process(SECOND | {"RANK": "0"}).log_name == log_name(0) == "train.log"


@pytest.mark.parametrize(
    "changes",
    [{"RANK": "4"}, {"RANK": "one"}, {"LOCAL_RANK": "2"}, {"WORLD_SIZE": "-1"}, {"LOCAL_WORLD_SIZE": ""}],
    ids=str,
)
def test_variables_that_cannot_be_are_refused(changes: dict[str, str]):
    with pytest.raises(UserError, match="in the environment"):
        Place.of_this_process(SECOND | changes)
