"""Tests of indextts/training/run.py: device, data type, and GPUs that do not work."""

from pathlib import Path

import pytest
import torch

from indextts.errors import UserError
from indextts.training import run as device
from indextts.training.distributed.torchrun import RankInfo


def test_a_machine_without_a_gpu_trains_on_the_cpu(tmp_path: Path):
    assert not device.has_nvidia_gpu(devices=tmp_path, driver=tmp_path / "absent")
    assert device.why_cuda_fails(has_gpu=False, cuda_of_torch=None) is None


def test_a_gpu_is_found_by_its_device_file_or_its_driver(tmp_path: Path):
    (tmp_path / "nvidia0").touch()
    assert device.has_nvidia_gpu(devices=tmp_path, driver=tmp_path / "absent")
    driver = tmp_path / "gpus"
    (driver / "0000:01:00.0").mkdir(parents=True)
    assert device.has_nvidia_gpu(devices=tmp_path / "none", driver=driver)


def test_without_a_cuda_build_the_error_has_the_command_to_install_one():
    reason = device.why_cuda_fails(has_gpu=True, cuda_of_torch=None)
    assert "pip install --force-reinstall torch==" in reason


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU that works")
def test_a_gpu_without_cuda_stops_the_training_unless_the_cpu_is_allowed(monkeypatch):
    monkeypatch.setattr(device, "has_nvidia_gpu", lambda: True)
    with pytest.raises(UserError, match=r"--allow-cpu$"):
        device.choose_device(allow_cpu=False)
    assert device.choose_device(allow_cpu=True) == torch.device("cpu")


def test_each_rank_takes_a_gpu_of_its_own_and_too_many_are_refused(monkeypatch: pytest.MonkeyPatch):
    taken = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    second = device.choose_device(False, RankInfo(rank=5, world_size=8, local_rank=1, local_world_size=4))
    with pytest.raises(UserError, match=r"--nproc-per-node=2$"):
        device.choose_device(False, RankInfo(rank=6, world_size=8, local_rank=2, local_world_size=4))
    assert second == torch.device("cuda", 1)
    assert taken == [1]
