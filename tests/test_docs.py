"""Tests of the documentation: links and paths exist, generated parts are up to date."""

import re
import tomllib
from pathlib import Path

import pytest

from demo.train_networks import TrainNetworks
from indextts.commands.base import flag_of
from tests.conftest import REPOSITORY
from tools.commands_page import commands_page

PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/lab/*.md",
        "demo/*.md",
        "benchmarks/*.md",
        "benchmarks/results/*.md",
        "examples/*/*.md",
    )
    for path in REPOSITORY.glob(pattern)
)
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:indextts|tools|trainers|benchmarks|demo|docs|tests)/[\w./-]*)`")
PROGRAM = re.compile(r"\b((?:tools|trainers|benchmarks|demo)/\w+\.(?:py|sh))\b")
MODULE = re.compile(r"python -m (?!indextts\.cli_v2)((?:indextts|benchmarks|demo|examples|tests)(?:\.\w+)+)")
FLAG = re.compile(r"`(--[a-z][a-z-]*)")
DOCKER_FLAGS = {"--shm-size", "--build-arg"}
OFFICIAL_FLAG = "--version"  # of the page of IndexTTS-2
TORCHRUN_FLAGS = {
    "--max-restarts",
    "--node-rank",
    "--nproc-per-node",
    "--shutdown-timeout",
    "--signals-to-handle",
}
BENCHMARK_FLAGS = {"--output", "--help", "--minutes", "--others", "--spoken"}  # and of examples/
NETWORK_FLAGS = {flag_of(name) for name in TrainNetworks.model_fields}
SCRIPT_FLAGS = {"--all", "--torch"}  # of test.sh, tests.planted_faults and run.sh
CODE = re.compile(r"^```.*?^```|^(?: {4}|\t).*?$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, formed as GitHub forms them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_of_a_page_has_a_target(page: Path) -> None:
    broken = []
    for link in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if re.search(r"^Made by `\S+` as of commit \w+;", text, re.MULTILINE):
        return  # the program of these results exists in that commit only
    paths = {path for path in (*PATH.findall(text), *PROGRAM.findall(text)) if "NAME" not in path}
    assert sorted(path for path in paths if not (REPOSITORY / path).exists()) == []
    modules = set(MODULE.findall(text))
    files = {module: REPOSITORY / module.replace(".", "/") for module in modules}
    missing = [name for name, path in files.items() if not path.with_suffix(".py").exists()]
    assert [name for name in missing if not (files[name] / "__main__.py").exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_flag_that_a_page_explains_exists(page: Path) -> None:
    if page.parent.name == "results":
        return  # flags of the commit that measured
    of_others = (
        NETWORK_FLAGS | TORCHRUN_FLAGS | BENCHMARK_FLAGS | SCRIPT_FLAGS | DOCKER_FLAGS | {OFFICIAL_FLAG}
    )
    known = set(FLAG.findall(commands_page())) | of_others | {"--flag", "--no-amp"}
    assert set(FLAG.findall(page.read_text(encoding="utf-8"))) - known == set()


def test_every_picture_of_docs_is_shown_by_a_page() -> None:
    shown = {
        (page.parent / link).resolve() for page in PAGES for link in LINK.findall(page.read_text("utf-8"))
    }
    pictures = {*REPOSITORY.glob("docs/**/*.png"), *REPOSITORY.glob("docs/**/*.svg")}
    assert sorted(pictures - shown) == []


def test_every_page_of_docs_is_linked_from_the_readme() -> None:
    linked = set(LINK.findall((REPOSITORY / "README.md").read_text(encoding="utf-8")))
    named = {link.partition("#")[0] for link in linked}
    assert {f"docs/{page.name}" for page in (REPOSITORY / "docs").glob("*.md")} - named == set()


def test_the_tour_names_what_its_files_define() -> None:
    text = (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| `([^`]+)` \| `(\w+)` \|$", text, re.MULTILINE)
    assert len(rows) > 15
    for path, name in rows:
        source = (REPOSITORY / path).read_text(encoding="utf-8")
        assert re.search(rf"^(?:def|class) {name}\b", source, re.MULTILINE), f"{path}: {name}"


def test_the_tour_lists_every_package_on_its_level() -> None:
    text = (REPOSITORY / "docs/architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\d) \| `(\w+)/` \|", text, re.MULTILINE)
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    levels = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    assert sorted(listed) == sorted(
        (str(len(levels) - row), name)
        for row, names in enumerate(levels)
        for name in re.findall(r"\w+", names)
    )
