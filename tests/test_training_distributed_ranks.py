"""The processes of a training as one, as far as one process can show it; the rest is in several_processes."""

import signal
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from indextts.errors import OUT_OF_MEMORY, PROCESS_LOST, UserError
from indextts.system.processes import Process, find_process, this_process
from indextts.system.signals import StopRequest
from indextts.training.distributed import ranks
from indextts.training.distributed.ranks import ALONE, Ranks, Reasons, joined
from indextts.training.distributed.torchrun import Place


def test_one_process_agrees_with_itself_and_joins_nobody():
    with joined(Place(), StopRequest(ends_process=False)) as alone:
        assert alone is ALONE
        assert not dist.is_initialized()
        assert alone.agree([3, 0]) == [3, 0]
        assert (alone.is_any(True), alone.is_any(False)) == (True, False)
        assert alone.from_first("a") == "a"
        assert alone.gathered("a") == ["a"]
        assert alone.seed == ()
        tensor = torch.ones(3)
        alone.add_up(tensor)
        assert tensor.tolist() == [1, 1, 1]


def test_who_was_asked_to_stop_joins_nobody():
    stop = StopRequest(ends_process=False)
    stop.request(signal.SIGTERM)
    with (
        pytest.raises(UserError, match="Stopped before anything was loaded") as stopped,
        joined(Place(size=2), stop),
    ):
        pytest.fail("joined")
    assert stopped.value.exit_status == 128 + signal.SIGTERM


class Introduced(Ranks):
    """Process 0 of as many as are named, which all said where they run."""

    def __init__(self, everybody: list[tuple[str, Process]]) -> None:
        super().__init__(Place(size=len(everybody)))
        self.everybody = everybody

    def gathered(self, value: object) -> list:
        return self.everybody


def ended_process() -> Process:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = find_process(child.pid)
        child.communicate(b"\n")
    return process


def reasons(store: dist.Store, *others: tuple[str, Process]) -> Reasons:
    here = (ranks.socket.gethostname(), this_process())
    found = Reasons(store, Introduced([here, *((host or here[0], process) for host, process in others)]))
    found.meet()
    return found


def test_a_process_that_left_no_word_is_found_by_its_absence():
    lost = reasons(dist.HashStore(), ("", this_process()), ("", ended_process())).of_the_lost("broken pipe")
    assert lost.exit_status == PROCESS_LOST
    assert str(lost).startswith("Process 2 is gone without a word")
    assert "its log is train_rank2.log" in str(lost)


def test_the_word_that_a_process_left_counts_for_all():
    store = dist.HashStore()
    told = Reasons(store, Ranks(Place(rank=1, size=2)))
    told.tell(UserError("Out of memory with a single sample", OUT_OF_MEMORY))
    lost = reasons(store, ("", ended_process())).of_the_lost("broken pipe")
    assert lost.exit_status == OUT_OF_MEMORY
    assert str(lost) == "Process 1 ended: Out of memory with a single sample (train_rank1.log)"


def test_a_process_that_lost_another_passes_on_whom():
    store = dist.HashStore()
    first = reasons(store, ("", this_process()), ("", ended_process()))
    first.pass_on(first.of_the_lost("broken pipe"))
    neighbour = Reasons(store, Introduced([(ranks.socket.gethostname(), ended_process())] * 3))
    neighbour.meet()
    assert str(neighbour.of_the_lost("broken pipe")).startswith("Process 2 is gone without a word")


def test_of_another_machine_only_its_name_is_known(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranks, "LOOK_FOR_REASON_S", 0.1)
    lost = reasons(dist.HashStore(), ("node-b", this_process())).of_the_lost("broken pipe")
    assert str(lost).startswith("A process on node-b is gone (broken pipe); its log is train_rank1.log")
