"""Runner of a job: wait for the job before it, run the commands in order, record how they ended.

    python -S -P indextts/projects/jobs/runner.py FOLDER      started by starting.py in the repository root

__init__.py describes the files of FOLDER. The runner imports only the standard library and modules that do
the same, so it starts at once and stays small while training runs for days. It has a session of its own, so
it outlives the page and the terminal. The job exists once the runner has recorded itself in job.json.

The phases of a stop need no page:
    request         SIGTERM to the program: a trainer saves and exits
    after save_s    repeated SIGTERM: a trainer exits without saving on the third (signals.py)
    after kill_s    SIGKILL to all processes of the job

A launcher (torchrun) forwards the first SIGTERM to its ranks, waits for them and exits with status 1. A
second SIGTERM would end its wait, so the runner sends the repeated ones to the ranks.
"""

import json
import os
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

from indextts.projects.jobs.files import MARK, WEBHOOK, end_reason, mark, started_processes
from indextts.system.files import read_object, write_json
from indextts.system.processes import (
    LAUNCHER_STOPPED,
    find_process,
    read_stat,
    send_signal,
    shell_text,
    this_process,
)

COULD_NOT_START = 127
STOPPED = 128 + signal.SIGTERM
POLL_S = 0.5  # of a waiting job, for the end of the job before
REPEAT_S = 0.2  # between repeated stop signals
LEFTOVER_GRACE_S = 2.0  # time for leftover processes to exit after SIGTERM, before SIGKILL
LEFTOVER_LIMIT_S = 10.0  # a process in a disk or GPU call dies some time after SIGKILL
# Signals never interrupt the runner: it takes SIGTERM and SIGCHLD when it waits, and never the others.
BLOCKED = (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP)


def main(folder: Path) -> None:
    """Record the runner, run the job, write exit.json and send the notification."""
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    job = read_object(folder / "job.json")
    if not job["after"]:
        job["began"] = job["started"]
    job["runner"] = asdict(this_process())
    write_json(folder / "job.json", job)
    ending = {**Runner(folder, job).run(), "ended": time.time()}
    write_json(folder / "exit.json", ending)
    if address := os.environ.get(WEBHOOK):
        from indextts.projects.jobs.webhook import send

        seconds = ending["ended"] - job.get("began", job["started"])
        if problem := send(address, folder.parent.parent.name, job["stage"], ending["reason"], seconds):
            log(f"[Warn] the webhook of {WEBHOOK} failed: {problem}\n")


