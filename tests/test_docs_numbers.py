"""Test of the numbers in README and users' pages: each number with a unit has a source that states it.

The sources of a section are the files that it links or names in code, the rows of the flags that it names in
docs/commands.md, and comments that readers do not see:

    <!-- from: indextts/data/pairs.py -->    a file that states the number, such as a constant of the code
    <!-- 5 * 7.83 = 39 -->                   a formula, which this test computes
    <!-- example: 12 -->                     numbers that the page itself chooses, such as an example

A block (a paragraph, an item, or a row with the paragraph before its table) that links another site has its
source there. A small number may agree with another number of a source by chance.
"""

import math
import re
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tools.commands_page import commands_page

PAGES = [path for path in sorted(REPOSITORY.glob("docs/*.md")) if path.name != "commands.md"]
TEXTS = {".md", ".py", ".toml", ".yaml", ".sh", ".txt", ".json"}

NUMBER = r"\d[\d,_]*(?:\.\d+)?(?:e-?\d+)?"
UNIT = "%|ms|s|seconds?|min|minutes?|h|hours?|days?|weeks?|[kKMG]i?B|TFLOPS|k?Hz|dB|dBFS|LUFS|times|nats"
QUANTITY = re.compile(rf"(?<![\w.,])({NUMBER})(?:(?: to | and |-)({NUMBER}))?[ -]({UNIT})(?!\w)|\$({NUMBER})")
CODE = re.compile(r"^(?: {4}|\t).*$|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#]+)")
NAMED = re.compile(r"`([\w./-]+\.\w+)`|<!-- from: (\S+) -->")
FORMULA = re.compile(r"<!-- ([-\d.e+*/() ]+) = ([\d.]+) -->")
EXAMPLE = re.compile(r"<!-- example: ([^>]+) -->")
FLAG = re.compile(r"`(--[a-z-]+)")


def numbers(text: str) -> list[float]:
    return [float(re.sub("[,_]", "", number)) for number in re.findall(NUMBER, text)]


@cache
def numbers_in(path: Path) -> list[float]:
    if path.is_dir():
        return [number for file in path.iterdir() if file.is_file() for number in numbers_in(file)]
    if not path.is_file() or path.suffix not in TEXTS or path.name == "commands.md":
        return []
    text = path.read_text(encoding="utf-8")
    if path in PAGES:  # only its numbers with a unit, which have a source themselves
        text = " ".join(match[0] for match in QUANTITY.finditer(CODE.sub("", text)))
    return numbers(text)


@cache
def numbers_of_flag(flag: str) -> list[float]:
    return [n for line in commands_page().splitlines() if f"`{flag}" in line for n in numbers(line)]


def is_rounded(number: float, value: str) -> bool:
    decimals = len(value.partition(".")[2])
    return math.isclose(number, float(re.sub("[,_]", "", value)), abs_tol=0.5001 * 10**-decimals)


def stated(page: Path, section: str) -> list[float]:
    """Return the numbers that the sources of a section state."""
    for formula, value in FORMULA.findall(section):
        assert is_rounded(eval(formula), value), f"{page.name}: {formula} is not {value}"
    found = [float(value) for _, value in FORMULA.findall(section)]
    found += numbers(" ".join(EXAMPLE.findall(section)))
    names = {*LINK.findall(section), *(name for pair in NAMED.findall(section) for name in pair if name)}
    for path in {(folder / name).resolve() for name in names for folder in (page.parent, REPOSITORY)}:
        found += [] if path == page else numbers_in(path)
    return found + [number for flag in set(FLAG.findall(section)) for number in numbers_of_flag(flag)]


def blocks(section: str) -> list[tuple[str, str]]:
    """Return each paragraph, item and row, a row with the paragraph before its table."""
    parts = re.split(r"\n{2,}", section)
    found = []
    for before, part in zip(["", *parts], parts, strict=False):
        if part.startswith("|"):
            found += [(row, before) for row in part.splitlines()]
        else:
            found += [(item, "") for item in re.split(r"\n(?=\s*(?:[*-]|\d+\.) )", part)]
    return found


def without_source(page: Path) -> list[str]:
    """Return the numbers that no source of their section states, with their block."""
    missing = []
    for section in re.split(r"^(?=#+ )", page.read_text(encoding="utf-8"), flags=re.MULTILINE):
        sources = stated(page, section)
        for block, before in blocks(section):
            if "](https:" in block + before:
                continue
            for first, last, unit, dollars in QUANTITY.findall(CODE.sub("", block)):
                for value in filter(None, (first, last, dollars)):
                    known = [*sources, *(100 * number for number in sources if unit == "%")]
                    if not any(is_rounded(number, value) for number in known):
                        missing.append(f"{value} {unit}: {block}")
    return missing


@pytest.mark.parametrize("page", [REPOSITORY / "README.md", *PAGES], ids=lambda page: page.name)
def test_every_number_with_a_unit_has_a_source(page: Path) -> None:
    assert without_source(page) == []


@pytest.mark.parametrize("page", [REPOSITORY / "README.md", *PAGES], ids=lambda page: page.name)
def test_a_page_for_users_is_short_and_so_are_its_paragraphs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    prose = [CODE.sub("", block) for block, _ in blocks(text) if not block.startswith("|")]
    assert [block for block in prose if len(block.split()) > 80] == []
