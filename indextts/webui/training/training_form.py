"""Values of the training form: project values, draft, presets, proposal; and conversion to a command.

The form has the checkbox and the path of a resume, then every field of the Train command in the order of
FIELDS, then the fields of the launch.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import gradio as gr
from gradio.components import Component

from indextts.commands.launching import Launch, launch_of
from indextts.commands.terminal import with_typed
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.planning.estimate import sizes_of
from indextts.planning.hardware import MachineFacts, find_machine, share_of
from indextts.planning.pairs_size import measure_pairs
from indextts.planning.preflight import missing_hardware
from indextts.planning.presets import PRESETS, Preset
from indextts.planning.proposal import Proposal, propose
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.stages import plan_stage
from indextts.webui.drafts import Value, forget_draft, read_draft, write_draft
from indextts.webui.events import on
from indextts.webui.forms import as_shown, as_shown_automatic, fields_from, switch_choices
from indextts.webui.language import field_title, t, text_of
from indextts.webui.page import Page
from indextts.webui.serving.security import Roots
from indextts.webui.training.training_outlook import preset_html, proposal_html
from indextts.webui.view_versions import once

NO_PAIRS = "training.no_pairs"
PATHS = (
    "train_manifest",
    "val_manifest",
    "tokenizer",
    "resume_tokenizer",
    "config",
    "base_checkpoint",
    "output_dir",
)
MAIN = (
    "epochs",
    "max_steps",
    "step_pairs",
    "batch_size",
    "grad_accumulation",
    "learning_rate",
    "warmup_steps",
    "amp",
)
NO_FORM = ("resume", "plan")  # built in the resume section
ADVANCED = tuple(name for name in Train.model_fields if name not in (*PATHS, *MAIN, *NO_FORM))
FIELDS = (*MAIN, *ADVANCED, *PATHS)
RESUME = ("resume", "resume_path")
LAUNCH = ("processes", "gpus", "nodes", "endpoint")  # the page launches machine 0
NAMES = (*RESUME, *FIELDS, *LAUNCH)  # of the form's components, in order
FORM = "train"  # the draft's name


def command_of(
    roots: Roots,
    project: Project,
    settings: ProjectSettings,
    is_resume: bool,
    typed: str | None,
    values: Sequence[Any],
) -> Train:
    """Return the training command of the form.

    Args:
        is_resume, typed: the checkbox and the path of a resume.
        values: of FIELDS and LAUNCH.

    Raises:
        UserError: a value is out of bounds, or a path is outside the allowed folders.
    """
    fields = fields_from(Train, FIELDS, values[: len(FIELDS)])
    for field in PATHS:
        if field in fields:
            fields[field] = _inside(roots, field, fields[field])
    emptied = Train.automatic - fields.keys()  # automatic, even where the project sets a value
    own = {name: value for name, value in settings.train.items() if name not in emptied}
    settings = settings.model_copy(update={"train": {**own, **fields}})
    [command] = plan_stage(project, settings, "train").commands
    assert isinstance(command, Train)
    return command.model_copy(update={"resume": resume_value(roots, is_resume, typed)})


def launch_in(values: Sequence[Any]) -> Launch:
    """Return the launch of the form; an empty field takes the default, not the project's value.

    Args:
        values: of FIELDS and LAUNCH.

    Raises:
        UserError: a value is out of bounds.
    """
    return Launch(**fields_from(Launch, LAUNCH, values[len(FIELDS) :]))


def resume_value(roots: Roots, is_resume: bool, typed: str | None) -> str:
    """Return the trainer's --resume for the checkbox and the path as typed."""
    if not is_resume:
        return ""
    if not (typed or "").strip():
        return "auto"
    return str(roots.inside(typed, "Resume Checkpoint Path"))


def project_values(project: Project, settings: ProjectSettings) -> dict[str, Any]:
    """Return the project's values, with the trainer's defaults for the rest, as the form shows them."""
    [command] = plan_stage(project, settings, "train").commands
    assert isinstance(command, Train)
    shown = {field: _shown(command, field) for field in FIELDS}
    launch = launch_of(settings.launch)
    shown |= {field: as_shown(getattr(launch, field)) for field in LAUNCH}
    return {"resume": False, "resume_path": "", **shown}


def filled(project: Project, settings: ProjectSettings) -> dict[str, Any]:
    """Return the project's values, replaced by those of its draft."""
    own = project_values(project, settings)
    draft = read_draft(project, FORM, NAMES)
    if isinstance(draft.get("resume"), bool):
        own["resume"] = draft["resume"]
    if isinstance(draft.get("resume_path"), str):
        own["resume_path"] = draft["resume_path"]
    [command] = plan_stage(project, settings, "train").commands
    for field in FIELDS:
        if field in draft and field in Train.automatic and draft[field] in (None, ""):
            own[field] = _automatic(field)
        elif field in draft and (value := _as_field(command.model_dump(), field, draft[field])) is not None:
            own[field] = value
    with suppress(UserError, ValueError, TypeError):  # these values belong together
        drafted = launch_in([None] * len(FIELDS) + [draft.get(field, own[field]) for field in LAUNCH])
        own |= {field: as_shown(getattr(drafted, field)) for field in LAUNCH}
    return own


