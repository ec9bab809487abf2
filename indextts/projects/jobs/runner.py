"""The runner of one job: waits for its turn, runs its commands one after another, writes down how they ended.

    python -S -P indextts/projects/jobs/runner.py FOLDER      started by starting.py in the repository

The files of FOLDER are drawn in __init__.py. Only the standard library is imported, and what imports nothing
else, so that the runner starts at once and stays small while a training runs for days. The process that
starting.py starts forks the runner and ends when the runner stands in job.json: the runner is nobody's child,
outlives the page and leaves no zombie.

A stop goes on without the page:
    asked           SIGTERM to the program: a trainer saves and ends
    after save_s    SIGTERM repeated: a trainer takes the third as "now, without saving" (signals.py)
    after kill_s    SIGKILL to all that the job started

A launcher passes the first SIGTERM on to its processes and waits for them, and then
ends with status 1, whatever theirs is. A second one would end its waiting, so what is repeated goes to them.
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

# Behind the standard library, so that nothing there can take its place.
sys.path.append(str(Path(__file__).resolve().parents[3]))

from indextts.projects.jobs.files import (
    KILL_S,
    SAVE_S,
    WEBHOOK,
    end_reason,
    live_processes,
    read_object,
    write_object,
)
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
LOOK_AGAIN_S = (
    2.0  # a job that waits is woken by the end of the one before it; this is for a file system's delays
)
REPEAT_S = 0.2
SWEEP_S = 2.0  # what a program left behind may take to end by itself, before SIGKILL
SWEEP_LIMIT_S = 10.0  # a process that waits for a disk or a card ends later than its SIGKILL
EXIT_BYTES = 4096
PR_SET_CHILD_SUBREAPER = 36


def main(folder: Path) -> None:
    """Fork the runner; exit with status 0 once it can be seen and stopped, with 1 if it ended before."""
    ready, say_ready = os.pipe()
    if os.fork():
        os.close(say_ready)
        os._exit(0 if os.read(ready, 1) else 1)
    os.close(ready)
    stop = StopSignal()
    job = read_object(folder / "job.json")
    if not job.get("after"):
        job["began"] = job["started"]
    job["runner"] = asdict(this_process())
    write_object(folder / "job.json", job)
    os.write(say_ready, b"1")
    os.close(say_ready)
    with suppress(OSError):
        keep_room(folder)
    ending = {**Runner(folder, job, stop).run(), "ended": time.time()}
    write_exit(folder, ending)
    if address := os.environ.get(WEBHOOK):
        from indextts.projects.jobs.end_notice import send

        seconds = ending["ended"] - job.get("began", job["started"])
        if problem := send(address, folder.parent.parent.name, job["stage"], ending["reason"], seconds):
            log(f"[Warn] the notice of the end was not delivered: {problem}\n")


class StopSignal:
    """Whether SIGTERM came, and when, by the monotonic clock; however often it comes, it is one request.

    A trainer takes the third SIGTERM as "now, without saving"; an impatient person must not cause that.
    SIGINT and SIGHUP get a handler because an ignored signal would be ignored by the programs too.
    """

    def __init__(self) -> None:
        self.asked: float | None = None
        self._woken, wake = os.pipe()
        for descriptor in (self._woken, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._note)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)

    def wait(self, processes: list[int], timeout_s: float | None) -> None:
        """Wait until one of the processes ends, a signal comes or the time is over.

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

    def _note(self, _number: int, _frame: object) -> None:
        if self.asked is None:
            self.asked = time.monotonic()


