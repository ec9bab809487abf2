"""The ids of messages that the program uses, found in the sources without running them.

An id reaches `t` as a literal, as a constant of a module, or inside a Message or its like. Constants are
followed through imports, dicts, conditions, loops and local names; what comes from elsewhere (an attribute,
a parameter) is left out.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.conftest import REPOSITORY

# function or class: its module, and the places of the arguments that are ids
TAKES_IDS = {
    "t": ("indextts.webui.language", (0,)),
    "Message": ("indextts.system.messages", (0,)),
    "Finding": ("indextts.runs.health.observed", ()),
    "ListedStage": ("indextts.webui.stage_list", (2, 3)),
    "heading": ("indextts.webui.layout", (0, 1)),
    "missing": ("indextts.webui.running.outlook", (1,)),
    "Preset": ("indextts.planning.presets", (1,)),
}
STAGE = "stage."  # `stage_name` makes an id of this and a stage's name


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
                case ast.Call(func=ast.Name(id=name)) if name in TAKES_IDS:
                    if self.imported.get(name, self.name) == TAKES_IDS[name][0]:
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


def used_ids() -> set[str]:
    """Return the ids that certainly reach a table."""
    found: set[str] = set()
    for module in modules():
        for name, call in module.calls():
            places = [call.args[place] for place in TAKES_IDS[name][1] if place < len(call.args)]
            found.update(*(module.texts(place) for place in places))
            if name == "Finding":
                found |= _texts_of_finding(module, call)
    return found


def _texts_of_finding(module: Module, call: ast.Call) -> set[str]:
    """Return the ids that `Finding` makes of the name of its check, or gets."""
    [check] = module.texts(call.args[0])
    given = [module.texts(each.value) for each in call.keywords if each.arg == "what"]
    what = given[0] if given else {f"health.{check}"}
    return what | {f"health.{check}_evidence", f"health.{check}_advice"}


def all_strings() -> set[str]:
    """Return every string of the program, whether it is an id or not."""
    return used_ids() | {
        node.value
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
