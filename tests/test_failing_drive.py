"""A run folder on a drive that fails: calls on its files end with an error of the system."""

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from indextts.errors import DISK_FULL
from indextts.runs.directory import verify_checkpoint
from tests.conftest import REPOSITORY
from tests.test_trainer import numbers
from tests.tiny_run import TinyRun
from tests.waiting import wait_until

ENDLESS = {"epochs": 100_000, "val_interval": 200, "log_interval": 20, "save_interval": 40}
# short delays before the next attempt to save
TRAIN = """
import sys
from indextts.training import saving
saving.RETRY_AFTER_S = saving.FINAL_RETRY_AFTER_S = 0.5
saving.STOP_PATIENCE_S = 2.0
from indextts.system.log_lines import log_to_stdout
log_to_stdout()
from trainers.train_gpt_v2 import main
sys.exit(main(sys.argv[1:]))
"""


class Drive:
    """A trainer whose run folder fails on demand."""

    def __init__(self, run: TinyRun, folder: Path) -> None:
        self._fault, self.screen = folder / "fault", folder / "screen.txt"
        library = folder / "failing_drive.so"
        source = REPOSITORY / "tests/failing_drive.c"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        preloaded = {"LD_PRELOAD": str(library), "DRIVE": str(run.output), "DRIVE_FAILS": str(self._fault)}
        with self.screen.open("wb") as output:
            self.trainer = subprocess.Popen(
                [sys.executable, "-c", TRAIN, *run.flags(**ENDLESS)],
                env={**os.environ, **preloaded, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=REPOSITORY,
            )

    def fail(self, number: int) -> None:
        self._fault.symlink_to(str(number))

    def recover(self) -> None:
        self._fault.unlink()

    def wait_for(self, line: str, count: int = 1) -> None:
        wait_until(lambda: self.said(line) >= count, self.screen.read_text, self.trainer)

    def said(self, line: str) -> int:
        return self.screen.read_text(errors="replace").count(line)

    def stop(self) -> int:
        self.trainer.send_signal(signal.SIGTERM)
        return self.trainer.wait(60)


@pytest.fixture
def drive(tiny: TinyRun, tmp_path: Path) -> Iterator[Drive]:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    drive = Drive(tiny, tmp_path)
    yield drive
    drive.trainer.kill()
    drive.trainer.wait()


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(errno.ENOTCONN, id="gone"),
        pytest.param(errno.EIO, id="broken", marks=pytest.mark.long),
        pytest.param(errno.ESTALE, id="stale", marks=pytest.mark.long),
    ],
)
@pytest.mark.failure(75)
def test_a_run_outlives_a_drive_that_fails_for_a_while(drive: Drive, tiny: TinyRun, number: int):
    drive.wait_for("Saved ")
    drive.fail(number)
    drive.wait_for("Cannot write the checkpoint", count=2)
    saved = drive.said("Saved ")
    drive.recover()
    drive.wait_for("Saved ", saved + 2)
    assert drive.stop() == 143, drive.screen.read_text()
    assert "Traceback" not in drive.screen.read_text()
    assert drive.said("Cannot write the metrics") == 1
    steps = [int(step) for step in re.findall(r"\[Train\].* step=(\d+)", drive.screen.read_text())]
    assert list(numbers(tiny, kind="train")) == steps  # those of the time without a drive were written later
    assert f"step={steps[-1]} " in tiny.log
    latest = verify_checkpoint(tiny.output / "latest.pth")
    assert tiny.train(resume="auto", max_steps=latest.step + 1) == 0


@pytest.mark.failure(75)
def test_a_stop_on_a_drive_that_is_gone_ends_with_4(drive: Drive, tiny: TinyRun):
    drive.wait_for("Saved ")
    drive.fail(errno.ENOTCONN)
    drive.wait_for("Cannot write the checkpoint")
    assert drive.stop() == DISK_FULL, drive.screen.read_text()
    assert "Traceback" not in drive.screen.read_text()
    drive.recover()
    verify_checkpoint(tiny.output / "latest.pth")
