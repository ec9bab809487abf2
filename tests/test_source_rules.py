"""Security rules checked on all sources: no shells, no evaluated text, no pickles that can run code."""

import ast
import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.version import Version

from tests.conftest import REPOSITORY

FOLDERS = ("indextts", "tools", "trainers", "demo", "benchmarks", "examples")
SOURCES = [path for folder in FOLDERS for path in sorted((REPOSITORY / folder).rglob("*.py"))]
SOURCES += sorted(REPOSITORY.glob("*.py"))
STARTERS = {"run", "Popen", "call", "check_call", "check_output"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"}
RUN_TEXT = {"eval", "exec", "compile", "__import__", "runpy.run_path", "code.interact"}
UNPICKLE = {"pickle.load", "pickle.loads", "marshal.load", "marshal.loads", "shelve.open", "dill.load"}
UNPICKLE |= {
    "joblib.load",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "pandas.read_pickle",
    "pd.read_pickle",
}

# The lowest versions without a known vulnerability that is reachable here, with the CVE numbers.
FLOORS = {
    "brotli": "1.2.1",  # CVE-2026-111497
    "gradio": "6.20.0",  # CVE-2026-28414, CVE-2026-28416, its issues 13436, 13437 and 13596
    "h11": "0.16.0",  # CVE-2025-43859
    "jinja2": "3.1.6",  # CVE-2025-27516
    "pillow": "11.3.0",  # CVE-2025-48379
    "protobuf": "6.31.1",  # CVE-2025-4565
    "python-multipart": "0.0.18",  # CVE-2024-53981
    "pyyaml": "5.4",  # CVE-2020-14343
    "ray": "2.52.0",  # CVE-2025-62593
    "scikit-learn": "1.5.0",  # CVE-2024-5206
    "starlette": "1.0.1",  # CVE-2026-48710
    "torch": "2.10.0",  # CVE-2025-32434, CVE-2026-24747
    "werkzeug": "3.0.6",  # CVE-2024-49767
}


def calls() -> Iterator[tuple[Path, ast.Call]]:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield path, node


def where(path: Path, node: ast.Call) -> str:
    return f"{path.relative_to(REPOSITORY)}:{node.lineno}: {ast.unparse(node)[:100]}"


def keyword(node: ast.Call, name: str) -> str | None:
    return next((ast.unparse(word.value) for word in node.keywords if word.arg == name), None)


def test_nothing_goes_through_a_shell() -> None:
    assert len(SOURCES) > 100
    started = 0
    for path, node in calls():
        name = ast.unparse(node.func)
        assert name not in SHELLS, where(path, node)
        assert keyword(node, "shell") in (None, "False"), where(path, node)
        if name.startswith("subprocess.") and name.partition(".")[2] in STARTERS:
            started += 1
            assert not isinstance(node.args[0], ast.Constant | ast.JoinedStr | ast.BinOp), where(path, node)
    assert started >= 2


def test_no_program_of_the_page_writes_to_a_pipe() -> None:
    # a trainer whose pipe nobody reads stands still
    looked_at = 0
    for path, node in calls():
        if any(
            path.is_relative_to(REPOSITORY / folder) for folder in ("indextts/webui", "indextts/projects")
        ):
            looked_at += 1
            assert keyword(node, "capture_output") in (None, "False"), where(path, node)
            assert ast.unparse(node.func) != "subprocess.check_output", where(path, node)
            for stream in ("stdin", "stdout", "stderr"):
                assert keyword(node, stream) != "subprocess.PIPE", where(path, node)
    assert looked_at > 1000


def test_no_source_evaluates_text() -> None:
    for path, node in calls():
        assert ast.unparse(node.func) not in RUN_TEXT, where(path, node)


def test_no_source_loads_files_that_can_run_code() -> None:
    loaded = 0
    for path, node in calls():
        name = ast.unparse(node.func)
        assert name not in UNPICKLE, where(path, node)
        assert keyword(node, "allow_pickle") in (None, "False"), where(path, node)
        assert keyword(node, "trust_remote_code") in (None, "False"), where(path, node)
        if name == "torch.load":
            loaded += 1
            assert keyword(node, "weights_only") == "True", where(path, node)
    assert loaded >= 1


def test_every_requirement_is_pinned() -> None:
    lines = (REPOSITORY / "requirements.txt").read_text().split()
    assert len(lines) > 10
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lines += [line for extra in project["optional-dependencies"].values() for line in extra]
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+|-e|\.", line)] == []


@pytest.mark.parametrize("name", FLOORS)
def test_no_installed_version_has_a_known_vulnerability(name: str) -> None:
    assert Version(metadata.version(name)) >= Version(FLOORS[name])
