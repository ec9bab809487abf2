import pytest
import torch

from benchmarks.workload import PUBLISHED
from indextts.data import batch_sizing
from indextts.data.batch_sizing import Throughput, available_bytes, choose_precision, choose_throughput
from tests.tiny_gpt import TINY

CPU = torch.device("cpu")


def on_cpu(monkeypatch, cores: int, free_gb: float, config=PUBLISHED, batch_s: float = 0) -> Throughput:
    monkeypatch.setattr(batch_sizing.os, "sched_getaffinity", lambda pid: set(range(cores)))
    monkeypatch.setattr(batch_sizing, "available_bytes", lambda: int(free_gb * 1e9))
    return choose_throughput(config, CPU, batch_s, num_workers=0)


def test_a_cpu_encodes_one_clip_per_core_if_there_is_memory(monkeypatch, caplog):
    caplog.set_level("INFO")
    assert on_cpu(monkeypatch, 2, 20) == Throughput(0, num_readers=1, num_threads=2)
    assert on_cpu(monkeypatch, 64, 20).num_threads == 6  # 1.6 GB each, of half of the free memory
    assert on_cpu(monkeypatch, 2, 0.5).num_threads == 1
    assert on_cpu(monkeypatch, 64, 20, config=TINY) == Throughput(0, num_readers=5, num_threads=64)
    assert "6 of 64 cores with 20.0 GB free" in caplog.text


def test_larger_batches_on_a_cpu_take_fewer_cores(monkeypatch):
    assert on_cpu(monkeypatch, 64, 20, batch_s=45).num_threads == 2


def on_gpu(monkeypatch, free_gb: float, batch_s: float = 0, num_workers: int = 0) -> Throughput:
    monkeypatch.setattr(batch_sizing.os, "sched_getaffinity", lambda pid: set(range(32)))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(free_gb * 1e9), 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    return choose_throughput(PUBLISHED, torch.device("cuda"), batch_s, num_workers)


def test_the_batch_size_of_a_gpu_depends_on_its_free_memory(monkeypatch):
    assert on_gpu(monkeypatch, 135) == Throughput(160, num_readers=16, num_threads=1)
    assert on_gpu(monkeypatch, 20).batch_s == pytest.approx(76.4, abs=0.1)
    assert on_gpu(monkeypatch, 0.1).batch_s == 5
    assert on_gpu(monkeypatch, 135, batch_s=33, num_workers=3) == Throughput(33, 3, 1)


def test_the_memory_limit_of_a_container_counts(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:  9000 kB\nMemAvailable:    8000 kB\n")
    assert available_bytes(tmp_path / "meminfo", tmp_path) == 8_192_000
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000000\n")
    assert available_bytes(tmp_path / "meminfo", tmp_path) == 8_192_000
    (tmp_path / "memory.max").write_text("5000000\n")
    assert available_bytes(tmp_path / "meminfo", tmp_path) == 4_000_000


def test_the_cpu_always_computes_in_float32(caplog):
    assert choose_precision(False, CPU) == torch.float32
    assert choose_precision(True, CPU) == torch.float32
    assert "--amp" in caplog.text
