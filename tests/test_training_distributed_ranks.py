"""Tests of indextts/training/distributed in one process; test_several_processes.py starts more."""

import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.errors import CHECK_FAILED, OUT_OF_MEMORY, PROCESS_LOST, USER_MISTAKE, UserError
from indextts.system.processes import Process, find_process, this_process
from indextts.system.signals import StopRequest
from indextts.training.decision import Signals
from indextts.training.distributed import ranks
from indextts.training.distributed.ranks import SINGLE_PROCESS, ExitReasons, Ranks, process_group
from indextts.training.distributed.sync import fingerprint, require_same_start, require_same_weights
from indextts.training.distributed.torchrun import RankInfo, log_name
from indextts.training.groups import count_tokens
from indextts.training.loading import load_batches
from indextts.training.loop import gather_signals
from indextts.training.metrics import SpeedMeter
from indextts.training.run import Run, load_inputs
from indextts.training.saving import Saver
from indextts.training.start import start_from_base
from tests.tiny_run import TinyRun, make_tiny_run


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


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    return make_tiny_run(tmp_path_factory.mktemp("sync") / "tiny")


class TwoRanks(Ranks):
    """Rank 0 of two; rank 1 has what the test sets."""

    def __init__(self) -> None:
        super().__init__(world_size=2)
        self.numbers: list[int] = []
        self.other: object = None
        self.changes: dict[str, str] = {}

    def all_reduce_ints(self, numbers: list[int]) -> list[int]:
        return [int(a) + b for a, b in zip(numbers, self.numbers or [0] * len(numbers), strict=True)]

    def all_gather(self, value: object) -> list:
        return [value, {**value, **self.changes} if isinstance(value, dict) else self.other]


def new_run(project: TinyRun, ranks: Ranks = SINGLE_PROCESS) -> Run:
    return start_from_base(replace(load_inputs(parse(Train, project.flags())), ranks=ranks))


def test_a_step_is_left_out_where_the_workers_of_another_rank_do_not_answer(project: TinyRun):
    run, ranks = new_run(project), TwoRanks()
    [part] = load_batches(run.inputs.train_set, [[0, 1]], 0, run.inputs.collate)
    ranks.numbers = [0, 0, 0, 1]
    assert count_tokens([part], ranks) is None
    ranks.numbers = [0, 0, 0, 0]
    assert count_tokens([part], ranks) is not None
    assert count_tokens(None, ranks) is None


def test_a_stop_requested_on_another_rank_stops_this_rank_with_the_same_signal(project: TinyRun, tmp_path):
    run, ranks, stop = new_run(project), TwoRanks(), StopRequest(ends_process=False)
    ranks.numbers, ranks.other = [1, 0, 0], signal.SIGUSR1
    saver, speed = Saver(tmp_path, 1), SpeedMeter(run.inputs.device)
    found = gather_signals(run.state, ranks, saver, stop, speed, save_interval=10)
    assert found == Signals(stop_requested=True)
    assert stop.signal == signal.SIGUSR1


def test_a_fingerprint_changes_with_the_last_bit_of_a_trained_weight(project: TinyRun):
    run, other = new_run(project), new_run(project)
    before = fingerprint(run.trained)
    assert fingerprint(other.trained) == before
    with torch.no_grad():
        weight = run.trained.parameters["mel_head.bias"]
        weight[0] = weight[0].nextafter(torch.tensor(9.0))
    assert fingerprint(run.trained) != before


def test_weights_that_differ_are_refused_and_the_rank_is_named(project: TinyRun):
    ranks = TwoRanks()
    run = new_run(project, ranks)
    require_same_weights(run)
    ranks.changes = {"weights": "others"}
    with pytest.raises(UserError, match="rank 1") as refused:
        require_same_weights(run)
    assert refused.value.exit_status == CHECK_FAILED


@pytest.mark.parametrize("fact", ["training pairs", "weights"])
def test_ranks_that_start_with_other_files_are_refused(project: TinyRun, fact: str):
    ranks = TwoRanks()
    run = new_run(project, ranks)
    require_same_start(run, {"seed": 1})
    ranks.changes = {fact: "others"}
    with pytest.raises(UserError, match=f"Rank 1 .*: {fact}") as refused:
        require_same_start(run, {"seed": 1})
    assert refused.value.exit_status == USER_MISTAKE
