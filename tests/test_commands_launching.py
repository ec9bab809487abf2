"""Tests of indextts/commands/launching.py: choices as argument vectors, and refused values."""

import pytest

from indextts.commands.launching import ALONE, SHUTDOWN_S, Launch, launch_of
from indextts.errors import UserError
from indextts.projects.jobs.files import KILL_S, SAVE_S


def test_one_process_needs_no_launcher():
    assert (ALONE.prefix, ALONE.environment, ALONE.num_processes) == ([], {}, 1)
    assert Launch(gpus="2").prefix == []  # another card is no reason for one


def test_torchrun_accepts_the_arguments_of_several_processes():
    run = pytest.importorskip("torch.distributed.run")
    parser = run.get_args_parser()
    program = ["trainers/train_gpt_v2.py", "--epochs=3", "--amp"]
    here = parser.parse_args([*Launch(processes=2).prefix[2:], *program])
    assert (here.standalone, here.nproc_per_node, here.training_script) == (True, "2", program[0])
    assert here.training_script_args == program[1:]
    launch = Launch(processes=8, nodes=2, node_rank=1, endpoint="gpu-1.local:29400")
    there = parser.parse_args([*launch.prefix[2:], *program])
    assert (there.standalone, there.nnodes, there.nproc_per_node, there.node_rank) == (False, "2", "8", 1)
    assert (there.rdzv_backend, there.rdzv_endpoint) == ("static", "gpu-1.local:29400")
    assert here.shutdown_timeout == there.shutdown_timeout == SHUTDOWN_S


def test_the_stages_of_a_stop_end_before_torchrun_kills():
    assert SAVE_S + KILL_S < SHUTDOWN_S


def test_gpus_are_numbers_as_nvidia_smi_counts_them():
    launch = Launch(processes=2, gpus=" 3 , 0 ")
    assert launch.gpu_numbers == (3, 0)
    assert launch.environment == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "3,0"}
    # as a YAML file has them
    assert Launch(**{"gpus": [3, 0]}).gpus == "3,0"
    assert Launch(**{"gpus": 2}).gpus == "2"


def test_each_other_machine_has_its_own_command():
    launch = Launch(processes=4, nodes=3, endpoint="[fd00::1]")
    others = list(launch.on_other_nodes())
    assert [other.node_rank for other in others] == [1, 2]
    assert {other.endpoint for other in others} == {launch.endpoint}
    assert launch.num_processes == 12
    assert "--rdzv-endpoint=[fd00::1]:29500" in others[1].prefix


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"processes": 0}, "--processes: Input should be greater than or equal to 1"),
        ({"gpus": "0;reboot"}, "--gpus '0;reboot': "),
        ({"gpus": "-1"}, "--gpus '-1': "),
        ({"gpus": "\u0663"}, "--gpus "),  # a digit, but none of CUDA's
        ({"gpus": "0,1,0"}, "duplicate number"),
        ({"gpus": "0,1", "processes": 3}, "--processes 3: "),
        ({"nodes": 2}, "--nodes 2: pass --endpoint"),
        ({"nodes": 2, "node_rank": 2, "endpoint": "a"}, "2 machines are numbered 0 to 1"),
        ({"endpoint": "$(reboot)"}, "name or address of machine 0"),
        ({"endpoint": "-x"}, "name or address of machine 0"),
        ({"endpoint": "a:65536"}, "name or address of machine 0"),
        ({"threads": 2}, "--threads: Extra inputs are not permitted"),
    ],
)
def test_an_impossible_launch_is_refused_with_the_reason(fields: dict[str, object], problem: str):
    with pytest.raises(UserError) as refused:
        launch_of(fields)
    assert problem in str(refused.value)
    assert str(refused.value).startswith("launch: ")


def test_blanks_around_commas_are_accepted_and_too_many_are_refused():
    assert Launch(processes=2, gpus=" 1 ,  0 ").gpus == "1,0"
    with pytest.raises(UserError, match="characters; pass numbers of GPUs"):
        Launch(gpus="0" + " " * 2_000_000 + "0")
