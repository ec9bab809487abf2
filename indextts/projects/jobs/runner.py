"""Runner of a job: wait for the job before it, run the commands in order, record how they ended.

    python -S -P indextts/projects/jobs/runner.py FOLDER      started by starting.py in the repository root

__init__.py describes the files of FOLDER. The runner imports only the standard library and modules that do
the same, so it starts at once and stays small while training runs for days. The process that starting.py
starts forks the runner and exits once the runner has recorded itself in job.json: the runner is then a child
of init, outlives the page and leaves no zombie.

The phases of a stop need no page:
    request         SIGTERM to the program: a trainer saves and exits
    after save_s    repeated SIGTERM: a trainer exits without saving on the third (signals.py)
    after kill_s    SIGKILL to all processes of the job

A launcher (torchrun) forwards the first SIGTERM to its ranks, waits for them and exits with status 1. A
second SIGTERM would end its wait, so the runner sends the repeated ones to the ranks.
"""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

# After the standard library, so that no module here can shadow one of it.
sys.path.append(str(Path(__file__).resolve().parents[3]))

from indextts.projects.jobs.files import (
    KILL_S,
    SAVE_S,
    WEBHOOK,
    end_reason,
    live_processes,
)
from indextts.system.files import read_object, sync, write_json
from indextts.system.processes import (
    LAUNCHER_STOPPED,
    Process,
    children_of,
    find_process,
    read_stat,
    send_signal,
    session_and_descendants,
    shell_text,
    this_process,
)

COULD_NOT_START = 127
STOPPED = 128 + signal.SIGTERM
POLL_S = 2.0  # the end of the job before wakes a waiting job; polling covers file system delays
REPEAT_S = 0.2  # between repeated stop signals
LEFTOVER_GRACE_S = 2.0  # time for leftover processes to exit after SIGTERM, before SIGKILL
LEFTOVER_LIMIT_S = 10.0  # a process in a disk or GPU call dies some time after SIGKILL
EXIT_BYTES = 4096
PR_SET_CHILD_SUBREAPER = 36


def main(folder: Path) -> None:
    """Fork the runner; exit with status 0 once it is recorded and can be stopped, with 1 if it dies."""
    ready, write_ready = os.pipe()
    if os.fork():
        os.close(write_ready)
        os._exit(0 if os.read(ready, 1) else 1)
    os.close(ready)
    stop = StopSignal()
    job = read_object(folder / "job.json")
    if not job.get("after"):
        job["began"] = job["started"]
    job["runner"] = asdict(this_process())
    write_json(folder / "job.json", job)
    os.write(write_ready, b"1")
    os.close(write_ready)
    with suppress(OSError):
        reserve_exit_file(folder)
    ending = {**Runner(folder, job, stop).run(), "ended": time.time()}
    write_exit(folder, ending)
    if address := os.environ.get(WEBHOOK):
        from indextts.projects.jobs.webhook import send

        seconds = ending["ended"] - job.get("began", job["started"])
        if problem := send(address, folder.parent.parent.name, job["stage"], ending["reason"], seconds):
            log(f"[Warn] the webhook of {WEBHOOK} failed: {problem}\n")


class StopSignal:
    """Monotonic time of the first SIGTERM, or None; later ones are ignored.

    A trainer exits without saving on the third SIGTERM, so repeated stop requests must not reach it. SIGINT
    and SIGHUP get a handler, because the programs would inherit an ignored signal.
    """

    def __init__(self) -> None:
        self.received_at: float | None = None
        self._woken, wake = os.pipe()
        for descriptor in (self._woken, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._record)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)

    def wait(self, processes: list[int], timeout_s: float | None) -> None:
        """Wait until a process ends, a signal arrives or the timeout expires.

        Args:
            processes: pidfds.
        """
        poll = select.poll()
        for descriptor in (*processes, self._woken):
            poll.register(descriptor, select.POLLIN)
        poll.poll(None if timeout_s is None else max(1, int(timeout_s * 1000)))
        with suppress(BlockingIOError):
            while os.read(self._woken, 512):
                pass

    def _record(self, _number: int, _frame: object) -> None:
        if self.received_at is None:
            self.received_at = time.monotonic()


