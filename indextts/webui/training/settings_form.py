"""Settings of tab 6: five groups and a fold for the rest, a menu that fills them, and marks at the fields.

Marks are styles by id, which page_files/training.css uses: `--changed` at a label, `--chosen` and
`--problem` below a field. The files of another project's pairs can be added with a share.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from indextts.commands.bases import Base
from indextts.commands.launching import Launch
from indextts.commands.pairs_file import PairsFile
from indextts.commands.train import Train
from indextts.data.pair_summary import PairSummary, summary_path
from indextts.errors import UserError
from indextts.planning.estimate import estimate
from indextts.planning.hardware import MachineFacts, find_machine, share_of
from indextts.planning.preflight import shortened
from indextts.planning.proposal import Proposal
from indextts.planning.recipe import Recipe, find_recipe, recipes, recommended, reports
from indextts.projects.jobs.starting import shell_line
from indextts.projects.project import Project, ProjectSettings, project_names, read_project
from indextts.system.amounts import shown_gib
from indextts.system.yaml_files import read_if_valid
from indextts.webui.events import on
from indextts.webui.forms import draft_path, form_for, read_draft, store_draft
from indextts.webui.language import field_title, t
from indextts.webui.layout import fields, fold, labelled, small_button
from indextts.webui.markup import table_html
from indextts.webui.page import Page
from indextts.webui.training.training_form import (
    AUTOMATIC_FIELDS,
    AUTOMATIC_VALUES,
    CUSTOM,
    FIELDS,
    FORM,
    GROUPS,
    LAUNCH,
    NAMES,
    OTHERS,
    OWN,
    PATHS,
    PROPOSE,
    RESUME,
    changed_values,
    element_of,
    filled,
    project_values,
    proposal_for,
    recipe_values,
    run_fillings,
    source_of,
    typed_files,
)
from indextts.webui.training.training_outlook import automatic_lines, problem_texts
from indextts.webui.view_versions import files_version

MENU = {OWN: "training.project_values", PROPOSE: "training.propose", CUSTOM: "training.custom_values"}
OTHERS_FOLD = "train-others"


class SettingsForm:
    """The settings.

    Attributes:
        fields, launch: the form, by the fields of Train and Launch.
        use: fills the form with the recipe for this project.
        reset: sets the changed fields back to the project's values.
        theirs: sets the fields to what another browser stored.
        changes, marks: hold the styles of changed fields, and of chosen values and problems.
    """

    def __init__(self, page: Page) -> None:
        with gr.Row(elem_classes="settings-head"):
            _name("training.settings", "title")
            self.menu = gr.Dropdown(
                menu_choices([]),
                **labelled("training.recipe", "train-recipe"),
                value=OWN,
                show_label=False,
                container=False,
            )
            self.use = small_button("training.use_recipe", "train-use-recipe", visible=False)
            self.reset = small_button("training.reset", "train-reset", visible=False)
            self.theirs = small_button("training.other_browser", "train-theirs", visible=False)
            _search()
        self.source = gr.HTML(elem_id="train-source", padding=False)
        self.fields: dict[str, Component] = {}
        for title, names in GROUPS.items():
            with gr.Row(elem_classes="group", elem_id=f"train-group-{title.rpartition('.')[2]}"):
                _name(title)
                with fields():
                    self.fields |= form_for(Train, names)
        with fold(t("training.other_settings"), OTHERS_FOLD):
            with fields():
                self.fields |= form_for(Train, OTHERS)
            _name("training.paths")
            with fields():
                self.fields |= form_for(Train, PATHS)
            other_data_group(page, self.fields)
            self.launch, self.other_nodes = launch_group()
        self.changes = gr.HTML(elem_id="train-changes", elem_classes="style-only", padding=False)
        self.marks = gr.HTML(elem_id="train-marks", elem_classes="style-only", padding=False)

    @property
    def of_changes(self) -> list[Component]:
        """The components that `changed_fields` fills."""
        return [self.menu, self.source, self.use, self.reset, self.changes]


def _name(title: str, kind: str = "group-name") -> None:
    id = title.replace(".", "-")
    gr.HTML(f"<p>{escape(t(title))}</p>", elem_id=id, elem_classes=kind, padding=False)


def _search() -> None:
    """Build the box that hides the fields whose name and help do not contain the typed words."""
    text = t("training.find_a_setting")
    box = gr.Textbox(
        label=text, show_label=False, placeholder=text, container=False, elem_id="train-search", lines=1
    )
    count = gr.HTML(elem_id="train-search-count", padding=False)
    # change instead of input: Gradio reports no input event for an emptied box; and every key counts
    js = f"typed => window.searchFields('{Train.__name__}', '{OTHERS_FOLD}', typed)"
    box.change(None, [box], [count], js=js, trigger_mode="multiple")


def connect_settings(
    page: Page,
    settings: SettingsForm,
    inputs: Sequence[Component],
    command: Callable[..., tuple[Train, Launch]],
) -> gr.Textbox:
    """Connect menu and reset to the inputs of NAMES; return the component with the name of their project."""

    def fill(project: Project, before: str) -> list[Any]:
        values = filled(project, read_project(project))
        if not before and not values["resume"]:
            # on a new page, values that the user entered meanwhile stay
            values |= dict.fromkeys(RESUME, gr.skip())
        return list(values.values())

    def own(project: Project) -> dict[str, Any]:
        return project_values(project, read_project(project))

    def choose(project: Project, choice: str | None, *values: Any) -> list[Any]:
        if choice == OWN:
            return [*_settings_of(own(project)), ""]
        if choice == PROPOSE:
            wanted, launch = command(project, *values)
            proposal = proposal_for(wanted, machine := find_machine(), launch)
            return [*_settings_of(AUTOMATIC_VALUES), proposal_html(proposal, share_of(machine, launch))]
        if filling := run_fillings(page.workspace).get(str(choice)):
            return [*_settings_of({**own(project), **filling}), ""]
        if choice in [recipe.id for recipe in recipes()]:
            recipe = find_recipe(str(choice))
            return [*_settings_of({**own(project), **recipe_values(recipe)}), recipe_html(recipe)]
        return [gr.skip()] * (len(NAMES) + 1)

    def use(project: Project, *shown: Any) -> list[Any]:
        recipe, _ = recipe_for(project)
        if recipe is None:
            return choose(project, None)
        chosen = {**own(project), **recipe_values(recipe)}
        typed = dict(zip(NAMES, shown, strict=True))
        with suppress(UserError):  # the form shows what it lacks
            values = [typed[name] if name in RESUME else chosen.get(name, typed[name]) for name in NAMES]
            wanted, launch = command(project, *values)
            machine = share_of(find_machine(), launch)
            expected = estimate(wanted, machine, num_processes=launch.num_processes)
            chosen |= shortened(wanted, expected.total_steps)
        return [*_settings_of(chosen), recipe_html(recipe)]

    filled_for = page.fill(fill, inputs)

    def differ(project: Project, filled_with: str, *values: Any) -> gr.Button:
        there = own(project) | read_draft(project, FORM, NAMES)
        changed = changed_values(dict(zip(NAMES, values, strict=True)), there)
        is_filled = filled_with == project.root.name
        return gr.Button(visible=is_filled and not changed.keys() <= {"resume"})

    # the draft of this browser is what its form has; another draft is that of another browser
    version = lambda project: files_version(draft_path(project, FORM))  # noqa: E731
    page.watch(version, differ, [settings.theirs], [filled_for, *inputs])
    on(
        [settings.theirs.click],
        lambda project: [*fill(project, project.root.name), gr.Button(visible=False)],
        [page.project],
        [*inputs, settings.theirs],
    )
    shown = [*inputs, settings.source]
    # `input` is the user's choice only: `changed_fields` sets the menu after each change of a field, and a
    # `change` event would then fill the form again and undo what was typed
    on([settings.menu.input], choose, [page.project, settings.menu, *inputs], shown)
    on([settings.use.click], use, [page.project, *inputs], shown)
    on([settings.reset.click], lambda project: choose(project, OWN), [page.project], shown)
    return filled_for


def changed_fields(project: Project, settings: ProjectSettings, values: Mapping[str, Any]) -> list[Any]:
    """Store the values of the form as its draft; return the values of `SettingsForm.of_changes`."""
    own = project_values(project, settings)
    changed = changed_values(values, own)
    changed.pop("resume", None)  # `store_resume` has it: only a click on the box is a choice
    store_draft(project, FORM, changed)
    runs = run_fillings(project.root.parent)
    source = source_of(values, own, runs)
    names = [field for field in changed if field not in RESUME]
    label = t("training.reset_changed", count=len(names))
    recipe, hours = (None, 0.0) if settings.is_demo else recipe_for(project)
    if source == PROPOSE:  # its reasons are those of the click that filled the form
        text = gr.skip()
    elif source in (OWN, CUSTOM, *runs):
        text = "" if settings.is_demo else recommended_html(project.base, recipe, hours)
    else:
        text = recipe_html(find_recipe(source))
    ids = ",".join(f"#{'Train' if name in FIELDS else 'Launch'}-{name}" for name in names)
    return [
        gr.Dropdown(choices=menu_choices(runs), value=source),
        text,
        gr.Button(visible=recipe is not None and recipe.id != source),
        gr.Button(label, visible=bool(names)),
        f"<style>{_rule(ids, {'--changed': t('training.changed')})}</style>" if ids else "",
    ]


def menu_choices(runs: Iterable[str]) -> list[tuple[str, str]]:
    """Return label and value of what can fill the form; `runs` as `run_fillings` names them."""
    found = [(t(recipe.label), recipe.id) for recipe in recipes()]
    found += [(t("training.settings_of", project=id.removeprefix("run:")), id) for id in runs]
    return [(t(MENU[OWN]), OWN), *found, (t(MENU[PROPOSE]), PROPOSE), (t(MENU[CUSTOM]), CUSTOM)]


def marks_html(
    command: Train | None, chosen: Train | None, error: UserError | None = None, *, is_resume: bool = False
) -> str:
    """Return the style that shows chosen values at empty automatic fields, and problems at theirs.

    A style instead of new placeholders: Gradio would report each of these as a change of its field.

    Args:
        command: as the form gives it; None for an invalid form.
        chosen: with the values that the run uses; None if they are unknown.
        is_resume: the chosen values are those of the run.
    """
    rules = ""
    for name in AUTOMATIC_FIELDS if command is not None and chosen is not None else ():
        if command is None or name in command.model_fields_set:
            continue
        if name == "step_pairs" and command.model_fields_set & {"batch_size", "batch_tokens"}:
            continue  # it has no effect
        value = getattr(chosen, name)
        shown = t(("forms.off", "forms.on")[value]) if isinstance(value, bool) else f"{value:,}"
        rules += _rule(
            f"#Train-{name}",
            {"--chosen": t("training.of_run" if is_resume else "training.is_automatic", value=shown)},
        )
    for text in problem_texts(error) if error else ():
        if named := element_of(text):
            rules += _rule(f"#{named[0]}", {"--problem": text.partition(": ")[2] or text})
    return f"<style>{rules}</style>" if rules else ""


def _rule(selector: str, variables: Mapping[str, str]) -> str:
    # every character is escaped: the texts contain user input
    rule = ""
    for name, text in variables.items():
        escaped = "".join(f"\\{ord(letter):x} " for letter in text)
        rule += f'{name}:"{escaped}";'
    return f"{selector}{{{rule}}}"


def recipe_html(recipe: Recipe) -> str:
    return f"<p>{escape(t('training.from_recipe', label=t(recipe.label), source=t(recipe.source)))}</p>"


def recipe_for(project: Project) -> tuple[Recipe | None, float]:
    """Return the recipe for the base, the hours and this machine's GPU, if there is one, and the hours."""
    gpu = find_machine().gpu
    summary = read_if_valid(PairSummary, summary_path(project.pairs("train")))
    hours = 0 if summary is None else summary.numbers["hours"]
    recipe = recommended(project.base.name, hours, None if gpu is None else gpu.memory_bytes)
    return (recipe if recipe and (hours or recipe.is_measured) else None), hours


