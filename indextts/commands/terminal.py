"""Conversion between command lines and command models, and the entry point of every program.

    parse(Train, ["--epochs=3", ...]) -> Train(...)          terminal to model
    to_argv(Train(...))               -> ["--epochs=3", ...] model to terminal, most defaults left out
    parse(C, to_argv(c)) == c         for every command and every value

`model_fields_set` holds the fields that were typed: a resumed run takes all other fields from its
checkpoint, and a new run chooses those of `Train.automatic`.
"""

import locale
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, TypeVar, cast

import tyro

from indextts.commands.base import Command, typed_flag
from indextts.commands.sampling_options import Sampling
from indextts.commands.train import Train
from indextts.errors import STOPPED_BY_CTRL_C, USER_MISTAKE, UserError
from indextts.system.log_lines import log_to_stdout

CommandT = TypeVar("CommandT", bound=Command)


def parse(command: type[CommandT], argv: Sequence[str] | None = None) -> CommandT:
    """Return the command parsed from `argv`, by default the arguments of the program.

    Its `model_fields_set` are the fields in `argv`.

    Raises:
        UserError: a value is outside its bounds.
        SystemExit: with status 2, after tyro reported an invalid argument.
    """
    argv = sys.argv[1:] if argv is None else argv
    parsed = tyro.cli(
        command,
        prog=command.program,
        args=argv,
        config=(tyro.conf.UseAppendAction, tyro.conf.OmitArgPrefixes),
    )
    typed = typed_fields(command, argv)
    for name in typed:  # tyro appends to a default list, but a typed list replaces it
        default = command.model_fields[name].default
        if isinstance(default, list):
            parsed = parsed.model_copy(update={name: getattr(parsed, name)[len(default) :]})
    return with_typed(parsed, typed)


def typed_fields(command: type[Command], argv: Sequence[str]) -> frozenset[str]:
    """Return the fields of `command` in `argv`, as `--x=v`, `--x v`, `--x` or `--no-x`.

    `argv` must be valid for tyro, which treats a value that looks like a flag as a flag. So each argument can
    be read alone.
    """
    names = (argument[2:].partition("=")[0].replace("-", "_") for argument in argv if argument[:2] == "--")
    return frozenset(
        field
        for name in names
        for field in (name, name.removeprefix("no_"))
        if field in command.model_fields and (field == name or command.model_fields[field].annotation is bool)
    )


def with_typed(command: CommandT, typed: Iterable[str]) -> CommandT:
    """Return the same command with `typed` as its `model_fields_set`."""
    values = {name: getattr(command, name) for name in type(command).model_fields}
    return cast(CommandT, type(command).model_construct(_fields_set=set(typed), **values))


def continued(command: Train, stored: Mapping[str, Any]) -> Train:
    """Return the command that resumes a run: typed fields from `command`, all others from its checkpoint.

    Unknown stored fields are ignored; a UserError for a value out of bounds.
    """
    taken = {
        name: value
        for name, value in stored.items()
        if name in Train.model_fields and name not in Train.of_process | command.model_fields_set
    }
    values = {name: getattr(command, name) for name in Train.model_fields}
    try:
        whole = Train.model_validate(values | taken)
    except UserError as error:
        raise UserError(
            f"invalid setting in the checkpoint: {error}; set it on the command line, which takes precedence"
        ) from None
    return with_typed(whole, command.model_fields_set)


def to_argv(command: Command) -> list[str]:
    """Return the arguments that `parse` turns into `command`, without fields at their default.

    Typed defaults stay where another value would apply otherwise: an automatic one, on a resume that of the
    checkpoint, in sampling that of the backend.
    """
    kept: Set[str] = command.model_fields_set & command.automatic
    if isinstance(command, Train) and command.resume:
        kept |= command.model_fields_set - Train.of_process
    elif isinstance(command, Sampling):
        kept = command.model_fields_set & Sampling.model_fields.keys()
    argv = []
    for name, field in type(command).model_fields.items():
        value = getattr(command, name)
        if value == field.default and name not in kept:
            continue
        argv += [typed_flag(name, item) for item in (value if isinstance(value, list) else [value])]
    return argv


def run(main: Callable[[], int]) -> None:
    """Run a program's `main` and exit with its status; a UserError becomes one line and its status."""
    _use_utf8()
    log_to_stdout()
    try:
        status = main()
    except UserError as error:
        sys.stdout.flush()
        print(f"[Error] {error}", file=sys.stderr)  # noqa: T201 - the one place that shows a UserError
        status = error.exit_status
    except KeyboardInterrupt:
        print("[Error] stopped; run the same command to continue", file=sys.stderr)  # noqa: T201
        status = STOPPED_BY_CTRL_C
    except BrokenPipeError:  # the reader of the output closed it, as with `| head`
        sys.stderr.close()
        status = USER_MISTAKE
    sys.exit(status)


def _use_utf8() -> None:
    """Start the program again in Python's UTF-8 mode if the locale has another encoding.

    In the locale C without that mode, a name in Amharic cannot be opened, compared or printed. The programs
    that this one starts inherit the mode.
    """
    has_asked = os.environ.get("PYTHONUTF8") == "1"  # options of Python can contradict it
    if not (has_asked or sys.flags.utf8_mode or locale.getencoding().lower() == "utf-8"):
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
