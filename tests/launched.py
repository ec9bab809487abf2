"""Training started with torchrun: its launcher and its processes by rank, all ended afterwards. Linux."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from indextts.system.processes import processes_with
from tests.trainer_process import TRAINER, environment
from tests.waiting import PATIENCE_S, wait_until


class Launched:
    """A running `python -m torch.distributed.run ... trainers/train_gpt_v2.py ...`, one thread a process."""

    def __init__(self, num_processes: int, argv: Sequence[str], screen: Path, *options: str) -> None:
        """Start it.

        Args:
            screen: gets what it prints.
            options: of torchrun.
        """
        launcher = [
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={num_processes}",
            *options,
        ]
        self.screen = screen
        self.mark = f"LAUNCHED={screen}"
        with screen.open("ab") as output:
            self.launcher = subprocess.Popen(
                [sys.executable, *launcher, str(TRAINER), *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=environment() | {"LAUNCHED": str(screen)},
            )

    def wait(self) -> int:
        """Return the launcher's exit status."""
        return self.launcher.wait(PATIENCE_S)

    def wait_until(self, is_so: Callable[[], object], what: str) -> None:
        """Return when it is so.

        Raises:
            AssertionError: it ended before, or takes too long.
        """
        wait_until(is_so, lambda: f"{what}\n{self.screen.read_text()}", self.launcher)

    def pid_of(self, rank: int) -> int:
        """Return the trainer of this rank, which is older than the data workers that it starts."""
        found = []
        for process in processes_with(self.mark):
            variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if f"RANK={rank}".encode() in variables and process.pid != self.launcher.pid:
                found.append((process.start_ticks, process.pid))
        return min(found)[1]

    def kill(self, rank: int) -> None:
        os.kill(self.pid_of(rank), signal.SIGKILL)

    def end(self) -> None:
        """Leave nothing of it running."""
        while self.launcher.poll() is None and (left := processes_with(self.mark)):
            for process in reversed(left):
                os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.01)
        self.launcher.wait()


def ending(run_dir: Path) -> tuple[int, str]:
    """Return status and reason as exit.json has them."""
    content = json.loads((run_dir / "exit.json").read_text())
    return content["status"], content["reason"]
