"""Tests of indextts/planning/hardware.py, on real outputs of nvidia-smi and real cgroup files."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from indextts.commands.launching import Launch
from indextts.planning.hardware import (
    GpuFacts,
    MachineFacts,
    container_limit,
    container_use,
    cpu_has_native_bfloat16,
    find_machine,
    gpus_for,
    parse_gpus,
    share_of,
    visible_gpus,
)

L4 = GpuFacts("NVIDIA L4", 22_478 << 20, (8, 9))
NO_LIMIT = 9223372036854771712  # "no limit" in cgroup version 1
T4 = GpuFacts("Tesla T4", 15_360 << 20, (7, 5), number=1)


def test_gpus_have_the_memory_that_they_report():
    assert parse_gpus(["NVIDIA L4, 22478, 8.9", "Tesla T4, 15360, 7.5"]) == (L4, T4)
    assert L4.memory_bytes / 2**30 < 22  # of nominal 24 GB


def test_a_failed_gpu_is_left_out():
    assert parse_gpus(["NVIDIA A100, [N/A], [N/A]"]) == ()


@pytest.mark.parametrize(
    ("flags", "environment", "is_native"),
    [
        (["avx2", "avx512_bf16"], {}, True),
        (["avx2", "avx512_bf16"], {"ATEN_CPU_CAPABILITY": "avx512"}, True),
        (["avx2", "avx512_bf16"], {"ATEN_CPU_CAPABILITY": "avx2"}, False),
        (["avx2", "avx512_bf16"], {"ATEN_CPU_CAPABILITY": "default"}, False),
        (["avx2", "avx512f"], {}, False),
    ],
)
def test_a_cpu_has_native_bfloat16_unless_pytorch_may_not_use_its_instructions(
    flags: list[str], environment: dict[str, str], is_native: bool
):
    assert cpu_has_native_bfloat16(flags, environment) is is_native


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, (L4, T4)),
        ("1", (T4,)),
        ("1,0", (T4, L4)),
        ("", ()),
        ("-1", ()),
        ("0,7,1", (L4,)),  # CUDA stops at the first that does not exist
        ("GPU-8f3a", (L4, T4)),
    ],
)
def test_gpus_hidden_from_cuda_are_left_out(chosen: str | None, expected: tuple[GpuFacts, ...]):
    assert visible_gpus((L4, T4), chosen) == expected


def test_this_machine_is_found():
    machine = find_machine()
    assert machine.num_cores == len(os.sched_getaffinity(0))
    assert 0 < machine.memory_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_each_process_gets_a_gpu_and_its_share_of_cores_and_memory():
    machine = MachineFacts((L4, T4), 16, 64 << 30)
    assert share_of(machine, Launch()) == replace(machine, gpus=(L4,))
    assert share_of(machine, Launch(gpus="1")).gpu == T4
    assert gpus_for(machine, Launch(processes=2, gpus="1,0")) == (T4, L4)
    # what fits the smallest of the GPUs fits all
    assert share_of(machine, Launch(processes=2)) == MachineFacts((T4,), 8, 32 << 30)
    assert share_of(MachineFacts((), 2, 8 << 30), Launch(processes=2)) == MachineFacts((), 1, 4 << 30)
    assert gpus_for(machine, Launch(gpus="7")) == ()


# ---- memory of a container


def test_without_control_groups_limit_and_use_are_unknown(tmp_path: Path):
    assert container_limit(tmp_path) is None
    assert container_use(tmp_path) is None


def test_limit_and_use_are_read_from_version_2(tmp_path: Path):
    (tmp_path / "memory.max").write_text("max\n")
    assert container_limit(tmp_path) is None
    (tmp_path / "memory.max").write_text("8589934592\n")
    (tmp_path / "memory.current").write_text("3000000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 1000000\n")
    assert container_limit(tmp_path) == 8 << 30
    assert container_use(tmp_path) == 2_000_000


def test_limit_and_use_are_read_from_version_1(tmp_path: Path):
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "memory.limit_in_bytes").write_text(f"{NO_LIMIT}\n")
    (folder / "memory.usage_in_bytes").write_text("3000000\n")
    (folder / "memory.stat").write_text("inactive_file 7\ntotal_inactive_file 1000000\n")
    assert container_limit(tmp_path) == NO_LIMIT
    assert container_use(tmp_path) == 2_000_000
