"""Tests of indextts/training/metrics.py: the start in parts, from the process's own beginning."""

import logging
import re
import subprocess
import sys
import time

import pytest

from indextts.training.metrics import StartupTimes, seconds_since_process_start


def test_the_age_of_the_process_grows_with_the_clock():
    outer = time.clock_gettime(time.CLOCK_BOOTTIME)
    before = seconds_since_process_start()
    inner = time.clock_gettime(time.CLOCK_BOOTTIME)
    time.sleep(0.05)
    inner = time.clock_gettime(time.CLOCK_BOOTTIME) - inner
    passed = seconds_since_process_start() - before
    outer = time.clock_gettime(time.CLOCK_BOOTTIME) - outer
    assert inner - 1e-6 <= passed <= outer + 1e-6  # by rounding alone


def test_the_age_counts_what_came_before_this_was_imported():
    program = (
        "import time; started = time.perf_counter(); time.sleep(0.3)\n"
        "from indextts.training.metrics import seconds_since_process_start\n"
        "print(seconds_since_process_start() - (time.perf_counter() - started))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (
        float(answer.stdout) > -0.02
    )  # the kernel counts in hundredths; the interpreter's start comes on top


def test_the_line_has_every_part_in_order_and_their_sum(caplog: pytest.LogCaptureFixture):
    times = StartupTimes("imports")
    times.mark("pairs")
    time.sleep(0.1)
    times.mark("weights")
    with caplog.at_level(logging.INFO):
        times.log(7)
    (record,) = caplog.records
    found = re.fullmatch(
        r"Ready for step 7 after ([\d.]+) s: imports ([\d.]+), pairs ([\d.]+), weights ([\d.]+)",
        record.getMessage(),
    )
    assert found is not None
    total, *parts = map(float, found.groups())
    assert total == pytest.approx(sum(parts), abs=0.05 * (len(parts) + 1))
    assert parts[2] >= 0.1