class Runner:
    """Run of a job, from its wait to its end."""

    def __init__(self, folder: Path, job: dict[str, Any], stop: StopSignal) -> None:
        self.folder, self.job, self.stop = folder, job, stop
        self.save_s: float = job.get("save_s", SAVE_S)
        self.kill_s: float = job.get("kill_s", KILL_S)
        self.launcher: list[str] = job.get("launcher", [])
        self.stop_stage: str | None = None
        stat = read_stat(os.getpid())
        assert stat is not None
        self.session = stat.session
        # adopt orphaned descendants, so that they are found in whatever session they are
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def run(self) -> dict[str, Any]:
        """Run the job; return the fields of exit.json, without the time."""
        if self.job.get("after"):
            before = self.wait_for_predecessor()
            if before is None:
                return {"status": STOPPED, "reason": "stopped"}
            if before != "finished":
                return {"status": None, "reason": "not_started", "before": before}
            self.job["began"] = time.time()
            with suppress(OSError):  # a full disk
                write_json(self.folder / "job.json", self.job)
        status, reason = self.run_commands()
        return {"status": status, "reason": reason, "stop_stage": self.stop_stage}

    def wait_for_predecessor(self) -> str | None:
        """Return the end reason of the job before this one; None if this one is stopped first."""
        before = Path(self.job["after"])
        while self.stop.received_at is None:
            if reason := end_reason(before):
                return reason
            descriptors = []
            for process in live_processes(before):
                with suppress(ProcessLookupError):
                    descriptors.append(os.pidfd_open(process.pid))
            self.stop.wait(descriptors, POLL_S)
            for descriptor in descriptors:
                os.close(descriptor)
        return None

    def run_commands(self) -> tuple[int, str]:
        """Run the commands until one fails or a stop; return the exit status and end reason."""
        added: dict[str, str] = self.job.get("environment", {})
        environment = {name: value for name, value in os.environ.items() if name != WEBHOOK} | added
        for argv in self.job["argvs"]:
            if self.stop.received_at is not None:
                return STOPPED, "stopped"
            log(f"$ {shell_text(['python', *self.launcher, *argv], added)}\n")
            try:  # -u: unbuffered, so each line is in the log at once
                program = subprocess.Popen(
                    [sys.executable, "-u", *self.launcher, Path(argv[0]).absolute(), *argv[1:]],
                    env=environment,
                )
            except (OSError, ValueError) as error:
                log(f"[Error] {argv[0]} could not start ({error})\n")
                return COULD_NOT_START, "failed"
            with suppress(OSError):  # a full disk: the job runs, and can be stopped while its runner is alive
                write_json(self.folder / "program.json", asdict(find_process(program.pid)))
            code = self.wait_for_end(program)
            self.end_leftovers(argv[0])
            if code == LAUNCHER_STOPPED and self.launcher and self.stop.received_at is not None:
                return STOPPED, "stopped"
            if code:
                return failure(code)
        return 0, "finished"

    def wait_for_end(self, program: subprocess.Popen[bytes]) -> int:
        """Wait for the program and stop it in phases on request; return its exit status."""
        descriptor = os.pidfd_open(program.pid)
        while (code := program.poll()) is None:
            reap_adopted(program.pid)
            self.stop.wait([descriptor], self.advance_stop(program))
        os.close(descriptor)
        return code

    def advance_stop(self, program: subprocess.Popen[bytes]) -> float | None:
        """Send the signals that are due in a stop; return the seconds until the next ones, or None."""
        if self.stop.received_at is None:
            return None
        waited = time.monotonic() - self.stop.received_at
        if waited < self.save_s:
            if self.stop_stage is None:
                self.stop_stage = "saving"
                record_stop(self.folder)
                program.terminate()
            return self.save_s - waited
        if waited < self.save_s + self.kill_s:
            self.stop_stage = "ending"
            ranks = children_of(program.pid) if self.launcher else []
            for process in ranks:
                send_signal(process, signal.SIGTERM)
            if not ranks:
                program.terminate()
            return REPEAT_S
        self.stop_stage = "killing"
        for process in self.other_processes():
            send_signal(process, signal.SIGKILL)
        return REPEAT_S

    def end_leftovers(self, name: str) -> None:
        """End the processes that a program left running."""
        began, killed = time.monotonic(), set()
        for process in self.other_processes():
            send_signal(process, signal.SIGTERM)
        while leftovers := self.other_processes():
            waited = time.monotonic() - began
            if waited > LEFTOVER_LIMIT_S:
                log(f"[Warn] {name} left processes running; {len(leftovers)} cannot be killed\n")
                break
            if waited > LEFTOVER_GRACE_S or self.stop_stage == "killing":
                for process in leftovers:
                    send_signal(process, signal.SIGKILL)
                killed.update(leftovers)
            reap_adopted()
            self.stop.wait([], 0.02)
        reap_adopted()
        if killed and self.stop_stage != "killing":
            log(f"[Warn] {name} left processes running; {len(killed)} had to be killed\n")

    def other_processes(self) -> list[Process]:
        """Return the living processes of this job, except the runner."""
        processes = session_and_descendants(self.session)
        return [process for process in processes if process.pid != os.getpid()]


def reap_adopted(program: int | None = None) -> None:
    """Reap adopted zombies; leave the exit status of the program to its Popen."""
    with suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == program:
                return
            os.waitpid(ended.si_pid, 0)


def failure(code: int) -> tuple[int, str]:
    """Return the exit status, 128 + n for signal n, and the end reason of a program that did not finish."""
    status = 128 - code if code < 0 else code
    if status in (128 + signal.SIGINT, STOPPED):
        return status, "stopped"
    return status, "killed" if code < 0 else "failed"


def record_stop(folder: Path) -> None:
    """Record the time of the stop request, unless the page did; a signal may also come from elsewhere."""
    with suppress(OSError), (folder / "stop_asked").open("x") as file:
        json.dump({"asked": time.time()}, file)


def reserve_exit_file(folder: Path) -> None:
    """Allocate the disk blocks of exit.json, so that a job that fills the disk can still record its end."""
    aside = folder / ".tmp-exit.json"
    aside.write_bytes(b" " * EXIT_BYTES)
    sync(aside)


def write_exit(folder: Path, ending: dict[str, Any]) -> None:
    """Write exit.json into its reserved blocks, padded with blanks."""
    aside = folder / ".tmp-exit.json"
    with aside.open("r+b" if aside.exists() else "wb") as file:
        file.write((json.dumps(ending, indent=1) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())
    aside.replace(folder / "exit.json")


def log(line: str) -> None:
    with suppress(OSError):  # a full disk must not stop the runner, which still has to write exit.json
        os.write(sys.stdout.fileno(), line.encode(errors="replace"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
