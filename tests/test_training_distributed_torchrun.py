"""Tests of indextts/training/distributed/torchrun.py: rank and world size from the environment."""

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
    assert log_name(info.rank) == "train_rank1.log"
