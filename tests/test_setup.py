"""Tests of setup_venv.sh: a missing requirement is reported with what to do."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.conftest import REPOSITORY

TOOLS = ("bash", "cat", "cksum", "tr", "rm", "dirname", "env")


def run_in(folder: Path, programs: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run run.sh in a copy of the repository's scripts, with `programs` and a few basic tools on PATH."""
    for name in ("run.sh", "setup_venv.sh", "requirements.txt", "pyproject.toml"):
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
    assert answer.stderr.startswith("No Python 3.11 or 3.12 was found: install one")


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
    assert "Is the network there? Run the same command again to go on." in answer.stderr
    assert not list(tmp_path.glob(".venv/installed-*"))
