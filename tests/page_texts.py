"""What the page can say, found in the sources without running them.

A text made in code reaches `t` as a literal, as a constant of a module, or inside a Sentence or its
like that is put into words later. Constants are followed through imports, dicts, conditions, loops and local
names; what comes from elsewhere (an attribute, a parameter) is left out.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.conftest import REPOSITORY

# function or class: its module, and the places of the arguments that are texts
SPEAKERS = {
    "t": ("indextts.webui.language", (0,)),
    "Sentence": ("indextts.system.sentence", (0,)),
    "Finding": ("indextts.runs.health.observed", (2, 3, 4)),
    "Step": ("indextts.webui.way", (2, 3)),
    "stage_panel": ("indextts.webui.running.panel", (1,)),  # the stage's name is said of its jobs
}
SENTENCES = {"Sentence", "Finding"}
WORD = re.compile(r"(?<![\w/.])[A-Za-z]{2,}(?![\w/])")


class Module:
    """The texts of one source file."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.constants: dict[str, ast.expr] = {}
        self.imported: dict[str, str] = {}  # name here: the module that has it
        for node in self.tree.body:
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._remember(target, value)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.constants[name] = value
                case ast.ImportFrom(module=str(module), names=names) if module.startswith("indextts"):
                    self.imported |= {each.asname or each.name: module for each in names}
        self.local = list(self._local_names())

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        for node in ast.walk(self.tree):
            match node:
                case ast.Call(func=ast.Name(id=name)) if name in SPEAKERS:
                    if self.imported.get(name, self.name) == SPEAKERS[name][0]:
                        yield name, node

    def texts(self, node: ast.expr, seen: frozenset[str] = frozenset()) -> set[str]:
        """Return the texts that an expression can be; of a dict its values."""
        match node:
            case ast.Constant(value=str(text)):
                return {text}
            case ast.IfExp(body=body, orelse=orelse):
                return self.texts(body, seen) | self.texts(orelse, seen)
            case ast.Dict(values=values):
                return set().union(*(self.texts(value, seen) for value in values))
            case ast.Subscript(value=container):
                return self.texts(container, seen)
            case ast.Call(func=ast.Attribute(value=container, attr="get"), args=args):
                return set().union(self.texts(container, seen), *(self.texts(arg, seen) for arg in args[1:]))
            case ast.Name(id=name) if name not in seen:
                return self._texts_of_name(name, seen | {name})
        return set()

    def _remember(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), _:
                self.constants[name] = value
            case ast.Tuple(elts=names), ast.Tuple(elts=values):
                for one, its_value in zip(names, values, strict=True):
                    self._remember(one, its_value)

    def _texts_of_name(self, name: str, seen: frozenset[str]) -> set[str]:
        if name in self.constants:
            return self.texts(self.constants[name], seen)
        if name in self.imported and (other := module_named(self.imported[name])) is not None:
            return other.texts(ast.Name(name))
        return set().union(*(self.texts(value, seen) for local, value in self.local if local == name))

    def _local_names(self) -> Iterator[tuple[str, ast.expr]]:
        """Yield local names with what they are set to; in a loop over a dict with its keys or values."""
        for node in ast.walk(self.tree):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    yield name, value
                case ast.For(target=target, iter=over) | ast.comprehension(target=target, iter=over):
                    yield from self._loop_names(target, over)

    def _loop_names(self, target: ast.expr, over: ast.expr) -> Iterator[tuple[str, ast.expr]]:
        match target, over:
            case (
                ast.Tuple(elts=[ast.Name(id=key), ast.Name(id=value)]),
                ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="items")),
            ):
                found = self.constants.get(name)
                if isinstance(found, ast.Dict):
                    yield value, found
                    yield key, ast.Dict([], [each for each in found.keys if each is not None])

    @property
    def prose(self) -> set[str]:
        """Constants that are sentences, however they get to be said."""
        return {
            text
            for name, value in self.constants.items()
            if name.isupper() and isinstance(value, ast.Constant | ast.Dict)
            for text in self.texts(value)
            if len(WORD.findall(text)) > 1
        }


@cache
def module_named(name: str) -> Module | None:
    path = REPOSITORY / f"{name.replace('.', '/')}.py"
    return Module(name, path) if path.is_file() else None


@cache
def modules() -> tuple[Module, ...]:
    """Return the program's modules."""
    names = (path.relative_to(REPOSITORY).with_suffix("") for path in (REPOSITORY / "indextts").rglob("*.py"))
    found = (module_named(".".join(name.parts)) for name in names)
    return tuple(module for module in found if module is not None)


def spoken_texts() -> set[str]:
    """Return the texts that certainly reach `t`."""
    found: set[str] = set()
    for module in modules():
        names = set()
        for name, call in module.calls():
            names.add(name)
            places = [call.args[place] for place in SPEAKERS[name][1] if place < len(call.args)]
            found.update(*(module.texts(place) for place in places))
        if names & SENTENCES:
            found |= module.prose
    return {text for text in found if WORD.search(re.sub(r"{.*?}", "", text))}


def all_strings() -> set[str]:
    """Return every string of the program, whether it is shown or not."""
    return {
        node.value
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
