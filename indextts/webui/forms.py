"""Forms built from the fields of a command, and commands built from form values.

Each field of a command becomes one component with the field's default, choices and help. The command
validates the form values, so the page cannot start anything that a terminal could not. Its components have no
bounds: Gradio would answer each request with a message, where the command reports the problem at its field.

Drafts are form values that were not started yet, which a reload or another browser shows again:

    NAME/drafts/{form}.json    {"values": {"learning_rate": 2e-05, "resume": true, ...}}

A draft is a convenience: a file that is corrupt or too large counts as absent, and unknown fields are
dropped. Drafted values pass the same checks as typed values.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import gradio as gr
from gradio.components import Component
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from indextts.commands.app import Stage
from indextts.commands.base import Command
from indextts.commands.data import BuildPairs, Preprocess
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings, read_project
from indextts.projects.stages import plan_stage
from indextts.system.files import read_object, written_aside
from indextts.webui.events import on
from indextts.webui.language import field_help, field_title, t
from indextts.webui.page import Page

DRAFTED: dict[Stage, type[Command]] = {"preprocess": Preprocess, "pairs": BuildPairs, "train": Train}
NUMBERS = (int, float, bool, float | None)
ON, OFF = "on", "off"  # of a switch that is automatic otherwise


def component_for(command: type[Command], name: str, value: Any = None) -> Component:
    """Return the component of a field, with `value` or the default; an automatic field is empty."""
    field = command.model_fields[name]
    is_automatic = name in command.automatic
    if value is None and not is_automatic and field.default is not PydanticUndefined:
        value = field.default
    kind = field.annotation
    common: dict[str, Any] = {
        "label": field_title(command, name),
        "info": field_help(command, name),
        "elem_id": f"{command.__name__}-{name}",
    }
    if is_automatic and kind is bool:
        choices = [(t("forms.automatic"), ""), (t("forms.on"), ON), (t("forms.off"), OFF)]
        return gr.Dropdown(choices, value="" if value is None else as_shown_automatic(value), **common)
    if kind is bool:
        return gr.Checkbox(value=bool(value), **common)
    if get_origin(kind) is Literal:
        return gr.Dropdown(list(get_args(kind)), value=value, **common)
    if get_origin(kind) is list and get_origin(get_args(kind)[0]) is Literal:
        return gr.Dropdown(list(get_args(get_args(kind)[0])), value=value, multiselect=True, **common)
    if kind in (int, float, float | None):
        common |= {"placeholder": t("forms.automatic")} if is_automatic else {}
        return gr.Number(value=value, precision=0 if kind is int else None, **common)
    return gr.Textbox(value=as_shown(value), lines=2 if kind == list[str] else 1, **common)


def form_for(command: type[Command], names: Iterable[str]) -> dict[str, Component]:
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
    return [settings.get(name, command.model_fields[name].default) for name in names]


def kept_form(
    page: Page, stage: Stage, command: type[Command], names: Sequence[str], inputs: Sequence[Component]
) -> gr.Textbox:
    """Fill a stage's form, keep changes as its draft; return the component with the name of its project."""

    def own_values(project: Project) -> dict[str, Any]:
        values = project_values(command, names, getattr(read_project(project), stage))
        shown = ("\n".join(value) if isinstance(value, list) else value for value in values)
        return dict(zip(names, shown, strict=True))

    def fill(project: Project, _before: str) -> list[Any]:
        settings = read_project(project)

        def check(values: Mapping[str, Any]) -> None:
            fields = fields_from(command, names, list(values.values()))
            plan_stage(project, settings.with_fields(stage, **fields), stage)

        return list(with_draft(project, stage, own_values(project), check).values())

    def keep(project: Project, filled: str, *values: Any) -> None:
        if filled == project.root.name:  # else the form still has the values of another project
            own, typed = own_values(project), zip(names, values, strict=True)
            store_draft(project, stage, {name: value for name, value in typed if value != own[name]})

    filled_for = page.fill(fill, inputs)
    on([page.form_signal(stage).change], keep, [page.project, filled_for, *inputs], [], latest=True)
    return filled_for


