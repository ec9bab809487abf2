"""Tests of indextts/data/on_ray/cluster.py: errors without a cluster, and a temporary cluster."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from indextts.commands.data import CheckData
from indextts.commands.terminal import to_argv
from indextts.data.check import check
from indextts.data.on_ray.cluster import require_folders, running_on
from indextts.data.preprocess import preprocess
from indextts.errors import UserError
from tests.conftest import REPOSITORY
from tests.preprocess_project import command, write_dataset, write_model
from tests.waiting import PATIENCE_S, wait_until


def test_the_error_without_ray_has_the_command_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # which the program would set otherwise
    with pytest.raises(UserError, match=r"pip install .*\[distributed\]"):
        preprocess(command(tmp_path, engine="ray", backend="builtin"))
    with pytest.raises(UserError, match="--engine ray: "):
        check(CheckData(train_manifest=tmp_path / "m", engine="ray"))


def test_the_error_names_an_address_without_an_answer():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # without listening
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UserError, match=rf"--ray-address {address}: "), running_on("ray", address):
            pass


@pytest.mark.parametrize("address", ["head", "head:", ":6379", "ray://head:x", "head:99999999"])
def test_an_invalid_address_is_an_error(address):
    with pytest.raises(UserError, match=f"--ray-address {address}: "), running_on("ray", address):
        pass


def test_an_address_without_the_engine_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"--ray-address head:6379: .*--engine ray"):
        preprocess(command(tmp_path, ray_address="head:6379", backend="builtin"))


@pytest.mark.long
def test_the_local_engine_does_not_load_ray():
    program = (
        "import sys; import indextts.data.preprocess, indextts.data.check, tools.preprocess_data;"
        "sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY).returncode == 0


@pytest.mark.long
def test_sigterm_ends_the_temporary_cluster(tmp_path: Path):
    pytest.importorskip("ray", reason="needs the extra distributed")
    write_dataset(tmp_path / "data", "ab" * 300, max_duration_s=0.4)
    write_model(tmp_path / "model")
    settings = command(tmp_path, engine="ray")
    program = subprocess.Popen(
        [sys.executable, "-m", "tools.preprocess_data", *to_argv(settings)],
        cwd=REPOSITORY,
        start_new_session=True,
        env=os.environ | {"HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},  # Ray keeps its token there
    )
    try:
        shards = "features/conditioning/*/shard_00000"
        wait_until(lambda: any(settings.output_dir.glob(shards)), process=program)
        started = psutil.Process(program.pid).children(recursive=True)
        assert len(started) > 3
        program.send_signal(signal.SIGTERM)
        assert program.wait(PATIENCE_S) == 128 + signal.SIGTERM
    finally:
        program.kill()
        program.wait()
    assert psutil.wait_procs(started, timeout=PATIENCE_S)[1] == []


def test_a_machine_without_a_recordings_folder_is_an_error(tmp_path: Path):
    with pytest.raises(UserError, match=r"absent: "):
        require_folders([tmp_path / "a.wav", tmp_path / "absent/b.wav"])
