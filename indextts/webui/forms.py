"""Forms built from the fields of a command, and commands built from form values.

Each field of a command becomes one component with the field's default, bounds, choices and help. The command
validates the form values, so the page cannot start anything that a terminal could not.
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
from indextts.webui.language import field_title, t

AUTOMATIC = "forms.automatic"
ON, OFF = "on", "off"  # of a switch that is automatic otherwise


def component_for(command: type[Command], name: str, value: object = None) -> Component:
    """Return the component of the field `name`, with `value` or the field's default in it.

    An automatic field is empty: the program chooses its value.
    """
    field = command.model_fields[name]
    is_automatic = name in command.automatic
    if value is None and not is_automatic and field.default is not PydanticUndefined:
        value = field.default
    kind = field.annotation
    common: dict[str, Any] = {
        "label": field_title(command, name),
        "info": field.description,
        "elem_id": f"{command.__name__}-{name}",
    }
    if is_automatic and kind is bool:
        choice: Any = "" if value is None else as_shown_automatic(value)
        return gr.Dropdown(choices=switch_choices(), value=choice, **common)
    if kind is bool:
        return gr.Checkbox(value=bool(value), **common)
    if get_origin(kind) is Literal:
        choice = value
        return gr.Dropdown(choices=list(get_args(kind)), value=choice, **common)
    if kind in (int, float):
        number: Any = value
        common |= {"placeholder": t(AUTOMATIC)} if is_automatic else {}
        return gr.Number(value=number, precision=0 if kind is int else None, **bounds(field), **common)
    return gr.Textbox(value=as_shown(value), lines=1, **common)


def form_for(command: type[Command], names: Iterable[str]) -> dict[str, Component]:
    """Build and return the components of the fields `names`."""
    return {name: component_for(command, name) for name in names}


def fields_from(command: type[Command], names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Return form values as fields of the command; empty values take the command's default."""
    fields = {}
    for name, value in zip(names, values, strict=True):
        if value is None or value == "":
            continue
        fields[name] = _from_form(command.model_fields[name], value)
    return fields


def project_values(command: type[Command], names: Iterable[str], settings: Mapping[str, Any]) -> list[Any]:
    """Return the values of the fields `names` from a project's settings."""
    return [settings.get(name, command.model_fields[name].default) for name in names]


def with_choices(found: Sequence[tuple[str, str]], now: str | None) -> gr.Dropdown:
    """Return a dropdown with these choices; the first is selected if `now` is not among them.

    Otherwise the value stays untouched, because the user may have changed it meanwhile.
    """
    values = [value for _, value in found]
    if now is not None and now in values:
        return gr.Dropdown(choices=list(found))
    return gr.Dropdown(choices=list(found), value=values[0] if values else None)


def as_shown(value: Any) -> Any:
    """Return a field's value as its component shows it: paths and lists as text, one per line."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return str(value) if isinstance(value, Path) else value


def switch_choices() -> list[tuple[str, str]]:
    """Return the choices of an automatic switch, in the current language."""
    return [(t(AUTOMATIC), ""), (t("forms.on"), ON), (t("forms.off"), OFF)]


def as_shown_automatic(value: Any) -> Any:
    """Return the value of an automatic field as its component shows it."""
    return (ON if value else OFF) if isinstance(value, bool) else value


def bounds(field: FieldInfo) -> dict[str, Any]:
    """Return the minimum and maximum of the field as component arguments."""
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
    if field.annotation is bool and isinstance(value, str):
        return value == ON
    return value
