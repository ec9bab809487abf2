"""Tests of indextts/commands/bases.py, and of the rule that no other file compares bases."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from indextts.commands.bases import BASES, base_of
from tests.conftest import REPOSITORY

SOURCES = sorted((REPOSITORY / "indextts").rglob("*.py"))
# One module per package knows what a base computes differently.
KNOWING = ("bases.py", "model_folder.py")
# Classes that only one base has; the modules that know the bases choose between them.
CLASSES = "ByteLevelTokenizer|HalvingCodec"


@pytest.mark.parametrize(("folder", "name"), [("published_keys", "2.0"), ("published_keys25", "2.5")])
def test_the_weights_of_a_published_gpt_tell_its_base(shared: Path, folder: str, name: str):
    weights = json.loads((shared / "vectors" / folder / "gpt.json").read_text())
    assert base_of(weights) is BASES[name]
    assert BASES[name].weight_names <= set(weights)


def test_one_of_the_own_weights_is_enough_and_a_file_of_another_model_is_2_0():
    assert base_of(["gpt.ln_f.weight", "spk_emb_proj.weight"]).name == "2.5"
    assert base_of(["encoder.weight"]).name == "2.0"


def test_no_file_compares_bases_outside_the_modules_that_know_them():
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}: {text}"
        for path in SOURCES
        if path.name not in KNOWING
        for line, text in comparisons(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def comparisons(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and code of each comparison with a base, or with what only one base has.

    That is its name, the kind of its speaker condition, its classes and its weights; also in a table with one
    entry per base.
    """
    own = "|".join(re.escape(name) for base in BASES.values() for name in base.weight_names)
    pattern = re.compile(rf"BASE_2_\d|['\"]2\.[05]['\"]|base\.condition|\b({CLASSES})\b|['\"]({own})['\"]")
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        match node:
            case ast.Compare():
                parts = [node]
            case ast.Call(func=ast.Name(id="isinstance")):
                parts = [node]
            case ast.MatchValue():
                parts = [node.value]
            case ast.Subscript():
                parts = [node.slice]
            case ast.Dict():
                parts = list(node.keys)
        code = " ".join(ast.unparse(part) for part in parts if part is not None)
        if pattern.search(code):
            yield getattr(node, "lineno", 0), code