def recommended_html(base: Base, recipe: Recipe | None, hours: float) -> str:
    """Return a recipe for a base and the hours of a project, and what others report of the base."""
    if recipe is None:
        return _reports_html(base)
    id = "training.recommended" if recipe.is_measured else "training.suits"
    values = {"base": base.title, "hours": hours, "label": t(recipe.label), "source": t(recipe.source)}
    return f"<p>{escape(t(id, **values))}</p>{_reports_html(base)}"


def _reports_html(base: Base) -> str:
    rows = [
        [
            escape(text)
            for text in (each.language, f"{each.hours:,.0f}", each.method, each.result, each.source)
        ]
        for each in reports()
        if each.base == base.name
    ]
    columns = {"language": "", "hours": "number", "method": "", "result": "", "source": ""}
    heads = [(t(f"training.report_{name}"), kind) for name, kind in columns.items()]
    title, nobody = escape(t("training.reports", base=base.title)), escape(t("training.nobody_has_shown"))
    return f"<details><summary>{title}</summary><p>{nobody}</p>{table_html(heads, rows)}</details>"


def proposal_html(proposal: Proposal, machine: MachineFacts) -> str:
    gpu = machine.gpu
    if gpu is None:
        whose = t("training.no_gpu", cores=machine.num_cores)
    else:
        whose = t(
            "training.with_gpu", gpu=gpu.name, there=shown_gib(gpu.memory_bytes), cores=machine.num_cores
        )
    items = "".join(f"<li>{escape(line)}</li>" for line in automatic_lines(proposal))
    return f"<p>{escape(t('training.proposed', machine=whose))}</p><ul>{items}</ul>"


