import subprocess
import sys

import pytest

from indextts.errors import FOLDER_IN_USE, UserError
from indextts.system.disk import locked_folder

HOLDER = """
import sys, time
from pathlib import Path
from indextts.system.disk import locked_folder
with locked_folder(Path(sys.argv[1]), in_use="no"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_has_one_writer_until_its_process_is_gone(tmp_path):
    lock = tmp_path / "new/folder/.lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, lock], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with (
            pytest.raises(UserError, match="wait for it") as refused,
            locked_folder(lock, in_use="wait for it"),
        ):
            pass
        assert refused.value.exit_status == FOLDER_IN_USE
        holder.kill()
    with locked_folder(lock, in_use="wait for it"):
        pass


def test_a_path_that_is_not_a_folder_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file: "), locked_folder(tmp_path / "file/.lock", in_use="-"):
        pass
