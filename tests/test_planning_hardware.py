"""Tests of indextts/planning/hardware.py: what the driver's answer means, from answers as they look."""

import os
from dataclasses import replace

import pytest

from indextts.commands.launching import Launch
from indextts.planning.hardware import (
    GpuFacts,
    MachineFacts,
    find_machine,
    gpus_for,
    parse_gpus,
    share_of,
    visible_gpus,
)

L4 = GpuFacts("NVIDIA L4", 22_478 << 20, (8, 9))
T4 = GpuFacts("Tesla T4", 15_360 << 20, (7, 5), number=1)


def test_cards_are_read_with_the_memory_that_they_report():
    assert parse_gpus(["NVIDIA L4, 22478, 8.9", "Tesla T4, 15360, 7.5"]) == (L4, T4)
    assert L4.memory_bytes / 2**30 < 22  # of nominal 24 GB


def test_an_old_driver_does_not_say_the_compute_capability():
    [card] = parse_gpus(["Tesla K80, 11441"])
    assert card.compute_capability is None
    assert not card.has_native_bfloat16


def test_a_card_that_is_lost_is_none():
    assert parse_gpus(["NVIDIA A100, [N/A], [N/A]"]) == ()


@pytest.mark.parametrize(
    ("card", "is_native"),
    [(L4, True), (T4, False), (GpuFacts("A100", 1, (8, 0)), True), (GpuFacts("V100", 1, (7, 0)), False)],
)
def test_bfloat16_is_native_from_compute_capability_8(card: GpuFacts, is_native: bool):
    assert card.has_native_bfloat16 is is_native


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
def test_cards_hidden_from_cuda_are_not_counted(chosen: str | None, expected: tuple[GpuFacts, ...]):
    assert visible_gpus((L4, T4), chosen) == expected


def test_this_machine_is_found():
    machine = find_machine()
    assert machine.num_cores == len(os.sched_getaffinity(0))
    assert 0 < machine.memory_bytes <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_each_process_takes_a_card_and_its_part_of_the_rest():
    machine = MachineFacts((L4, T4), 16, 64 << 30)
    assert share_of(machine, Launch()) == replace(machine, gpus=(L4,))
    assert share_of(machine, Launch(gpus="1")).gpu == T4
    assert gpus_for(machine, Launch(processes=2, gpus="1,0")) == (T4, L4)
    # what fits the smallest of the cards fits all
    assert share_of(machine, Launch(processes=2)) == MachineFacts((T4,), 8, 32 << 30)
    assert share_of(MachineFacts((), 2, 8 << 30), Launch(processes=2)) == MachineFacts((), 1, 4 << 30)
    assert gpus_for(machine, Launch(gpus="7")) == ()