def _settings_of(values: Mapping[str, Any]) -> list[Any]:
    """Return these values for the form; the resume and fields without a value stay as they are."""
    return [gr.skip() if name in RESUME else values.get(name, gr.skip()) for name in NAMES]


def launch_group() -> tuple[dict[str, Component], gr.Textbox]:
    """Build the section; return its fields, and the component for the commands of other machines."""
    with gr.Column(elem_id="train-launch"):
        _name("training.several_gpus")
        gr.HTML(gpus_html(find_machine()), elem_id="train-gpus", padding=False)
        with fields():
            form = form_for(Launch, LAUNCH)
        others = gr.Textbox(
            **labelled("training.other_machines", "train-other-nodes"),
            lines=2,
            max_lines=30,
            interactive=False,
            visible=False,
            buttons=["copy"],
        )
    return form, others


def gpus_html(machine: MachineFacts) -> str:
    if machine.gpu is None:
        text = t("training.no_gpus")
    elif len(machine.gpus) == 1:
        text = t("training.one_gpu", gpu=machine.gpu.name)
    else:
        gpus = [
            t("training.gpu", number=gpu.number, name=gpu.name, there=shown_gib(gpu.memory_bytes))
            for gpu in machine.gpus
        ]
        text = t("training.gpus", count=len(gpus), gpus="; ".join(gpus))
    return f"<p>{escape(text)}</p>"


