"""Tests of the built package: it carries the programs, the demo and its requirements."""

import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel, built offline from a copy of the files that git knows."""
    folder = tmp_path_factory.mktemp("package")
    tracked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(tracked, cwd=REPOSITORY, capture_output=True, check=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (REPOSITORY / name).is_file():
            target = folder / "source" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((REPOSITORY / name).read_bytes())
    build = ["pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "-w", folder]
    subprocess.run([sys.executable, "-m", *map(str, build), str(folder / "source")], check=True)
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_the_wheel_carries_what_the_page_starts(wheel: zipfile.ZipFile):
    names = set(wheel.namelist())
    programs = [
        *REPOSITORY.glob("tools/*.py"),
        *REPOSITORY.glob("trainers/*.py"),
        REPOSITORY / "check_amharic_data.py",
        REPOSITORY / "verify_amharic_training.py",
        REPOSITORY / "webui_amharic.py",
    ]
    page = [
        path for path in REPOSITORY.glob("indextts/**/*") if path.suffix in (".css", ".js", ".json", ".woff2")
    ]
    demo = [
        *REPOSITORY.glob("demo/audio/*"),
        *REPOSITORY.glob("demo/checkpoints*/*"),
        *REPOSITORY.glob("demo/*.yaml"),
    ]
    wanted = {str(path.relative_to(REPOSITORY)) for path in [*programs, *page, *demo]}
    assert wanted - names == set()
    assert "indextts/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "docs/"))]


def test_the_wheel_requires_the_pinned_packages(wheel: zipfile.ZipFile):
    path = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = HeaderParser().parsestr(wheel.read(path).decode())
    pins = [line for line in (REPOSITORY / "requirements.txt").read_text().split("\n") if "==" in line]
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert required == pins
    assert metadata["License-Expression"] == "Apache-2.0"
    assert len(pins) > 10


def test_the_wheel_has_a_command_for_the_page(wheel: zipfile.ZipFile, tmp_path: Path):
    wheel.extractall(tmp_path)
    start = "import sys, webui_amharic; sys.argv = ['page', '--help']; webui_amharic.run_page()"
    answer = subprocess.run(
        [sys.executable, "-P", "-c", start],
        cwd=tmp_path / "indextts2_amharic-1.0.0.dist-info",
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    assert "--workspace" in answer.stdout
    entry = next(name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "webui_amharic:run_page" in wheel.read(entry).decode()
