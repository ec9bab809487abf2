"""Tests of indextts/system/signals.py: signals are recorded, obeyed at the end of a step, and restored."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from indextts.system.signals import SIGNALS, StopRequest
from tests.conftest import REPOSITORY
from tests.waiting import PATIENCE_S

WAITING = """
import sys
from indextts.system.signals import StopRequest
with StopRequest(ends_process=True) as stop:
    print("ready", flush=True)
    for line in sys.stdin:
        print(stop.signal, stop.count, flush=True)
print("left", flush=True)
"""


@pytest.fixture(autouse=True)
def own_handlers() -> Iterator[None]:
    """Restore the handlers of the test run after each test."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_recorded_without_stopping_the_process(number: signal.Signals):
    with StopRequest(ends_process=False) as stop:
        assert not stop.is_requested
        os.kill(os.getpid(), number)
        assert stop.is_requested
        assert (stop.signal, stop.count) == (number, 1)


def test_the_previous_handlers_are_restored_even_after_an_error():
    before = handlers()
    with StopRequest(ends_process=False):
        assert handlers() != before
    assert handlers() == before
    with pytest.raises(KeyError), StopRequest(ends_process=False):
        raise KeyError
    assert handlers() == before


def test_later_signals_are_ignored_if_the_process_ends():
    with StopRequest(ends_process=True):
        pass
    assert handlers() == [signal.SIG_IGN] * len(SIGNALS)
    for number in SIGNALS:
        os.kill(os.getpid(), number)  # and we are still here


def test_a_hangup_that_nohup_ignores_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopRequest(ends_process=False) as stop:
        os.kill(os.getpid(), signal.SIGHUP)
        assert not stop.is_requested
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def start(program: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=REPOSITORY,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def noted(process: subprocess.Popen[str]) -> str:
    """Return the last signal that the program recorded, and the number of signals."""
    process.stdin.write("?\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_the_third_signal_ends_the_process_at_once_with_its_status():
    with start(WAITING) as process:
        for count in (1, 2):
            process.send_signal(signal.SIGTERM)
            assert noted(process) == f"15 {count}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=PATIENCE_S) == 143


def test_another_rank_can_request_a_stop_but_an_own_signal_has_priority():
    stop = StopRequest(ends_process=False)
    stop.request(signal.SIGTERM)
    stop.request(signal.SIGINT)
    assert (stop.is_requested, stop.signal) == (True, signal.SIGTERM)


def test_while_suspended_signals_have_their_default_action():
    with StopRequest(ends_process=False) as stop:
        noting = handlers()
        with stop.suspended():
            assert handlers() == [signal.SIG_DFL] * len(SIGNALS)
        assert handlers() == noting
