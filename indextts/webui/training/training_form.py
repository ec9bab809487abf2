"""Values of the training form: project values, draft, recipes, proposal; and conversion to a command.

The form has the checkbox and the path of a resume, then every field of the Train command in the order of
FIELDS, then the fields of the launch.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from indextts.commands.launching import Launch, launch_of
from indextts.commands.pairs_file import PairsFile, parse_files
from indextts.commands.terminal import with_typed
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.planning.estimate import start_facts
from indextts.planning.hardware import MachineFacts, share_of
from indextts.planning.preflight import missing_hardware
from indextts.planning.proposal import Proposal
from indextts.planning.recipe import Recipe, recipes
from indextts.projects.project import Project, ProjectSettings, project_names
from indextts.projects.stages import plan_stage
from indextts.runs.directory import checkpoint_files
from indextts.system.files import read_object
from indextts.webui.forms import (
    as_shown,
    as_shown_automatic,
    fields_from,
    read_draft,
    store_draft,
    with_draft,
)
from indextts.webui.language import field_title, t, text_of
from indextts.webui.serving.security import Roots

GROUPS = {
    "training.group.length": ("epochs", "max_steps", "patience"),
    "training.group.batch": ("step_pairs", "batch_size", "batch_tokens", "grad_accumulation"),
    "training.group.rate": ("learning_rate", "warmup_steps", "min_lr_ratio", "rewarm"),
    "training.group.memory": ("amp", "grad_checkpointing", "optimizer_state", "compile"),
    "training.group.lora": ("lora_rank", "lora_alpha", "lora_targets"),
    "training.group.saving": ("save_interval", "keep_checkpoints", "val_interval", "listen_interval"),
}
PATHS = (
    "train_manifest",
    "val_manifest",
    "tokenizer",
    "resume_tokenizer",
    "config",
    "base_checkpoint",
    "output_dir",
)
NO_FORM = ("resume", "plan")  # built in the resume card
GROUPED = tuple(name for names in GROUPS.values() for name in names)
OTHERS = tuple(name for name in Train.model_fields if name not in (*GROUPED, *PATHS, *NO_FORM))
FIELDS = (*GROUPED, *OTHERS, *PATHS)
RESUME = ("resume", "resume_path")
LAUNCH = ("processes", "gpus", "nodes", "endpoint")  # the page launches machine 0
NAMES = (*RESUME, *FIELDS, *LAUNCH)  # of the form's components, in order
AUTOMATIC_FIELDS = tuple(name for name in FIELDS if name in Train.automatic)
FORM, RESUME_FORM = "train", "train-resume"  # names of drafts
OWN, PROPOSE, CUSTOM = "own", "propose", "custom"  # besides the recipes, what the form can be filled with


def project_values(project: Project, settings: ProjectSettings) -> dict[str, Any]:
    """Return the project's values, with the trainer's defaults for the rest, as the form shows them."""
    [command] = plan_stage(project, settings, "train").commands
    assert isinstance(command, Train)
    shown = {field: _shown(command, field) for field in FIELDS}
    launch = launch_of(settings.launch)
    shown |= {field: as_shown(getattr(launch, field)) for field in LAUNCH}
    return {"resume": bool(checkpoint_files(command.output_dir)), "resume_path": "", **shown}


def filled(project: Project, settings: ProjectSettings) -> dict[str, Any]:
    """Return the project's values, replaced by those of its draft."""
    own = project_values(project, settings)
    [command] = plan_stage(project, settings, "train").commands

    def check(values: Mapping[str, Any]) -> None:
        fields = fields_from(Train, FIELDS, [values[name] for name in FIELDS])
        Train.model_validate({**command.model_dump(), **fields})
        Launch(**fields_from(Launch, LAUNCH, [values[name] for name in LAUNCH]))

    values = with_draft(project, FORM, own, check)
    is_resume = chosen_resume(project)
    return {**values, "resume": own["resume"] if is_resume is None else is_resume}


def store_resume(project: Project, settings: ProjectSettings, is_resume: bool) -> None:
    """Store the user's choice whether to resume, unless it is what the project's files suggest.

    It is no part of the other draft: the first checkpoint changes the suggestion, and a form that was filled
    before it must not count as a choice.
    """
    is_suggested = is_resume == project_values(project, settings)["resume"]
    store_draft(project, RESUME_FORM, {} if is_suggested else {"resume": is_resume})


