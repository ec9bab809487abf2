"""The normaliser as a package in a model folder, for programs that know nothing of Amharic.

    OUTPUT_DIR/
      spoken_text/
        __init__.py         spoken(text): the text as the model was trained to read it
        __main__.py         python -m spoken_text TEXT
        options.json        version, options and readings of the normaliser, as in the tokenizer
        reserved.json       pieces in place of reserved tokens (text/special_tokens.py), if the model has such
        requirements.txt    the packages that it needs, from the oldest tried version on; no torch
        text/ commands/ ... copies of the modules that the normaliser imports, with their tables

The official code has a package named indextts too, so the copies have another name.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import indextts
from indextts.commands.normalizer_options import NormalizerOptions
from indextts.system.files import write_bytes, write_json

NAME = "spoken_text"
ROOT, HERE = Path(indextts.__file__).parent, Path(__file__).parent
ENTRIES = ("text/normalize.py", "text/special_tokens.py")
RESERVED_NAME = "reserved.json"
# What the copies import, from versions with which all texts of the test had the same spoken form.
DISTRIBUTIONS = {
    "fonttools": "4.44",
    "gflanguages": "0.5.10",
    "langcodes": "3.4",
    "num2words": "0.5.13",
    "pydantic": "2.7",
}
OWN_IMPORT = re.compile(r"^(\s*(?:from|import) )indextts\b", re.MULTILINE)


def write_text_package(folder: Path, options: NormalizerOptions, reserved: Sequence[str] = ()) -> None:
    """Write the package into a model folder.

    Args:
        reserved: pieces in place of the reserved tokens of IndexTTS-2.5.

    Raises:
        OSError: a file cannot be read or written.
    """
    package = folder / NAME
    for module in sorted(needed_modules()):
        source = (ROOT / module).read_text(encoding="utf-8")
        (package / module).parent.mkdir(parents=True, exist_ok=True)
        write_bytes(package / module, OWN_IMPORT.sub(rf"\g<1>{NAME}", source).encode())
    for name in ("init", "main"):
        write_bytes(package / f"__{name}__.py", (HERE / f"package_{name}.txt").read_bytes())
    if reserved:
        write_json(package / RESERVED_NAME, {"pieces": list(reserved)})
    write_json(package / "options.json", options.record)
    lines = [f"{name}>={version}\n" for name, version in DISTRIBUTIONS.items()]
    write_bytes(package / "requirements.txt", "".join(lines).encode())


def needed_modules() -> set[str]:
    """Return the files of this program that the copies need, relative to its package.

    The tables of a module are in a .toml file of its name.
    """
    found: set[str] = set()
    pending = list(ENTRIES)
    while pending:
        module = pending.pop()
        if module not in found:
            found.add(module)
            pending += _imported(module)
    tables = {f"{module.removesuffix('.py')}.toml" for module in found}
    return found | {table for table in tables if (ROOT / table).is_file()}


def _imported(module: str) -> Iterator[str]:
    """Yield the files that a module imports when it is loaded, with the __init__.py of their packages."""
    for node in ast.parse((ROOT / module).read_text(encoding="utf-8")).body:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{name.name}" for name in node.names)]
        for name in names:
            path = name.removeprefix("indextts.").replace(".", "/")
            if name.startswith("indextts.") and (ROOT / f"{path}.py").is_file():
                yield f"{path}.py"
                if "/" in path:
                    yield f"{path.rpartition('/')[0]}/__init__.py"