def other_nodes(command: Train, launch: Launch) -> str:
    """Return the commands for the other machines, each after its number; "" if there are none."""
    return "\n\n".join(
        f"{t('training.on_machine', rank=other.node_rank)}\n{shell_line(command, other)}"
        for other in launch.on_other_nodes()
    )


DEFAULT_SHARE = 0.15
MANIFESTS = ("train_manifest", "val_manifest")


def other_data_group(page: Page, form: Mapping[str, Component]) -> None:
    _name("training.other_data")
    with fields():
        other = gr.Dropdown([], **labelled("training.other_project", "train-other"))
        share = gr.Number(DEFAULT_SHARE, **labelled("training.other_share", "train-other-share"))
        add = small_button("training.add_other", "train-add-other")

    def added(own: Project, chosen: str | None, typed_share: float | None, *typed: str) -> list[str]:
        if chosen not in others_with_pairs(page.workspace, own):
            raise UserError(t("training.no_other_project"))
        if not typed_share or not 0 < typed_share < 1:
            raise UserError(t("training.invalid_share"))
        project = Project(page.workspace / chosen)
        language = read_project(project).language
        code = "" if language == read_project(own).language else language
        train, val = (
            typed_files(
                field_title(Train, name), [line for line in map(str.strip, text.splitlines()) if line]
            )
            for name, text in zip(MANIFESTS, typed, strict=True)
        )
        return [
            "\n".join(map(str, with_share(train, PairsFile(project.pairs("train"), code, typed_share)))),
            "\n".join(map(str, with_file(val, PairsFile(project.pairs("val"), code)))),
        ]

    manifests = [form[name] for name in MANIFESTS]
    on([add.click], added, [page.project, other, share, *manifests], manifests)
    # the names are the version: a project gets its pairs in another tab, without a file of this one changing
    page.watch(
        lambda project: " ".join(others_with_pairs(page.workspace, project)),
        # without a value: the user's choice stays
        lambda project: gr.Dropdown(choices=others_with_pairs(page.workspace, project)),
        [other],
    )


def others_with_pairs(workspace: Path, own: Project) -> list[str]:
    return [
        other
        for other in project_names(workspace)
        if other != own.root.name
        and all(Project(workspace / other).pairs(split).is_file() for split in ("train", "val"))
    ]


def with_file(files: Sequence[PairsFile], added: PairsFile) -> list[PairsFile]:
    """Return the files and the added one, in place of an earlier one with its path."""
    return [*(file for file in files if file.path != added.path), added]


def with_share(files: Sequence[PairsFile], added: PairsFile) -> list[PairsFile]:
    """Return the files with one whose share is of all; a UserError if the others have no shares."""
    others = [file for file in files if file.path != added.path]
    shares: list[Any] = [file.share for file in others]
    if len(others) == 1:
        shares = [1.0]
    if None in shares or added.share is None:
        raise UserError(t("training.shares_first"))
    rest = 1 - added.share
    scaled = [
        replace(file, share=round(rest * share / sum(shares), 4))
        for file, share in zip(others, shares, strict=True)
    ]
    return [*scaled, added]
