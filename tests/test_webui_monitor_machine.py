import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from indextts.webui.language import t
from indextts.webui.monitor.machine import GpuState, read_gpus, read_machine

HAS_DRIVER = shutil.which("nvidia-smi") is not None


def test_the_machine_is_shown_in_rows(tmp_path: Path):
    now = read_machine(tmp_path)
    assert now.num_processors <= (os.cpu_count() or 1)
    assert 0 <= now.busy_percent <= 100
    assert 0 < now.used_bytes < now.memory_bytes
    assert 0 < now.free_disk_bytes <= now.disk_bytes
    assert [what for what, _ in now.rows()][:3] == ["Processor", "Memory", "Disk"]
    assert str(now).splitlines()[0].startswith(f"Processor: {now.num_processors} processors, ")


@pytest.mark.skipif(HAS_DRIVER, reason="there is a gpu")
def test_without_a_driver_the_page_shows_that_there_is_no_gpu(tmp_path: Path):
    assert read_gpus() == ()
    assert read_machine(tmp_path).rows()[-1] == [t("monitor.parts.gpu"), t("monitor.no_gpu")]


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_DRIVER, reason="no NVIDIA driver")
def test_reading_a_gpu_takes_none_of_its_memory():
    before = read_gpus()
    after = read_gpus()
    assert before[0].name
    assert before[0].total_bytes > 0
    assert after[0].used_bytes - before[0].used_bytes < 50e6  # a context would take hundreds of megabytes


def test_unknown_values_of_a_gpu_are_question_marks():
    gpu = GpuState("NVIDIA L4", 2_000_000_000, 24_000_000_000, percent=97, celsius=61)
    assert str(gpu) == "NVIDIA L4: 97 % busy, 2.0 of 24.0 GB in use, 61 °C"
    slice_of_a_gpu = GpuState("NVIDIA A100 MIG", 0, 5_000_000_000, percent=None, celsius=None)
    assert str(slice_of_a_gpu) == "NVIDIA A100 MIG: ? % busy, 0.0 of 5.0 GB in use, ? °C"


def test_several_gpus_are_numbered_and_those_in_training_are_marked(tmp_path: Path):
    gpus = [GpuState("NVIDIA L4", 0, 24_000_000_000, 0, 40, number=number) for number in range(3)]
    rows = replace(read_machine(tmp_path), gpus=tuple(gpus)).rows(in_training={0, 2})[3:]
    assert [what for what, _ in rows] == ["GPU 0", "GPU 1", "GPU 2"]
    used = t("monitor.gpu_in_training", gpu=str(gpus[0]))  # the gpus are alike
    assert [state == used for _, state in rows] == [True, False, True]
    assert rows[1][1] == str(gpus[1])


def test_in_a_container_its_memory_limit_is_shown(tmp_path: Path):
    total = read_machine(tmp_path, cgroup=tmp_path).memory_bytes  # no such files: the computer's
    (tmp_path / "memory.current").write_text("3000000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 1000000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert read_machine(tmp_path, cgroup=tmp_path).memory_bytes == total
    (tmp_path / "memory.max").write_text("8000000\n")
    now = read_machine(tmp_path, cgroup=tmp_path)
    assert (now.used_bytes, now.memory_bytes) == (2_000_000, 8_000_000)
