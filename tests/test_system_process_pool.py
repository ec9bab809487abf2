import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from indextts.system import processes
from indextts.system.process_pool import ProcessPool
from indextts.system.processes import Process, find_process, is_alive, processes_with, read_stat, send_signal
from tests.small_disk import needs_namespaces, run_with_disk
from tests.waiting import PATIENCE_S, wait_until

PROGRAM = """
from indextts.errors import UserError
from indextts.system.process_pool import require_semaphores
try:
    require_semaphores()
except UserError as error:
    print(error)
"""


@needs_namespaces
def test_full_process_pool_is_one_line_that_names_the_folder_and_the_option_of_docker(tmp_path: Path):
    argv = [sys.executable, "-c", PROGRAM]
    ended = run_with_disk(Path("/dev/shm"), 1 << 16, argv, copy=tmp_path / "shm", is_full=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    [line] = ended.stdout.splitlines()
    assert "/dev/shm" in line
    assert "--shm-size" in line


def test_all_workers_start_at_the_first_task():
    with ProcessPool(2, multiprocessing.get_context("spawn"), _ignore_ctrl_c) as pool:
        [pid] = pool.map(_pid, [0])
        assert len(multiprocessing.active_children()) == 2
        assert pid != os.getpid()


def test_a_pool_whose_worker_dies_while_tasks_are_added_ends():
    pool = ProcessPool(4, multiprocessing.get_context("spawn"), _ignore_ctrl_c)
    with pytest.raises(BrokenProcessPool):
        _submit_and_wait(pool)
    pool.shutdown()
    assert multiprocessing.active_children() == []


SLEEPING = """
import time
from indextts.system.process_pool import map_in_processes
list(map_in_processes(time.sleep, [1000.0] * 2, 2))
"""


def test_ctrl_c_does_not_wait_for_the_tasks():
    program = subprocess.Popen([sys.executable, "-c", SLEEPING], stderr=subprocess.DEVNULL)
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
    wait_until(lambda: len(children.read_text().split()) == 3, process=program)  # one tracks semaphores
    program.send_signal(signal.SIGINT)
    assert program.wait(PATIENCE_S) not in (0, None)


def _submit_and_wait(pool: ProcessPool) -> None:
    """Run 40 tasks of which one kills its worker: the next `submit` or a result raises."""
    for task in [pool.submit(_die if number == 3 else _pid, number) for number in range(40)]:
        task.result()


def _ignore_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _pid(_: int) -> int:
    time.sleep(0.01)
    return os.getpid()


def _die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


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
