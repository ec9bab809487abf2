"""The runner of one job: runs the job's commands one after another and writes down how they ended.

    python -S -P indextts/webui/job_runner.py FOLDER      in the repository; indextts/webui/jobs.py starts it

The files of FOLDER are drawn in jobs.py. Only the standard library is imported, so that the runner starts at
once and stays small while a training runs for days. The process that jobs.py starts forks the runner and ends
when the runner stands in job.json: the runner is nobody's child, outlives the page and leaves no zombie.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

COULD_NOT_START = 127
STOPPED = 128 + signal.SIGTERM


def main(folder: Path) -> None:
    """Fork the runner; exit with status 0 once it can be seen and stopped, with 1 if it ended before."""
    ready, say_ready = os.pipe()
    if os.fork():
        os.close(say_ready)
        os._exit(0 if os.read(ready, 1) else 1)
    stop = StopRequest()
    job = json.loads((folder / "job.json").read_bytes())
    _write_json(folder / "job.json", {**job, "runner": _identity(os.getpid())})
    os.write(say_ready, b"1")
    status, reason = run_commands(folder, job["argvs"], stop)
    _write_json(folder / "exit.json", {"status": status, "reason": reason, "ended": time.time()})


class StopRequest:
    """Whether SIGTERM came; it is passed on to the running program, once however often it comes.

    A trainer takes the third SIGTERM as "now, without saving"; an impatient person must not cause that.
    SIGINT and SIGHUP get a handler because an ignored signal would be ignored by the programs too.
    """

    def __init__(self) -> None:
        self.asked = False
        self._program: subprocess.Popen[bytes] | None = None
        signal.signal(signal.SIGTERM, self._note)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)

    def applies_to(self, program: subprocess.Popen[bytes]) -> None:
        """Name the program that runs now; a request that came while it was started reaches it here."""
        self._program = program
        if self.asked:
            program.terminate()

    def _note(self, _number: int, _frame: object) -> None:
        if not self.asked and self._program:
            self._program.terminate()
        self.asked = True


def run_commands(folder: Path, argvs: list[list[str]], stop: StopRequest) -> tuple[int, str]:
    """Run the commands up to the first that fails, or to a stop; return the exit status and the reason."""
    for argv in argvs:
        if stop.asked:
            return STOPPED, "stopped"
        _log(f"$ python {shlex.join(argv)}\n")
        try:  # -u: a line is in the log when it is printed
            program = subprocess.Popen([sys.executable, "-u", Path(argv[0]).absolute(), *argv[1:]])
        except (OSError, ValueError) as error:
            _log(f"[Error] {argv[0]} could not be started ({error})\n")
            return COULD_NOT_START, "failed"
        stop.applies_to(program)
        with suppress(
            OSError
        ):  # a full disk: the job goes on, and can be stopped as long as its runner lives
            _write_json(folder / "program.json", _identity(program.pid))
        code = program.wait()
        if code:
            return _outcome(code)
    return 0, "finished"


def _outcome(code: int) -> tuple[int, str]:
    """Return the exit status, 128 + n for signal n, and the reason of a program that did not end well."""
    status = 128 - code if code < 0 else code
    if status in (128 + signal.SIGINT, STOPPED):
        return status, "stopped"
    return status, "killed" if code < 0 else "failed"


def _identity(pid: int) -> dict[str, int | str]:
    """Return what tells this process from a later one with the same number, whatever the clock does."""
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    start_ticks = int(stat[stat.rindex(b")") + 2 :].split()[19])  # field 22; the name may hold blanks and ")"
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return {"pid": pid, "start_ticks": start_ticks, "boot_id": boot_id}


def _write_json(path: Path, content: dict[str, object] | dict[str, int | str]) -> None:
    """Write aside, sync and rename, as indextts/run_dir.py does; that module is out of reach here."""
    aside = path.with_name(f".tmp-{path.name}")
    with aside.open("wb") as file:
        file.write((json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def _log(line: str) -> None:
    with suppress(OSError):  # a full disk must not keep the runner from writing down how it ended
        os.write(sys.stdout.fileno(), line.encode(errors="replace"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