def chosen_resume(project: Project) -> bool | None:
    """Return the user's choice whether to resume; None without one."""
    chosen = read_draft(project, RESUME_FORM, ["resume"]).get("resume")
    return chosen if isinstance(chosen, bool) else None


def changed_values(values: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the form that differ from the project's; an emptied field takes the project's."""
    return {
        name: value
        for name, value in values.items()
        if value != own[name] and (value is not None or name in Train.automatic)
    }


def run_settings(project: Project) -> dict[str, Any]:
    """Return the settings of a project's newest run as the form shows them; empty without a run."""
    found = read_object(project.run_dir / "config.json").get("command")
    command: dict[str, Any] = found if isinstance(found, dict) else {}
    left = {*PATHS, "accept_lost_rows"}  # not for another run
    return {name: _as_shown(name, command[name]) for name in FIELDS if name in command and name not in left}


def run_fillings(workspace: Path) -> dict[str, dict[str, Any]]:
    """Return the form values of each project's run by "run:NAME", without what suits its machine."""
    runs = {name: run_settings(Project(workspace / name)) for name in project_names(workspace)}
    return {f"run:{name}": found | AUTOMATIC_VALUES for name, found in runs.items() if found}


def source_of(values: Mapping[str, Any], own: Mapping[str, Any], runs: Mapping[str, Any] = {}) -> str:
    """Return what the form is filled with: OWN, PROPOSE, the id of a recipe or of `runs`, or CUSTOM."""
    settings = {name: value for name, value in values.items() if name not in RESUME}
    if not changed_values(settings, own):
        return OWN
    # found by comparing values and not kept anywhere: a reload or another browser then shows the same
    candidates = {recipe.id: recipe_values(recipe) for recipe in recipes()} | {PROPOSE: AUTOMATIC_VALUES}
    for id, filling in {**candidates, **runs}.items():
        if not changed_values(settings, {**own, **filling}):
            return id
    return CUSTOM


FLAG = re.compile(r"--([a-z][a-z0-9-]*)")


def element_of(text: str) -> tuple[str, str] | None:
    """Return the id and the title of the field that a message names first by its flag; None without one."""
    for flag in FLAG.findall(text):
        name = flag.replace("-", "_")
        if name == "resume":
            return "train-resume-path", t("training.resume_path")
        if name in LAUNCH:
            return f"Launch-{name}", field_title(Launch, name)
        if name in FIELDS:
            return f"Train-{name}", field_title(Train, name)
    return None


def recipe_values(recipe: Recipe) -> dict[str, Any]:
    return {
        name: _automatic(name) if value is None else _as_shown(name, value)
        for name, value in recipe.settings.items()
    }


def proposal_for(command: Train, machine: MachineFacts, launch: Launch) -> Proposal:
    """Return all automatic settings, even those that `command` sets; a UserError without pairs."""
    if too_much := missing_hardware(machine, launch):
        raise UserError(text_of(too_much))
    # without what the form sets: the proposal replaces it
    free = with_typed(command, command.model_fields_set - set(AUTOMATIC_VALUES))
    facts = start_facts(free, share_of(machine, launch), launch.num_processes)
    if not facts.pairs.size.num_samples:
        raise UserError(t("training.no_pairs"))
    return facts.propose()


def _shown(command: Train, field: str) -> Any:
    if field in Train.automatic and field not in command.model_fields_set:
        return _automatic(field)
    return _as_shown(field, getattr(command, field))


def _as_shown(field: str, value: Any) -> Any:
    return as_shown_automatic(value) if field in Train.automatic else as_shown(value)


def _automatic(field: str) -> str | None:
    """Return what the form shows for an automatic field: an empty number, or the first choice."""
    return "" if Train.model_fields[field].annotation is bool else None


def inside(roots: Roots, field: str, value: Any) -> Any:
    """Return typed paths, resolved inside the allowed folders."""
    what = field_title(Train, field)
    if isinstance(value, list):
        files = typed_files(what, value)
        return [str(replace(file, path=roots.inside(file.path, what))) for file in files]
    return roots.inside(value, what)


def typed_files(what: str, typed: list[str]) -> tuple[PairsFile, ...]:
    """Return the files of a field; a UserError for an invalid one."""
    try:
        return parse_files(typed)
    except ValueError as error:
        raise UserError(f"{what}: {error}") from None


# The step is a matter of learning, not of the machine.
AUTOMATIC_VALUES = {name: _automatic(name) for name in sorted(Train.automatic - {"step_pairs"})}
