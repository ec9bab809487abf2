"""Tests of indextts/system/shared_memory.py."""

import sys
from pathlib import Path

from indextts.system.shared_memory import require_semaphores
from tests.small_disk import needs_namespaces, run_with_disk

PROGRAM = """
from indextts.errors import UserError
from indextts.system.shared_memory import require_semaphores
try:
    require_semaphores()
except UserError as error:
    print(error)
"""


def test_a_machine_with_shared_memory_has_semaphores():
    require_semaphores()


@needs_namespaces
def test_full_shared_memory_is_one_line_that_names_the_folder_and_the_option_of_docker(tmp_path: Path):
    argv = [sys.executable, "-c", PROGRAM]
    ended = run_with_disk(Path("/dev/shm"), 1 << 16, argv, copy=tmp_path / "shm", is_full=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    [line] = ended.stdout.splitlines()
    assert "/dev/shm" in line
    assert "--shm-size" in line
