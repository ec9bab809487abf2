"""Plant faults in a copy of the sources, one at a time, and show which test of the check finds each.

    python -m tests.planted_faults [--all] [--only NAME] [--output FILE]

Each fault of planted_faults.toml is a small change such as a person makes by mistake. The tests that import
the changed module run in the copy until the first one fails: those of the short check, or with --all the long
ones too.
The table goes to CONTRIBUTING.md. Exits with status 1 if a fault was not found.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
LIMIT_S = 900  # of the tests of one fault
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    """A fault: `old` occurs once in the file at `path`, and `new` replaces it."""

    area: str
    name: str
    path: str
    old: str
    new: str


FAULTS = tuple(
    Fault(**fields)
    for fields in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["fault"]
)


@dataclass(frozen=True)
class Outcome:
    """What the tests say about a fault."""

    fault: Fault
    found_by: str  # the test that failed; "" if none did
    num_files: int  # test files that import the changed module
    wall_s: float


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="run the long tests too")
    parser.add_argument("--only", action="append", default=[], help="name of a fault; repeat for several")
    parser.add_argument("--output", type=Path, help="file for the table")
    args = parser.parse_args(argv)
    chosen = [fault for fault in FAULTS if not args.only or fault.name in args.only]
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="planted_faults_") as folder:
        copy = copy_sources(Path(folder))
        for fault in chosen:
            outcomes.append(outcome_of(fault, copy, runs_all=args.all))
            print(row_of(outcomes[-1]), flush=True)
    if args.output:
        table = ["| area | fault | found by |", "|---|---|---|", *map(row_of, outcomes)]
        args.output.write_text("\n".join(table) + "\n", encoding="utf-8")
    return 0 if all(outcome.found_by for outcome in outcomes) else 1


def copy_sources(folder: Path) -> Path:
    """Return a copy of what git tracks, beside a link to the shared folder."""
    copy = folder / "copy"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (REPOSITORY / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, copy / name)
    (folder / "shared").symlink_to(REPOSITORY.parent / "shared")
    (copy / ".venv").symlink_to(REPOSITORY / ".venv")
    return copy


def outcome_of(fault: Fault, copy: Path, runs_all: bool) -> Outcome:
    """Run the tests that import the changed module while the fault is in the copy."""
    path = copy / fault.path
    source = path.read_text(encoding="utf-8")
    files = importers(copy, fault.path)
    started = time.monotonic()
    path.write_text(planted(source, fault), encoding="utf-8")
    try:
        found_by = first_failure(copy, files, runs_all)
    finally:
        path.write_text(source, encoding="utf-8")
    return Outcome(fault, found_by, len(files), time.monotonic() - started)


def planted(source: str, fault: Fault) -> str:
    """Return the source with the fault.

    Raises:
        ValueError: the source does not contain the text to change exactly once.
    """
    if source.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: {fault.path} contains {source.count(fault.old)} times: {fault.old}")
    return source.replace(fault.old, fault.new)


def importers(copy: Path, changed: str) -> list[str]:
    """Return the test files that import the changed module, itself or through a module of tests/.

    If there are none, those that import a module that imports it, and so on.
    """
    module = changed.removesuffix(".py").replace("/", ".")
    imported = imports_of_modules(copy)
    reached, files = {module}, []
    while not files and (more := {name for name, names in imported.items() if names & reached} - reached):
        reached |= more
        files = [name for name in reached if name.startswith("tests.")]
    while more := {name for name, names in imported.items() if names & set(files)} - set(files):
        files += [name for name in more if name.startswith("tests.")]
    of_module = f"tests/test_{module.removeprefix('indextts.').replace('.', '_')}.py"
    found = [f"tests/{name.removeprefix('tests.')}.py" for name in files if name.startswith("tests.test_")]
    return sorted(found, key=lambda file: (file != of_module, file))


@cache  # of the sources without a fault, which changes no import
def imports_of_modules(copy: Path) -> dict[str, set[str]]:
    paths = [*(copy / "tests").glob("*.py"), *(copy / "indextts").rglob("*.py")]
    paths.remove(copy / "tests/conftest.py")  # all tests import it
    named = {".".join(path.relative_to(copy).with_suffix("").parts): path for path in paths}
    return {name: set(imports(path)) for name, path in named.items()}


def imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, with `from package import module` as package.module too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def first_failure(copy: Path, files: Sequence[str], runs_all: bool) -> str:
    """Return the first test that fails, or "" if all pass."""
    selected = "" if runs_all else "not long"
    argv = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", selected, *files]
    # Programs that the tests start import the copy too.
    environment = os.environ | {"PYTHONPATH": str(copy)}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(argv, cwd=copy, env=environment, stdout=output, stderr=output)
        try:
            status = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()
            return f"no end within {LIMIT_S} s"
        output.seek(0)
        printed = output.read()
    found = FAILED.search(printed)
    return found[1] if found else "" if status in (0, 5) else f"pytest ended with status {status}"


def row_of(outcome: Outcome) -> str:
    test = outcome.found_by.removeprefix("tests/").replace("::", ": ")
    return f"| {outcome.fault.area} | {outcome.fault.name} | {f'`{test}`' if test else '**not found**'} |"


if __name__ == "__main__":
    sys.exit(main())
