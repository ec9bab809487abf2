"""Tests of setup_venv.sh: a missing requirement is reported with what to do."""

import hashlib
import os
import re
import shutil
import subprocess
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import REPOSITORY

SCRIPTS = ("run.sh", "setup_venv.sh", "requirements.txt", "requirements.lock", "pyproject.toml")
TOOLS = ("bash", "cat", "cksum", "tr", "rm", "dirname", "env")


def run_in(folder: Path, programs: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run run.sh in a copy of the repository's scripts, with `programs` and a few basic tools on PATH."""
    for name in SCRIPTS:
        shutil.copy(REPOSITORY / name, folder)
    path = folder / "bin"
    path.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (path / tool).symlink_to(found)
    for name, text in programs.items():
        (path / name).write_text(f"#!{shutil.which('bash')}\n{text}\n")
        (path / name).chmod(0o755)
    env = {**os.environ, "PATH": str(path)}
    return subprocess.run(["bash", "run.sh"], cwd=folder, env=env, capture_output=True, text=True)


def test_without_a_suitable_python_the_message_names_the_version_to_install(tmp_path: Path):
    too_old = 'exec "$REAL" -c "import sys; sys.exit(1)"'  # answers the question for its version with no
    answer = run_in(tmp_path, {"python3": too_old.replace("$REAL", "/bin/false")})
    assert answer.returncode == 2
    assert answer.stderr.startswith("No Python 3.11, 3.12 or 3.13 was found: install one")


def test_without_the_venv_module_the_message_names_the_package(tmp_path: Path):
    python = '[ "$1" = -c ] && exit 0; echo "ensurepip is not available" >&2; exit 1'
    answer = run_in(tmp_path, {"python3.11": python})
    assert answer.returncode == 2
    assert "apt install python3-venv" in answer.stderr
    assert not (tmp_path / ".venv").exists()


def test_without_the_network_the_message_says_to_run_it_again(tmp_path: Path):
    pip = "#!/bin/sh\\necho 'Could not find a version' >&2; exit 1\\n"
    python = (
        '[ "$1" = -c ] && exit 0\n'
        f'mkdir -p .venv/bin; printf "{pip}" >.venv/bin/python; cp .venv/bin/python .venv/bin/pip\n'
        "chmod 755 .venv/bin/python .venv/bin/pip"
    )
    for tool in ("mkdir", "cp", "chmod", "sh"):
        python = python.replace(f"{tool} ", f"{shutil.which(tool)} ", 1) if tool != "sh" else python
    answer = run_in(tmp_path, {"python3.11": python})
    assert answer.returncode == 2
    assert "Check the network connection, then run the same command again to continue." in answer.stderr
    assert not list(tmp_path.glob(".venv/installed-*"))
    assert "requirements.lock" in answer.stderr  # this python does not say that it is the right one


@pytest.mark.parametrize(
    ("answer", "build"),
    [("exit 9", "cpu"), ("echo", "cpu"), ("echo 570.133.20", "cu126"), ("echo 580.65.06", "default")],
)
def test_the_build_of_pytorch_follows_from_the_driver(tmp_path: Path, answer: str, build: str):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = ["bash", "-c", ". ./setup_venv.sh; torch_build"]
    assert subprocess.check_output(script, cwd=REPOSITORY, env=env, text=True) == build


def write_wheel(folder: Path) -> Path:
    """Write the wheel of an empty package that no index has."""
    folder.mkdir()
    path = folder / "locked_probe-1.0-py3-none-any.whl"
    info = "locked_probe-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("locked_probe.py", "")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: locked-probe\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.slow
def test_packages_come_from_the_lock_file_and_only_with_their_hashes(tmp_path: Path):
    shutil.copy(REPOSITORY / "setup_venv.sh", tmp_path)
    wheel = write_wheel(tmp_path / "wheels")
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "requirements.txt").write_text("locked-probe\n")
    env = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent)}
    right = hashlib.sha256(wheel.read_bytes()).hexdigest()

    def set_up(digest: str) -> int:
        (tmp_path / "requirements.lock").write_text(f"locked-probe==1.0 --hash=sha256:{digest}\n")
        script = ". ./setup_venv.sh; setup_venv"
        return subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env).returncode

    assert set_up("0" * 64) == 2
    assert not list(tmp_path.glob(".venv/lib/*/site-packages/locked_probe.py"))
    assert set_up(right) == 0
    assert list(tmp_path.glob(".venv/lib/*/site-packages/locked_probe.py"))


def test_the_lock_file_has_all_packages_except_torch_with_hashes_and_no_host():
    text = (REPOSITORY / "requirements.lock").read_text()
    entries = [entry for entry in re.split(r"\n(?=[a-z])", text) if not entry.startswith("#")]
    locked = {}
    for entry in entries:
        found = re.match(r"([\w.-]+)==([\w.]+) ", entry)
        assert found, entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
        locked.setdefault(canonicalize_name(found[1]), set()).add(found[2])
    wanted = (REPOSITORY / "requirements.txt").read_text().split()
    for line in wanted:
        name, _, version = line.partition("==")
        if version and name != "torch":
            assert locked[canonicalize_name(name)] == {version}, line
    faces_visitors = {"starlette", "uvicorn", "python-multipart", "orjson", "pillow", "fastapi", "h11"}
    assert locked.keys() >= faces_visitors
    cuda = re.compile(r"(nvidia-(?!ml-py)|cuda-|torch|triton)")
    assert not [name for name in locked if cuda.match(name)]
    assert "://" not in text
    assert not re.search(r"^--", text, re.MULTILINE)


def test_the_installed_packages_are_those_of_the_lock_file():
    for line in (REPOSITORY / "requirements.lock").read_text().splitlines():
        if "==" in line and not line.startswith("#"):
            requirement = Requirement(line.removesuffix("\\"))
            if requirement.marker is None or requirement.marker.evaluate():
                assert requirement.specifier.contains(metadata.version(requirement.name)), line
