"""Write a model folder (gpt.pth, tokenizer, config.yaml, model card) from a checkpoint.

With --check FOLDER it says instead which files the official program would miss in such a folder.
"""

import sys
from collections.abc import Sequence

from indextts.commands.bases import base_in
from indextts.commands.speech import CheckModelFolder, ExportModel
from indextts.commands.terminal import parse, run
from indextts.data.networks import BACKEND_NAME
from indextts.models.adapter_file import NAME as ADAPTER
from indextts.speech.export.model_folder import export
from indextts.speech.export.official_files import describe_missing
from indextts.system.amounts import shown_size


def main(argv: Sequence[str] | None = None) -> int:
    typed = sys.argv[1:] if argv is None else argv
    if any(argument.partition("=")[0] == "--check" for argument in typed):
        return check(parse(CheckModelFolder, argv))
    weights = export(parse(ExportModel, argv))
    for path in sorted(weights.parent.iterdir()):
        kind = f"link to {path.readlink()}" if path.is_symlink() else shown_size(path.stat().st_size)
        print(f"{path}/" if path.is_dir() else f"{path}: {kind}")
    return 0


def check(command: CheckModelFolder) -> int:
    for name, what in ((BACKEND_NAME, "the model has built-in codes"), (ADAPTER, "it is an adapter")):
        if (command.check / name).exists():
            print(f"{command.check}: {what}, so the official program cannot speak; use tools/synthesize.py")
            return 1
    lines = describe_missing(base_in(command.check), command.check)
    for line in lines or ["The official program finds all its files and downloads nothing."]:
        print(f"{command.check}: {line}")
    return 1 if lines else 0


if __name__ == "__main__":
    run(main)