class Runner:
    """One job from its turn to its end."""

    def __init__(self, folder: Path, job: dict[str, Any], stop: StopSignal) -> None:
        self.folder, self.job, self.stop = folder, job, stop
        self.save_s: float = job.get("save_s", SAVE_S)
        self.kill_s: float = job.get("kill_s", KILL_S)
        self.launcher: list[str] = job.get("launcher", [])
        self.stop_stage: str | None = None
        stat = read_stat(os.getpid())
        assert stat is not None
        self.session = stat.session
        # What loses its parent becomes our child, and so is found, whatever session it is in.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def run(self) -> dict[str, Any]:
        """Return what exit.json says, but for the time."""
        if self.job.get("after"):
            before = self.wait_for_turn()
            if before is None:
                return {"status": STOPPED, "reason": "stopped"}
            if before != "finished":
                return {"status": None, "reason": "not_started", "before": before}
            self.job["began"] = time.time()
            with suppress(OSError):  # a full disk
                write_object(self.folder / "job.json", self.job)
        status, reason = self.run_commands()
        return {"status": status, "reason": reason, "stop_stage": self.stop_stage}

    def wait_for_turn(self) -> str | None:
        """Return how the job before this one ended; None if this one is stopped before that."""
        before = Path(self.job["after"])
        while self.stop.asked is None:
            if how := end_reason(before):
                return how
            descriptors = []
            for process in live_processes(before):
                with suppress(ProcessLookupError):
                    descriptors.append(os.pidfd_open(process.pid))
            self.stop.wait(descriptors, LOOK_AGAIN_S)
            for descriptor in descriptors:
                os.close(descriptor)
        return None

    def run_commands(self) -> tuple[int, str]:
        """Run the commands up to the first that fails, or to a stop; return the exit status and reason."""
        added: dict[str, str] = self.job.get("environment", {})
        environment = {name: value for name, value in os.environ.items() if name != WEBHOOK} | added
        for argv in self.job["argvs"]:
            if self.stop.asked is not None:
                return STOPPED, "stopped"
            log(f"$ {shell_text(['python', *self.launcher, *argv], added)}\n")
            try:  # -u: a line is in the log when it is printed
                program = subprocess.Popen(
                    [sys.executable, "-u", *self.launcher, Path(argv[0]).absolute(), *argv[1:]],
                    env=environment,
                )
            except (OSError, ValueError) as error:
                log(f"[Error] {argv[0]} could not be started ({error})\n")
                return COULD_NOT_START, "failed"
            with suppress(
                OSError
            ):  # a full disk: the job goes on, and can be stopped as long as its runner lives
                write_object(self.folder / "program.json", asdict(find_process(program.pid)))
            code = self.wait_for_end(program)
            self.sweep(argv[0])
            if code == LAUNCHER_STOPPED and self.launcher and self.stop.asked is not None:
                return STOPPED, "stopped"
            if code:
                return outcome(code)
        return 0, "finished"

    def wait_for_end(self, program: subprocess.Popen[bytes]) -> int:
        """Wait for the program, stop it in stages if asked; return its exit status."""
        descriptor = os.pidfd_open(program.pid)
        while (code := program.poll()) is None:
            reap_adopted(program.pid)
            self.stop.wait([descriptor], self.carry_out_stop(program))
        os.close(descriptor)
        return code

    def carry_out_stop(self, program: subprocess.Popen[bytes]) -> float | None:
        """Do what is due of a stop; return the seconds to the next thing to do, None for nothing to do."""
        if self.stop.asked is None:
            return None
        waited = time.monotonic() - self.stop.asked
        if waited < self.save_s:
            if self.stop_stage is None:
                self.stop_stage = "saving"
                note_stop(self.folder)
                program.terminate()
            return self.save_s - waited
        if waited < self.save_s + self.kill_s:
            self.stop_stage = "ending"
            launched = children_of(program.pid) if self.launcher else []
            for process in launched:
                send_signal(process, signal.SIGTERM)
            if not launched:
                program.terminate()
            return REPEAT_S
        self.stop_stage = "killing"
        for process in self.others():
            send_signal(process, signal.SIGKILL)
        return REPEAT_S

    def sweep(self, name: str) -> None:
        """End what a program left behind."""
        began, killed = time.monotonic(), set()
        for process in self.others():
            send_signal(process, signal.SIGTERM)
        while others := self.others():
            waited = time.monotonic() - began
            if waited > SWEEP_LIMIT_S:
                log(f"[Warn] {name} left processes behind; {len(others)} do not end\n")
                break
            if waited > SWEEP_S or self.stop_stage == "killing":
                for process in others:
                    send_signal(process, signal.SIGKILL)
                killed.update(others)
            reap_adopted()
            self.stop.wait([], 0.02)
        reap_adopted()
        if killed and self.stop_stage != "killing":
            log(f"[Warn] {name} left processes behind; {len(killed)} had to be killed\n")

    def others(self) -> list[Process]:
        """Return the living processes of this job but for the runner."""
        everybody = session_and_descendants(self.session)
        return [process for process in everybody if process.pid != os.getpid()]


def reap_adopted(program: int | None = None) -> None:
    """Take the zombies off the list that became our children; the program's own end is for its Popen."""
    with suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid == program:
                return
            os.waitpid(ended.si_pid, 0)


def outcome(code: int) -> tuple[int, str]:
    """Return the exit status, 128 + n for signal n, and the reason of a program that did not end well."""
    status = 128 - code if code < 0 else code
    if status in (128 + signal.SIGINT, STOPPED):
        return status, "stopped"
    return status, "killed" if code < 0 else "failed"


def note_stop(folder: Path) -> None:
    """Write down when the stop was asked, unless the page did: a signal may come from elsewhere."""
    with suppress(OSError), (folder / "stop_asked").open("x") as file:
        json.dump({"asked": time.time()}, file)


def keep_room(folder: Path) -> None:
    """Take the blocks of exit.json now: a job that fills the disk shall say how it ended."""
    with (folder / ".tmp-exit.json").open("wb") as file:
        file.write(b" " * EXIT_BYTES)
        file.flush()
        os.fsync(file.fileno())


def write_exit(folder: Path, ending: dict[str, Any]) -> None:
    """Write exit.json over the room that was kept for it, blanks behind it."""
    aside = folder / ".tmp-exit.json"
    with aside.open("r+b" if aside.exists() else "wb") as file:
        file.write((json.dumps(ending, indent=1) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())
    aside.replace(folder / "exit.json")


def log(line: str) -> None:
    with suppress(OSError):  # a full disk must not keep the runner from writing down how it ended
        os.write(sys.stdout.fileno(), line.encode(errors="replace"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