class Runner:
    """Run of a job, from its wait to its end.

    Args:
        stop_time: monotonic time of the first SIGTERM. Later ones are ignored, because a trainer exits
            without saving on the third, so repeated stop requests must not reach it.
    """

    def __init__(self, folder: Path, job: dict[str, Any]) -> None:
        self.folder, self.job = folder, job
        self.me = this_process()
        self.launcher: list[str] = job["launcher"]
        self.stop_stage: str | None = None
        self.stop_time: float | None = None

    def run(self) -> dict[str, Any]:
        """Run the job; return the fields of exit.json, without the time."""
        if self.job["after"]:
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

    def is_stopping(self, wait_s: float | None = 0) -> bool:
        """Return whether a stop was requested; first wait for a signal, without limit if it is None."""
        numbers = (signal.SIGTERM, signal.SIGCHLD)
        found = signal.sigwaitinfo(numbers) if wait_s is None else signal.sigtimedwait(numbers, wait_s)
        if found and found.si_signo == signal.SIGTERM and self.stop_time is None:
            self.stop_time = time.monotonic()
        return self.stop_time is not None

    def wait_for_predecessor(self) -> str | None:
        """Return the end reason of the job before this one; None if this one is stopped first."""
        while not self.is_stopping():
            if reason := end_reason(Path(self.job["after"])):
                return reason
            self.is_stopping(POLL_S)
        return None

    def run_commands(self) -> tuple[int, str]:
        """Run the commands until one fails or a stop; return the exit status and end reason."""
        added: dict[str, str] = self.job["environment"]
        # Threads of PyTorch (libgomp) wait 300,000 turns for one another by default, in which other programs
        # cannot use their core.
        environment = {"GOMP_SPINCOUNT": "1000", **os.environ, **added, MARK: mark(self.me)}
        environment.pop(WEBHOOK, None)
        for argv in self.job["argvs"]:
            if self.is_stopping():
                return STOPPED, "stopped"
            log(f"$ {shell_text(['python', *self.launcher, *argv], added)}\n")
            try:  # -u: unbuffered, so each line is in the log at once
                program = subprocess.Popen(
                    [sys.executable, "-u", *self.launcher, Path(argv[0]).absolute(), *argv[1:]],
                    env=environment,
                    # receives all signals: it inherits the mask of the runner
                    preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, BLOCKED),
                )
            except (OSError, ValueError) as error:
                log(f"[Error] {argv[0]} could not start ({error})\n")
                return COULD_NOT_START, "failed"
            with suppress(OSError):  # a full disk: the job runs, and can be stopped while its runner is alive
                write_json(self.folder / "program.json", asdict(find_process(program.pid)))
            while (code := program.poll()) is None:
                self.is_stopping(self.advance_stop(program))
            self.end_leftovers(argv[0])
            if code == LAUNCHER_STOPPED and self.launcher and self.is_stopping():
                return STOPPED, "stopped"
            if code:
                return failure(code)
        return 0, "finished"

    def advance_stop(self, program: subprocess.Popen[bytes]) -> float | None:
        """Send the signals that are due in a stop; return the seconds until the next ones, or None."""
        if self.stop_time is None:
            return None
        waited, save_s = time.monotonic() - self.stop_time, self.job["save_s"]
        if waited < save_s:
            if self.stop_stage is None:
                self.stop_stage = "saving"
                # unless the page recorded the request; a signal may also come from elsewhere
                with suppress(OSError), (self.folder / "stop_asked").open("x") as file:
                    json.dump({"asked": time.time()}, file)
                program.terminate()
            return float(save_s - waited)
        if waited < save_s + self.job["kill_s"]:
            self.stop_stage = "ending"
            found = started_processes(self.me) if self.launcher else []
            ranks = [each for each in found if (stat := read_stat(each.pid)) and stat.parent == program.pid]
            for process in ranks:
                send_signal(process, signal.SIGTERM)
            if not ranks:
                program.terminate()
            return REPEAT_S
        self.stop_stage = "killing"
        for process in started_processes(self.me):
            send_signal(process, signal.SIGKILL)
        return REPEAT_S

    def end_leftovers(self, name: str) -> None:
        """End the processes that a program left running."""
        began, killed = time.monotonic(), set()
        grace_s = 0 if self.stop_stage == "killing" else LEFTOVER_GRACE_S
        for process in started_processes(self.me):
            send_signal(process, signal.SIGTERM)
        while left := started_processes(self.me):
            waited = time.monotonic() - began
            if waited > LEFTOVER_LIMIT_S:
                break
            if waited > grace_s:
                killed.update(left)
                for process in left:
                    send_signal(process, signal.SIGKILL)
            time.sleep(0.02)
        if killed and self.stop_stage != "killing":
            log(f"[Warn] {name} left processes running; {len(killed)} had to be killed\n")


def failure(code: int) -> tuple[int, str]:
    """Return the exit status, 128 + n for signal n, and the end reason of a program that did not finish."""
    status = 128 - code if code < 0 else code
    if status in (128 + signal.SIGINT, STOPPED):
        return status, "stopped"
    return status, "killed" if code < 0 else "failed"


def log(line: str) -> None:
    with suppress(OSError):  # a full disk must not stop the runner, which still has to write exit.json
        os.write(sys.stdout.fileno(), line.encode(errors="replace"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
