"""Base class of all commands: a frozen model whose fields are the flags.

The command line, the forms of the page and the launched argument vectors are built from these models:

    data.py, train.py, speech.py, app.py           one frozen model per command
    options.py, *_options.py, quality_limits.py    option groups that several commands share
    terminal.py                                    argv -> model, model -> argv

A flag is a field (`options.py`).
"""

import re
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import tyro
from pydantic import ConfigDict, ModelWrapValidatorHandler, ValidationError, model_validator
from pydantic_core import ErrorDetails

from indextts.commands.options import Options
from indextts.errors import UserError

ValueT = TypeVar("ValueT")

# OWNER/NAME on the Hugging Face hub, by its rules
_PART = r"(?=[\w.-]{1,96}(/|$))\w([\w.-]*\w)?"
REPOSITORY_NAME = re.compile(rf"(?!.*(--|\.\.)){_PART}/{_PART}(?<!\.git)", re.ASCII)

_AUTOMATIC = tyro.conf.arg(help_behavior_hint="(default: automatic)")

# The type of a field that the program chooses unless it is typed: `batch_size: Automatic[int]`.
Automatic = Annotated[ValueT, _AUTOMATIC]


class Command(Options):
    """Base class of all commands: options with a UserError for a value out of bounds."""

    model_config = ConfigDict(allow_inf_nan=False)
    program: ClassVar[str]
    automatic: ClassVar[frozenset[str]] = frozenset()  # names of the `Automatic` fields

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        cls.automatic = frozenset(
            name for name, field in cls.model_fields.items() if _AUTOMATIC in field.metadata
        )

    @model_validator(mode="wrap")
    @classmethod
    def _name_the_flag(cls, values: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(values)
        except ValidationError as error:
            problems = [_problem(cls, details) for details in error.errors()]
            raise UserError("; ".join(problems)) from None


Device = Literal["auto", "cpu", "cuda"]


def _problem(command: type[Command], details: ErrorDetails) -> str:
    """Return one validation problem with the flag as typed and the value."""
    name = str(details["loc"][0]) if details["loc"] else ""
    flag = flag_of(name) if name else "the command"
    if details["type"] == "too_short" and not details["input"]:
        example = (command.model_fields[name].examples or ["PATH"])[0]
        return f"{flag}: is missing; pass it at least once, for example {flag}={example}"
    return f"{flag}: {details['msg']}, got {details['input']!r}"


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def typed_flag(name: str, value: object) -> str:
    """Return a flag with its value, as it would be typed."""
    return flag_of(name if value else f"no_{name}") if isinstance(value, bool) else f"{flag_of(name)}={value}"
