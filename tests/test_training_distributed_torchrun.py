"""Tests of indextts/training/distributed/torchrun.py: rank and world size from the environment."""

import pytest

from indextts.errors import UserError
from indextts.training.distributed.torchrun import RankInfo, log_name

SECOND = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


def test_without_torchrun_there_is_one_process():
    assert RankInfo.from_environment({}) == RankInfo()
    assert RankInfo.from_environment({"WORLD_SIZE": "4"}) == RankInfo()  # clusters set it for every program
    assert RankInfo().is_main


def test_torchruns_variables_give_the_rank():
    info = RankInfo.from_environment(SECOND | {"TORCHELASTIC_RESTART_COUNT": "2"})
    assert info == RankInfo(rank=1, world_size=4, local_rank=1, local_world_size=2, num_restarts=2)
    assert not info.is_main
    assert info.log_name == "train_rank1.log"


def test_rank_0_writes_the_log_of_the_run():
    assert RankInfo.from_environment(SECOND | {"RANK": "0"}).log_name == log_name(0) == "train.log"


@pytest.mark.parametrize(
    "changes",
    [{"RANK": "4"}, {"RANK": "one"}, {"LOCAL_RANK": "2"}, {"WORLD_SIZE": "-1"}, {"LOCAL_WORLD_SIZE": ""}],
    ids=str,
)
def test_invalid_variables_are_refused(changes: dict[str, str]):
    [name] = changes
    with pytest.raises(UserError, match=f"{name}="):
        RankInfo.from_environment(SECOND | changes)
