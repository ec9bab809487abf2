"""Tests of indextts/system/processes.py."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from indextts.system import processes
from indextts.system.processes import Process, find_process, is_alive, processes_with, read_stat, send_signal


def test_a_zombie_is_dead():
    with subprocess.Popen([sys.executable, "-S", "-c", ""], env={**os.environ, "MARKED": "1"}) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        stat = read_stat(child.pid)
        assert stat.code == "Z"
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert not is_alive(Process(pid=child.pid, start_ticks=stat.start_ticks, boot_id=boot_id))
        assert processes_with("MARKED=1") == []


@pytest.mark.failure(57)
def test_init_is_never_signalled(monkeypatch: pytest.MonkeyPatch):
    sent = list[int]()
    monkeypatch.setattr(processes.os, "kill", lambda pid, _: sent.append(pid))
    send_signal(find_process(1), signal.SIGTERM)
    send_signal(find_process(os.getpid()), signal.SIGTERM)
    assert sent == [os.getpid()]
