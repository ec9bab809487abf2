"""Tests of the documentation: links and paths exist, generated parts are up to date."""

import re
from pathlib import Path

import pytest
import yaml

from docs.draw_levels import PICTURE, package_imports, package_levels, picture, without_shortcuts
from docs.scale_tables import (
    FAST_PER_GPU,
    FEATURE_MB_PER_HOUR,
    NVLINK,
    OPERATIONS_PER_POSITION,
    OPERATIONS_PER_S_OF_SPEECH,
    PAGE,
    RESTART_S,
    SAVE_S,
    TABLES,
    TOKENS,
    all_reduce_ms,
    epoch_s,
    filled,
    measured,
)
from indextts.commands.reference_page import commands_page
from tests.conftest import REPOSITORY

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "demo/*.md", "benchmarks/*.md", "benchmarks/results/*.md")
    for path in REPOSITORY.glob(pattern)
)
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
PATH = re.compile(r"`((?:indextts|tools|trainers|benchmarks|demo|docs|tests)/[\w./-]*)`")
PROGRAM = re.compile(r"\b((?:tools|trainers|benchmarks|demo)/\w+\.(?:py|sh))\b")
MODULE = re.compile(r"python -m ((?:indextts|benchmarks|demo|docs|tests)(?:\.\w+)+)")
FLAG = re.compile(r"`(--[a-z][a-z-]*)")
DOCKER_FLAG = "--shm-size"
OFFICIAL_FLAG = "--version"  # of the page of IndexTTS-2
TORCHRUN_FLAGS = {
    "--max-restarts",
    "--node-rank",
    "--nproc-per-node",
    "--shutdown-timeout",
    "--signals-to-handle",
}
BENCHMARK_FLAGS = {"--output", "--help"}
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
    of_others = TORCHRUN_FLAGS | BENCHMARK_FLAGS | {DOCKER_FLAG, OFFICIAL_FLAG}
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
    levels = package_levels()
    assert sorted(listed) == sorted(
        (str(len(levels) - row), name) for row, names in enumerate(levels) for name in names
    )


def test_the_picture_of_the_levels_shows_the_imports() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(), "run: python -m docs.draw_levels"
    packages = {path.parent.name for path in (REPOSITORY / "indextts").glob("*/__init__.py")}
    assert set(package_imports()) == packages


def test_an_import_that_a_path_implies_is_not_drawn() -> None:
    imports = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert without_shortcuts(imports) == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}


def test_the_tables_of_the_scale_page_are_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page, "run: python -m docs.scale_tables"
    assert re.findall(r"<!-- table: (\w+) -->", page) == list(TABLES)


def test_the_scale_tables_start_from_the_measured_numbers() -> None:
    results = REPOSITORY / "benchmarks/results"
    for name, pattern, values in (
        ("resume_time_h200.md", r"held up for ([\d.]+) s, written in 13.7", [SAVE_S]),
        ("resume_time_h200.md", r"\| resume \| [\d.]+ \| ([\d.]+)", [RESTART_S]),
        ("feature_store_2_cores.md", r"store, float16 \| \d+ \| [\d.]+ \| ([\d.]+)", [FEATURE_MB_PER_HOUR]),
        ("imbalance.md", r"([\d.]+e9) operations", [OPERATIONS_PER_POSITION]),
        ("preprocess_published_2_cores.md", r"takes ([\d.]+)e9 op", [OPERATIONS_PER_S_OF_SPEECH / 1e9]),
    ):
        found = re.findall(pattern, (results / name).read_text(encoding="utf-8"))
        assert [float(value) for value in found] == values, name


def test_the_inputs_of_the_scale_page_are_the_measured_numbers() -> None:
    text = PAGE.read_text(encoding="utf-8")
    numbers = measured()
    assert " / ".join(str(ms) for ms in numbers.step_ms.values()) in text
    assert f"| {numbers.positions_per_pair} |" in text
    assert f"{numbers.tokens_per_s:,.0f}" in text


def test_the_scale_tables_follow_their_formulas() -> None:
    numbers = measured()
    # a ring of 8 moves 2 x 7/8 of 527 million float32 gradients over 450 GB/s
    assert all_reduce_ms(8, NVLINK) == pytest.approx(1.75 * 527.4e6 * 4 / 450e9 * 1000, rel=1e-3)
    assert all_reduce_ms(1, None) == 0
    # 10,000 h in clips of 6.106 s, two pairs each
    positions = 2 * 10_000 * 3600 / 6.106 * 366.8
    assert epoch_s(numbers, 10_000) == pytest.approx(positions / 116_162)
    longer = 1 + all_reduce_ms(64, FAST_PER_GPU) / numbers.step_ms[TOKENS]
    assert epoch_s(numbers, 10_000, 64, FAST_PER_GPU) == pytest.approx(positions / 116_162 / 64 * longer)
    # two micro-batches halve the share of the all_reduce
    alone, one, two = (epoch_s(numbers, 1, 8, link, n) for link, n in ((None, 1), (NVLINK, 1), (NVLINK, 2)))
    assert one - alone == pytest.approx(2 * (two - alone))


TEMPLATES = sorted((REPOSITORY / ".github/ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_issue_form_is_valid(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.name == "config.yml":
        return
    assert form.keys() >= {"name", "description", "body"}
    ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(set(ids)) == len(ids) > 0
    assert all(part["attributes"]["label"] for part in form["body"] if part["type"] != "markdown")