def store_draft(project: Project, settings: ProjectSettings, values: Mapping[str, Any]) -> None:
    """Store the values of the form that differ from the project's as its draft."""
    own = project_values(project, settings)
    changed = {
        name: value
        for name, value in values.items()
        if value != own[name] and (value is not None or name in Train.automatic)
    }
    if changed:
        write_draft(project, FORM, changed)
    else:
        forget_draft(project, FORM)


def preset_values(preset: Preset) -> dict[str, Any]:
    """Return the form values of a preset."""
    return {
        name: _automatic(name) if value is None else _as_shown(name, value)
        for name, value in preset.fields.items()
    }


def proposal_for(command: Train, machine: MachineFacts, launch: Launch) -> Proposal:
    """Return all automatic settings for this machine and the pairs of `command`, even those that it sets.

    Raises:
        UserError: the pairs, the tokenizer or the config cannot be read, or the launch exceeds the machine.
    """
    if too_much := missing_hardware(machine, launch):
        raise UserError(text_of(too_much))
    config, size = sizes_of(command)
    pairs = measure_pairs(command.train_manifest, command.tokenizer, command.config)
    if not pairs.size.num_samples:
        raise UserError(t(NO_PAIRS))
    free = with_typed(command, command.model_fields_set - set(AUTOMATIC_VALUES))
    return propose(free, share_of(machine, launch), config, size, pairs, launch.num_processes)


def _as_field(command: Mapping[str, Any], field: str, value: Value) -> Any:
    """Return a drafted value as the form shows it, None if the command rejects it."""
    try:
        given = fields_from(Train, [field], [value])
        made = Train.model_validate({**command, **given})
    except (UserError, ValueError, TypeError):
        return None
    return _as_shown(field, getattr(made, field)) if given else None


def _shown(command: Train, field: str) -> Any:
    """Return a field of the command as the form shows it."""
    if field in Train.automatic and field not in command.model_fields_set:
        return _automatic(field)
    return _as_shown(field, getattr(command, field))


def _as_shown(field: str, value: Any) -> Any:
    return as_shown_automatic(value) if field in Train.automatic else as_shown(value)


def _automatic(field: str) -> str | None:
    """Return what the form shows for an automatic field: an empty number, or the first choice."""
    return "" if Train.model_fields[field].annotation is bool else None


def _inside(roots: Roots, field: str, value: Any) -> Any:
    """Return typed paths, resolved inside the allowed folders."""
    what = field_title(Train, field)
    if isinstance(value, list):
        return [roots.inside(path, what) for path in value]
    return roots.inside(value, what)


# The step is a matter of learning, not of the machine.
AUTOMATIC_VALUES = {name: _automatic(name) for name in sorted(Train.automatic - {"step_pairs"})}
PROPOSE, OWN = "propose", "own"


def fill_buttons() -> tuple[dict[str, gr.Button], gr.HTML]:
    """Build the fill buttons, and the component that names the source of the values."""
    with gr.Row(elem_id="train-fill"):
        buttons = {
            preset.id: gr.Button(t(preset.label), size="sm", elem_id=f"train-preset-{preset.id}")
            for preset in PRESETS
        }
        buttons[PROPOSE] = gr.Button(t("training.propose"), size="sm", elem_id="train-propose")
        buttons[OWN] = gr.Button(t("training.project_values"), size="sm", elem_id="train-own")
    return buttons, gr.HTML(elem_id="train-source", padding=False)


def connect_fill_buttons(
    page: Page,
    buttons: dict[str, gr.Button],
    source: gr.HTML,
    inputs: Sequence[Component],
    command: Callable[..., tuple[Train, Launch]],
) -> gr.Textbox:
    """Connect the fill buttons; return the component with the name of the project in the form."""

    def fill(name: str, before: str) -> list[Any]:
        values = filled(page.find_project(name), page.find_settings(name))
        if not before and not values["resume"]:
            # on a new page, values that the user entered meanwhile stay
            values |= dict.fromkeys(RESUME, gr.skip())
        return list(values.values())

    def own(name: str) -> list[Any]:
        return [*project_values(page.find_project(name), page.find_settings(name)).values(), ""]

    def propose(*values: Any) -> list[Any]:
        wanted, launch = command(*values)
        proposal = proposal_for(wanted, machine := find_machine(), launch)
        return [*_only(AUTOMATIC_VALUES), proposal_html(proposal, share_of(machine, launch))]

    def put(preset: Preset) -> Callable[[], list[Any]]:
        return lambda: [*_only(preset_values(preset)), preset_html(preset)]

    switches = [inputs[NAMES.index(name)] for name in AUTOMATIC_VALUES if _automatic(name) == ""]
    page.watch(once, lambda _: [gr.Dropdown(choices=switch_choices()) for _ in switches], switches)
    shown = [*inputs, source]
    for preset in PRESETS:
        on([buttons[preset.id].click], put(preset), [], shown)
    on([buttons[PROPOSE].click], propose, [page.project, *inputs], shown)
    on([buttons[OWN].click], own, [page.project], shown)
    return page.fill(fill, inputs)


def _only(values: dict[str, Any]) -> list[Any]:
    """Return these values for the form; the other fields stay as they are."""
    return [values.get(name, gr.skip()) for name in NAMES]
