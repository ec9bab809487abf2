"""Tests of indextts/training/distributed in one process; test_several_processes.py starts more."""

import signal
import subprocess
import sys

import pytest
import torch.distributed as dist

from indextts.errors import OUT_OF_MEMORY, PROCESS_LOST, UserError
from indextts.system.processes import Process, find_process, this_process
from indextts.system.signals import StopRequest
from indextts.training.distributed import ranks
from indextts.training.distributed.ranks import ExitReasons, Ranks, process_group
from indextts.training.distributed.torchrun import RankInfo, log_name


def test_a_process_that_was_asked_to_stop_does_not_join():
    stop = StopRequest(ends_process=False)
    stop.request(signal.SIGTERM)
    with pytest.raises(UserError) as stopped, process_group(RankInfo(world_size=2), stop):
        pytest.fail("joined")
    assert stopped.value.exit_status == 128 + signal.SIGTERM


class RanksOfProcesses(Ranks):
    """Rank 0 of the given processes, each with its host."""

    def __init__(self, processes: list[tuple[str, Process]]) -> None:
        super().__init__(world_size=len(processes))
        self.processes = processes

    def all_gather(self, value: object) -> list:
        return self.processes


def ended_process() -> Process:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = find_process(child.pid)
        child.communicate(b"\n")
    return process


def reasons(store: dist.Store, *others: tuple[str, Process]) -> ExitReasons:
    here = (ranks.socket.gethostname(), this_process())
    processes = [here, *((host or here[0], process) for host, process in others)]
    found = ExitReasons(store, RanksOfProcesses(processes))
    found.exchange_processes()
    return found


def test_a_rank_that_published_no_reason_is_found_by_its_missing_process():
    found = reasons(dist.HashStore(), ("", this_process()), ("", ended_process()))
    lost = found.find_lost_rank("broken pipe")
    assert lost.exit_status == PROCESS_LOST
    assert str(lost).startswith("Rank 2 ")
    assert "train_rank2.log" in str(lost)


def test_a_published_reason_reaches_the_other_ranks():
    store = dist.HashStore()
    failed = ExitReasons(store, Ranks(rank=1, world_size=2))
    failed.publish_failure(UserError("Out of memory with a single sample", OUT_OF_MEMORY))
    lost = reasons(store, ("", ended_process())).find_lost_rank("broken pipe")
    assert lost.exit_status == OUT_OF_MEMORY
    assert str(lost).startswith("Rank 1 ")
    assert str(lost).endswith("Out of memory with a single sample (train_rank1.log)")


def test_a_rank_that_lost_another_publishes_which_one():
    store = dist.HashStore()
    first = reasons(store, ("", this_process()), ("", ended_process()))
    first.publish(first.find_lost_rank("broken pipe"))
    processes = [(ranks.socket.gethostname(), ended_process())] * 3
    neighbor = ExitReasons(store, RanksOfProcesses(processes))
    neighbor.exchange_processes()
    assert str(neighbor.find_lost_rank("broken pipe")).startswith("Rank 2 ")


def test_a_lost_rank_on_another_machine_is_reported_by_host(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranks, "EXIT_REASON_TIMEOUT_S", 0.1)
    lost = reasons(dist.HashStore(), ("node-b", this_process())).find_lost_rank("broken pipe")
    assert "node-b" in str(lost)
    assert "(broken pipe)" in str(lost)
    assert "train_rank1.log" in str(lost)


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
