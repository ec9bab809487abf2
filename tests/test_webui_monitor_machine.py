import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from indextts.webui.language import t
from indextts.webui.monitor.machine import GpuState, machine_tiles, read_gpus, read_machine

HAS_DRIVER = shutil.which("nvidia-smi") is not None


def test_the_machine_is_shown_in_tiles(tmp_path: Path):
    now = read_machine(tmp_path)
    assert now.num_processors <= (os.cpu_count() or 1)
    assert 0 <= now.busy_percent <= 100
    assert 0 < now.used_bytes < now.memory_bytes
    assert 0 < now.free_disk_bytes <= now.disk_bytes
    tiles = machine_tiles(now)
    assert [tile.name for tile in tiles[-3:]] == ["Processors", "Memory", "Disk"]
    assert tiles[-3].value == str(now.num_processors)


@pytest.mark.skipif(HAS_DRIVER, reason="there is a gpu")
def test_without_a_driver_the_page_shows_that_there_is_no_gpu(tmp_path: Path):
    assert read_gpus() == ()
    assert machine_tiles(read_machine(tmp_path))[0].remark == t("monitor.no_gpu")


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_DRIVER, reason="no NVIDIA driver")
def test_reading_a_gpu_takes_none_of_its_memory():
    before = read_gpus()
    after = read_gpus()
    assert before[0].name
    assert before[0].total_bytes > 0
    assert after[0].used_bytes - before[0].used_bytes < 50e6  # a context would take hundreds of megabytes


def test_values_that_a_gpu_does_not_report_are_question_marks(tmp_path: Path):
    gpu = GpuState("NVIDIA L4", 2_000_000_000, 24_000_000_000, percent=97, celsius=61)
    slice_of_a_gpu = GpuState("NVIDIA A100 MIG", 0, 5_000_000_000, percent=None, celsius=None)
    name, memory, of_slice, *_ = machine_tiles(replace(read_machine(tmp_path), gpus=(gpu, slice_of_a_gpu)))
    assert (name.value, memory.value) == ("L4", "2.0 GB")
    assert ("97" in name.remark, "61" in name.remark, "24.0" in memory.remark) == (True, True, True)
    assert of_slice.remark == t("machine.gpu", percent="?", celsius="?")


def test_several_gpus_are_numbered_and_those_in_training_are_marked(tmp_path: Path):
    gpus = [GpuState("NVIDIA L4", 23_000_000_000, 24_000_000_000, 0, 40, number) for number in range(3)]
    tiles = machine_tiles(replace(read_machine(tmp_path), gpus=tuple(gpus)), in_training={0, 2})
    of_gpus, of_memory = tiles[:6:2], tiles[1:6:2]
    assert [tile.name for tile in of_gpus] == ["GPU 0", "GPU 1", "GPU 2"]
    idle = t("machine.gpu", percent=0, celsius=40)  # the gpus are alike
    assert [tile.remark == idle for tile in of_gpus] == [False, True, False]
    assert [tile.level for tile in of_memory] == ["", "warn", ""]  # a training may fill its memory