def with_drafts(project: Project, settings: ProjectSettings) -> ProjectSettings:
    """Return the settings with drafted numbers and choices, not paths, which who starts all does not see."""
    for stage, command in DRAFTED.items():
        kinds = {name: field.annotation for name, field in command.model_fields.items()}
        plain = [name for name, kind in kinds.items() if kind in NUMBERS or get_origin(kind) is Literal]
        typed = read_draft(project, stage, plain)
        settings = settings.with_fields(stage, **fields_from(command, list(typed), list(typed.values())))
    return settings


def with_choices(
    found: Sequence[tuple[str, str]],
    now: str | Sequence[str] | None,
    choice_of: Callable[[str], str | None] = lambda value: value,
) -> gr.Dropdown:
    """Return a menu with these choices; what is selected of them stays, otherwise the first is selected.

    Args:
        now: a list for a menu with several selections.
        choice_of: returns the choice that a value means, which may be another name of it.
    """
    values, is_list = [value for _, value in found], isinstance(now, list)
    chosen: list[str] = list(now) if isinstance(now, list) else [str(now)] if now is not None else []
    kept = list(dict.fromkeys(choice for one in chosen if (choice := choice_of(one)) in values))
    options: dict[str, Any] = {"choices": list(found)} | ({"multiselect": True} if is_list else {})
    if kept != chosen or not kept:  # else the value stays untouched: the user may have changed it meanwhile
        selected = kept or values[:1]
        options["value"] = selected if is_list else next(iter(selected), None)
    return gr.Dropdown(**options)


def as_shown(value: Any) -> Any:
    """Return a field's value as its component shows it: paths and lists as text, one per line."""
    if value is None:
        return ""
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return str(value) if isinstance(value, Path) else value


def as_shown_automatic(value: Any) -> Any:
    """Return the value of an automatic field as its component shows it."""
    return (ON if value else OFF) if isinstance(value, bool) else value


def _from_form(field: FieldInfo, value: Any) -> Any:
    if get_origin(field.annotation) is list:
        item = get_args(field.annotation)[0]
        return [item(line.strip()) for line in str(value).splitlines() if line.strip()]
    if field.annotation is int:
        return int(value)
    if field.annotation is bool and isinstance(value, str):
        return value == ON
    return value


MAX_DRAFT_BYTES = 256 << 10

Value = str | int | float | bool | None

_FORM = re.compile(r"[a-z][a-z0-9_-]{0,39}")


def with_draft(
    project: Project, form: str, own: Mapping[str, Any], check: Callable[[Mapping[str, Any]], object]
) -> dict[str, Any]:
    """Return the project's `own` values of a form, replaced by those of its draft.

    Args:
        check: called with the values of the form; raises if one of them is invalid. Then each drafted value
            counts that is valid with those before it.
    """
    draft = read_draft(project, form, own)
    found = dict(own)
    for part in [draft, *({name: value} for name, value in draft.items())]:
        with suppress(UserError, ValueError, TypeError):
            check({**found, **part})
            found |= part
    return found


def read_draft(project: Project, form: str, fields: Collection[str]) -> dict[str, Value]:
    """Return the drafted values of `fields`; fields without a drafted value are absent."""
    content = read_object(draft_path(project, form))
    values = content.get("values")
    if not isinstance(values, dict):
        return {}
    return {name: value for name, value in values.items() if name in fields and _is_plain(value)}


def store_draft(project: Project, form: str, values: Mapping[str, object]) -> None:
    """Store the plain values of a form, or delete its draft; a large one, or one on a full disk, is lost."""
    plain = {name: value for name, value in values.items() if _is_plain(value)}
    path = draft_path(project, form)
    with suppress(OSError, UnicodeEncodeError):  # a lone surrogate, which no field accepts
        if not values:
            path.unlink(missing_ok=True)
            return
        encoded = json.dumps({"values": plain}, ensure_ascii=False).encode()
        if len(encoded) <= MAX_DRAFT_BYTES:
            path.parent.mkdir(exist_ok=True)
            with written_aside(path, is_unique=True) as aside:  # many pages may write at once
                aside.write_bytes(encoded)


def draft_path(project: Project, form: str) -> Path:
    assert _FORM.fullmatch(form), form  # named by the program, never by a request
    return project.root / "drafts" / f"{form}.json"


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | bool)
