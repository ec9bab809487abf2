"""The picture of the packages and their levels, docs/levels.svg, drawn from the imports.

    python -m docs.draw_levels

`pyproject.toml` names the levels; grimp, the library behind import-linter, reads the imports. An arrow is an
import. An import that a path of arrows already shows is left out: `data` imports `text`, but only the path
data -> features -> models -> runs -> text is drawn.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import grimp

REPOSITORY = Path(__file__).resolve().parents[1]
PICTURE = REPOSITORY / "docs/levels.svg"

# In the order of the picture: within a level from left to right.
SUBJECTS = {
    "training": "the training loop",
    "webui": "the page",
    "speech": "synthesis, evaluation, export",
    "planning": "estimates before a start",
    "projects": "pipeline and jobs",
    "data": "import, check, features, pairs",
    "features": "encoders, codec, audio files",
    "models": "the GPT and its checkpoint files",
    "runs": "run directory, restore plan",
    "text": "normaliser and tokenizer",
    "commands": "every flag",
    "system": "files, processes, locks",
}

WIDTH, BOX_WIDTH, BOX_HEIGHT, ROW_HEIGHT, GAP = 860, 240, 46, 84, 26
STYLE = """
text { font-family: sans-serif; text-anchor: middle; fill: #1f2933; }
.name { font-size: 17px; font-weight: bold; }
.subject { font-size: 14px; }
.level { font-size: 14px; fill: #616e7c; }
rect { fill: #eef3fb; stroke: #2f6fde; stroke-width: 1.5; rx: 6; }
line { stroke: #52606d; stroke-width: 1.5; marker-end: url(#head); }
"""


def package_levels() -> list[list[str]]:
    """Return the packages of each level, the highest level first."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [sorted(re.findall(r"\w+", layer), key=list(SUBJECTS).index) for layer in layers]


def package_imports() -> dict[str, set[str]]:
    """Return for each package of `indextts` the packages that it imports."""
    graph = grimp.build_graph("indextts")
    packages = [name for level in package_levels() for name in level]
    return {
        package: {
            other
            for other in packages
            if other != package
            and graph.direct_import_exists(
                importer=f"indextts.{package}", imported=f"indextts.{other}", as_packages=True
            )
        }
        for package in packages
    }


def without_shortcuts(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports that no path of other imports implies.

    >>> without_shortcuts({"a": {"b", "c"}, "b": {"c"}, "c": set()})
    {'a': {'b'}, 'b': {'c'}, 'c': set()}
    """
    reached: dict[str, set[str]] = {}

    def reach(package: str) -> set[str]:
        if package not in reached:
            reached[package] = imports[package].union(*map(reach, imports[package]))
        return reached[package]

    return {
        package: {name for name in targets if not any(name in reach(other) for other in targets - {name})}
        for package, targets in imports.items()
    }


def picture() -> str:
    """Return the SVG: a row for each level, a box for each package, an arrow for each import."""
    levels = package_levels()
    height = len(levels) * ROW_HEIGHT + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#52606d"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height}" style="fill: #ffffff; stroke: none"/>',
    ]
    places = {
        name: (left, row * ROW_HEIGHT + 10)
        for row, names in enumerate(levels)
        for name, left in zip(names, _lefts(len(names)), strict=True)
    }
    for row in range(len(levels)):
        middle = row * ROW_HEIGHT + 10 + BOX_HEIGHT // 2 + 5
        lines.append(f'<text class="level" x="16" y="{middle}">{len(levels) - row}</text>')
    for package, targets in without_shortcuts(package_imports()).items():
        lines += [_arrow(places[package], places[target]) for target in sorted(targets)]
    for name, (left, top) in places.items():
        centre = left + BOX_WIDTH // 2
        lines += [
            f'<rect x="{left}" y="{top}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}"/>',
            f'<text class="name" x="{centre}" y="{top + 20}">{name}</text>',
            f'<text class="subject" x="{centre}" y="{top + 38}">{SUBJECTS[name]}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"


def _lefts(count: int) -> list[int]:
    """Return the left edges of `count` boxes that stand in the middle of a row."""
    first = (WIDTH - count * BOX_WIDTH - (count - 1) * GAP) // 2 + 14
    return [first + number * (BOX_WIDTH + GAP) for number in range(count)]


def _arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return the arrow from one box to another, below it or beside it."""
    if start[1] == end[1]:
        middle, is_right = start[1] + BOX_HEIGHT // 2, end[0] > start[0]
        x1, x2 = (start[0] + BOX_WIDTH, end[0]) if is_right else (start[0], end[0] + BOX_WIDTH)
        return f'<line x1="{x1}" y1="{middle}" x2="{x2}" y2="{middle}"/>'
    shift = max(-80, min(80, (start[0] - end[0]) // 4))  # arrows into one box end beside each other
    x1, x2 = start[0] + BOX_WIDTH // 2, end[0] + BOX_WIDTH // 2 + shift
    return f'<line x1="{x1}" y1="{start[1] + BOX_HEIGHT}" x2="{x2}" y2="{end[1]}"/>'


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
