"""Tests of indextts/system/processes.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from indextts.system.processes import Process, is_alive, read_stat, session_members


def test_a_zombie_is_dead():
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        stat = read_stat(child.pid)
        assert stat is not None
        assert stat.code == "Z"
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert not is_alive(Process(pid=child.pid, start_ticks=stat.start_ticks, boot_id=boot_id))
        assert child.pid not in [member.pid for member in session_members(stat.session)]


@pytest.mark.failure(57)
def test_init_is_never_signalled():
    stat = read_stat(1)
    assert stat is not None
    assert 1 not in [member.pid for member in session_members(stat.session)]
