"""A form from a command's fields, and the command from the form's values.

Each field of a command becomes one component: its default, bounds, choices and help are the field's own.
What the form gives goes back through the command, which checks it: the page cannot start what a terminal
could not.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import gradio as gr
from annotated_types import Ge, Gt, Le, Lt
from gradio.components import Component
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from indextts.commands.base import Command
from indextts.webui.language import field_title


def component_for(command: type[Command], name: str, value: object = None) -> Component:
    """Return the component of the field `name`, with `value` or the field's default in it."""
    field = command.model_fields[name]
    if value is None and field.default is not PydanticUndefined:
        value = field.default
    kind = field.annotation
    common: dict[str, Any] = {
        "label": field_title(command, name),
        "info": field.description,
        "elem_id": f"{command.__name__}-{name}",
    }
    if kind is bool:
        return gr.Checkbox(value=bool(value), **common)
    if get_origin(kind) is Literal:
        choice: Any = value
        return gr.Dropdown(choices=list(get_args(kind)), value=choice, **common)
    if kind in (int, float):
        number: Any = value
        return gr.Number(value=number, precision=0 if kind is int else None, **bounds(field), **common)
    return gr.Textbox(value=as_shown(value), lines=1, **common)


def form_for(command: type[Command], names: Iterable[str]) -> dict[str, Component]:
    """Return the components of the fields `names`, laid out where this is called."""
    return {name: component_for(command, name) for name in names}


def fields_from(command: type[Command], names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return a form's values as fields of the command; empty ones are left to the command's default."""
    fields = {}
    for name, value in zip(names, values, strict=True):
        if value is None or value == "":
            continue
        fields[name] = _from_form(command.model_fields[name], value)
    return fields


def own_values(command: type[Command], names: Iterable[str], settings: Mapping[str, Any]) -> list[Any]:
    """Return the values of the fields `names` that a project's settings of the command ask for."""
    return [settings.get(name, command.model_fields[name].default) for name in names]


def with_choices(found: Sequence[tuple[str, str]], now: str | None) -> gr.Dropdown:
    """Return a dropdown with these choices; the first is chosen where `now` is none of them.

    Else the value is not touched: it may have been chosen while this answer was on its way.
    """
    values = [value for _, value in found]
    if now is not None and now in values:
        return gr.Dropdown(choices=list(found))
    return gr.Dropdown(choices=list(found), value=values[0] if values else None)


def as_shown(value: Any) -> Any:
    """Return a field's value as its component shows it: paths and lists as text, a line each."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return str(value) if isinstance(value, Path) else value


def bounds(field: FieldInfo) -> dict[str, Any]:
    """Return the least and greatest value that the field allows, as a component's arguments."""
    found: dict[str, Any] = {}
    for rule in field.metadata:
        if isinstance(rule, Ge | Gt):
            found["minimum"] = _number(rule.ge if isinstance(rule, Ge) else rule.gt)
        if isinstance(rule, Le | Lt):
            found["maximum"] = _number(rule.le if isinstance(rule, Le) else rule.lt)
    return found


def _number(bound: Any) -> float:
    return float(bound)


def _from_form(field: FieldInfo, value: Any) -> Any:
    if get_origin(field.annotation) is list:
        return [Path(line.strip()) for line in str(value).splitlines() if line.strip()]
    if field.annotation is int:
        return int(value)
    return value
