"""Print docs/commands.md: every flag of every program as Markdown."""

import inspect

from pydantic_core import PydanticUndefined

from indextts.commands import app, data, speech, train
from indextts.commands.base import Command, flag_of

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
    app.ServeTensorboard,
    app.WebUI,
    app.MakeBaseCheckpoint,
)


def commands_page() -> str:
    """Return docs/commands.md: all commands with their flags."""
    heading = (
        "# Commands\n\nEvery flag of every program, as `python tools/commands_page.py` prints "
        "them. Each program also takes `--help`.\n"
    )
    return "\n".join([heading, *map(_markdown_table, COMMANDS)])


def _markdown_table(command: type[Command]) -> str:
    rows = [
        # Python 3.13 removes the indentation of docstrings itself
        f"## `python {command.program}`\n\n{inspect.cleandoc(command.__doc__ or '')}\n",
        "| flag | default | meaning |",
        "|---|---|---|",
    ]
    for name, field in command.model_fields.items():
        kind = " (repeatable)" if "list" in str(field.annotation) else ""
        default = "automatic" if name in command.automatic else _shown_default(field.default)
        rows.append(f"| `{flag_of(name)}`{kind} | {default} | {field.description} |")
    return "\n".join(rows) + "\n"


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
