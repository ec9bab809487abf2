"""Print docs/commands.md: every flag of every program as Markdown."""

import inspect
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from indextts.commands import app, data, speech, train
from indextts.commands.base import Command, flag_of
from indextts.commands.normalizer_options import NormalizerChoices
from indextts.commands.options import Options
from indextts.commands.sampling_options import Sampling

COMMANDS: tuple[type[Command], ...] = (
    data.DownloadCheckpoints,
    data.ImportDataset,
    data.Transcribe,
    data.CheckData,
    data.CleanAudio,
    data.NormalizeText,
    data.ExtendTokenizer,
    data.VerifyTraining,
    data.Preprocess,
    data.ImportFeatures,
    data.BuildPairs,
    train.Train,
    speech.ExportModel,
    speech.CheckModelFolder,
    speech.PublishModel,
    speech.Synthesize,
    speech.Evaluate,
    speech.Serve,
    app.RunPipeline,
    app.ProveSetup,
    app.ServeTensorboard,
    app.WebUI,
    app.MakeBaseCheckpoint,
)


# Groups of flags that several programs take have a section of their own.
GROUPS: dict[str, type[Options]] = {"Sampling flags": Sampling, "Flags of the normaliser": NormalizerChoices}
MAX_SEED = 2**63 - 1  # the largest whole number of PyTorch's generators is no news
BOUNDS = {Ge: ("at least", "ge"), Gt: ("above", "gt"), Le: ("at most", "le"), Lt: ("below", "lt")}


def commands_page() -> str:
    """Return docs/commands.md: all commands with their flags."""
    heading = (
        "# Commands\n\nEvery flag of every program, as `python tools/commands_page.py` prints "
        "them. Each program also takes `--help`.\n"
    )
    groups = [f"## {title}\n\n{_table(group, group.model_fields)}" for title, group in GROUPS.items()]
    return "\n".join([heading, *map(_section, COMMANDS), *groups])


def _section(command: type[Command]) -> str:
    # Python 3.13 removes the indentation of docstrings itself
    text = f"## `python {command.program}`\n\n{inspect.cleandoc(command.__doc__ or '')}\n\n"
    shared = {title: group for title, group in GROUPS.items() if issubclass(command, group)}
    names = set(command.model_fields).difference(*(group.model_fields for group in shared.values()))
    fields = {name: field for name, field in command.model_fields.items() if name in names}
    links = [f"the [{title[0].lower()}{title[1:]}](#{title.lower().replace(' ', '-')})" for title in shared]
    also = f"\nAnd {' and '.join(links)}.\n" if links else ""
    return text + _table(command, fields) + also


def _table(options: type[Options], fields: dict[str, FieldInfo]) -> str:
    rows = ["| flag | values | default | meaning |", "|---|---|---|---|"]
    automatic: frozenset[str] = getattr(options, "automatic", frozenset())
    for name, field in fields.items():
        kind = " (repeatable)" if "list" in str(field.annotation) else ""
        default = "automatic" if name in automatic else _shown_default(field.default)
        rows.append(f"| `{flag_of(name)}`{kind} | {_values(field)} | {default} | {field.description} |")
    return "\n".join(rows) + "\n"


def _values(field: FieldInfo) -> str:
    """Return the accepted values of a flag: its choices, or the bounds of a number."""
    choices = list(_choices(field.annotation))
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    bounds = {
        name: getattr(each, name)
        for each in field.metadata
        for kind, (_, name) in BOUNDS.items()
        if isinstance(each, kind)
    }
    if bounds.get("le", 0) >= MAX_SEED:
        del bounds["le"]
    if "ge" in bounds and "le" in bounds:
        return f"{bounds['ge']:,} to {bounds['le']:,}"
    return ", ".join(f"{word} {bounds[name]:,}" for word, name in BOUNDS.values() if name in bounds)


def _choices(annotation: Any) -> list[Any]:
    """Return the values of a Literal, also in a list or an optional type."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [choice for part in get_args(annotation) for choice in _choices(part)]


def _shown_default(default: object) -> str:
    if default is PydanticUndefined:
        return "required"
    if default is None or default == "" or default == []:
        return "none"
    if isinstance(default, bool):
        return "on" if default else "off"
    return f"`{default}`"


if __name__ == "__main__":
    print(commands_page(), end="")
