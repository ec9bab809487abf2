"""A program of tools/ that kills itself in the middle of its work, at the same point on every machine."""

import os
import signal
import subprocess
import sys

from tests.conftest import REPOSITORY

KILLS_ITSELF = """
import os, runpy, signal, sys
from pathlib import Path
_, module, condition, *arguments = sys.argv
is_so = compile(condition, "condition", "eval")
def look(event, _):
    if event in ("open", "os.mkdir", "os.rename") and eval(is_so):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(look)
sys.argv = [module, *arguments]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def kill_when(condition: str, module: str, arguments: list[str]) -> None:
    """Run a program, which dies at the next use of a file once `condition` is true.

    Args:
        condition: a Python expression, which may use Path but must open no file.
    """
    program = subprocess.run(
        [sys.executable, "-c", KILLS_ITSELF, module, condition, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert program.returncode == -signal.SIGKILL, "it ended before it was killed"
