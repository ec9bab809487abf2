"""Tab 6: resume card and settings on the left; the run panel, its outlook and the proof on the right.

What a click on Start does with the form: values -> command -> checks and restore plan -> job. `prepare`
answers once per change of the form; the run panel, the resume card and the marks at the fields all show its
answer. A click calls it again on the server, and starts only what it lets through.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from indextts.commands.app import ProveSetup
from indextts.commands.launching import Launch, launch_of
from indextts.commands.terminal import to_argv
from indextts.commands.train import Train
from indextts.errors import UserError
from indextts.planning.hardware import find_machine
from indextts.planning.preflight import Preflight, Problem, missing_hardware, run_preflight
from indextts.projects.jobs.records import newest_job
from indextts.projects.jobs.starting import PROOF_JOB
from indextts.projects.names import title_of
from indextts.projects.project import REPOSITORY, Project, ProjectSettings, project_names, read_project
from indextts.projects.proof import NAME, Check
from indextts.projects.stages import plan_stage
from indextts.runs.directory import checkpoint_files
from indextts.runs.owner import is_training
from indextts.runs.restore_rows import refused_row
from indextts.system.files import file_stamp
from indextts.system.json_lines import json_lines_if_any
from indextts.system.messages import Message
from indextts.webui.devices import chosen_recognizers
from indextts.webui.events import on
from indextts.webui.forms import fields_from
from indextts.webui.language import t, text_of
from indextts.webui.layout import columns, heading, labelled
from indextts.webui.markup import meter_html
from indextts.webui.page import EVERY_TAB, Page
from indextts.webui.run_progress import duration, progress_of, read_run
from indextts.webui.running.outlook import Notice, Outlook, Start, missing, outlook_html
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.serving.security import Roots
from indextts.webui.training.resume_card import ResumeCard, answer_html, card_values, running_values
from indextts.webui.training.settings_form import (
    SettingsForm,
    changed_fields,
    connect_settings,
    marks_html,
    other_nodes,
)
from indextts.webui.training.training_form import (
    FIELDS,
    LAUNCH,
    NAMES,
    PATHS,
    chosen_resume,
    element_of,
    inside,
    store_resume,
)
from indextts.webui.training.training_outlook import invalid_outlook, outlook_of, plan_rows, running_outlook
from indextts.webui.view_versions import files_version

MONITOR = ("#monitor", "training.open_monitor")
ONWARD = {
    "running": MONITOR,
    "stopping": MONITOR,
    "stopped": MONITOR,
    "failed": MONITOR,
    "finished": ("#listen", "training.open_listen"),
}
PLAN_TIMEOUT_S = 300
MAX_ANSWERS = 16
_ANSWERS: dict[tuple[object, ...], str] = {}  # of the trainer, by command and files


def build(page: Page) -> None:
    with columns() as (main, side):
        with main:
            card = ResumeCard()
            form = SettingsForm(page)
        # in the order of NAMES (training_form.py): Gradio calls handlers with positional values
        inputs = [card.resume, card.path, *form.fields.values(), *form.launch.values()]

        def launched(project: Project, is_resume: bool, typed: str, *values: Any) -> tuple[Train, Launch]:
            settings = read_project(project)
            return command_of(page.roots, project, settings, is_resume, typed, values), launch_in(values)

        filled_for = connect_settings(page, form, inputs, launched)
        with side:
            stage = Stage(
                "train",
                "training.start_training",
                partial(prepare, page),
                inputs,
                details=[*card.shown, form.other_nodes, form.marks, *form.of_changes],
                progress=progress_bar,
                onward=ONWARD,
                filled_for=filled_for,
            )
            start = stage_panel(page, stage)
            build_proof(page, inputs, filled_for, launched)

    def read_plan(project: Project, *values: Any) -> Any:
        command, wanted = launched(project, *values)
        return answer_html(ask_trainer(command, wanted.num_processes)), gr.Button(visible=False)

    def choose_resume(project: Project, filled: str, is_resume: bool) -> None:
        if filled == project.root.name:  # else a later filling of the form would take it for the project's
            store_resume(project, read_project(project), is_resume)

    # `input`, not `change`: the first checkpoint ticks the box too, and that is no choice of the user
    on([card.resume.input], choose_resume, [page.project, filled_for, card.resume], [], latest=True)
    on((), choose_resume, [page.project, filled_for, card.resume], [], after=card.chosen, latest=True)
    reads = [page.project, *inputs]
    on([card.read.click], read_plan, reads, [card.plan, card.read], waits_for_programs=True)
    # in every tab: who opens this one and clicks at once finds it ticked
    page.of_tab(EVERY_TAB).watch(
        lambda project: str(bool(checkpoint_files(project.run_dir))), resume_update, [card.resume, start]
    )


def build_proof(
    page: Page, form: Sequence[Component], filled_for: Component, command: Callable[..., tuple[Train, Launch]]
) -> None:
    """Build the proof of the set-up; `command` is called with the project and the values of the form."""

    def prepare_proof(project: Project, _settings: ProjectSettings, asr: str, *values: Any) -> Start:
        prove = ProveSetup(
            workspace=page.workspace,
            config=project.root / "project.json",
            asr=chosen_recognizers(page.roots, asr),
            train_flags=to_argv(command(project, *values)[0]),
        )
        return Start(
            [prove], outlook=Outlook(blockers=missing(project.pairs("train"), "training.no_pairs", "pairs"))
        )

    heading("training.proof", "training.proof_lead")
    asr = gr.Textbox(**labelled("listen.recognizers", "proof-asr"), lines=1)
    result, inputs = gr.HTML(elem_id="proof-result", render=False), [asr, *form]
    stage_panel(
        page, Stage(PROOF_JOB, "training.prove", prepare_proof, inputs, result=result, filled_for=filled_for)
    )
    version = lambda project: files_version(project.proof / NAME)  # noqa: E731
    page.watch(version, proof_html, [result], result_of=[PROOF_JOB])


def proof_html(project: Project) -> str:
    checks = [Check.model_validate(line) for _, line in json_lines_if_any(project.proof / NAME)]
    notices = [Notice(text_of(one.message), kind="finished" if one.is_good else "problem") for one in checks]
    return outlook_html(Outlook(blockers=notices), is_ready=False)


def resume_update(project: Project) -> Any:
    """Return updates that tick the resume and name the button so, unless the user unticked it."""
    if not checkpoint_files(project.run_dir) or (chosen := chosen_resume(project)) is False:
        return gr.skip(), gr.skip()
    return gr.Checkbox(value=True) if chosen is None else gr.skip(), gr.Button(t("monitor.resume"))


def progress_bar(project: Project) -> str:
    """Return step and time left of the running training as a bar; "" before its first line."""
    found = progress_of(read_run(project.run_dir), project.run_dir, time.time())
    if found.step is None or not found.total_steps or found.ended is not None:
        return ""
    words = [t("training.at_step_of", step=f"{found.step:,}", total=f"{found.total_steps:,}")]
    if found.seconds_left is not None:
        words.append(t("jobs.time_left", time=duration(found.seconds_left)))
    return meter_html(found.step / found.total_steps, ", ".join(words))


def prepare(
    page: Page, project: Project, settings: ProjectSettings, is_resume: bool, typed: str, *values: Any
) -> Start:
    """Return what a start would run, and what the page shows about it; `values` are of FIELDS and LAUNCH."""
    # first of all: also an invalid value is kept as a draft, so that a reload does not lose it
    changes = changed_fields(project, settings, dict(zip(NAMES, (is_resume, typed, *values), strict=True)))
    try:
        command = command_of(page.roots, project, settings, is_resume, typed, values)
        launch = launch_in(values)
    except UserError as error:
        run_dir = _run_dir(page.roots, project, settings, values)
        plan = [] if element_of(str(error)) else [refused_row(str(error))]
        card = card_values(run_dir, str(typed or "auto") if is_resume else "", None, plan, can_read=False)
        # here and below in the order of the stage's `details`: Gradio matches outputs by position
        details = [*card, gr.Textbox(visible=False), marks_html(None, None, error), *changes]
        return Start(outlook=replace(invalid_outlook(error), details=details), error=str(error))
    nodes = gr.Textbox(other_nodes(command, launch), visible=launch.nodes > 1)
    machine = find_machine()
    projects = [Project(page.workspace / name) for name in project_names(page.workspace)]
    runs = [other.run_dir for other in projects]
    forbidden = foreign_machines(settings, launch)
    # no process can use a GPU that is not there, and a visitor must not name machines: not even later
    hardware = forbidden or missing_hardware(machine, launch)
    never = text_of(hardware) if hardware else ""
    if is_active(project) or is_training(command.output_dir):  # by the demo or from a terminal
        outlook = replace(running_outlook(), details=[*running_values(), nodes, "", *changes])

        # the preflight takes a second on many pairs, and a running training needs its answer only at a click
        def check_now() -> None:
            _check(command, run_preflight(command, machine, runs, launch), launch.num_processes)

        return Start([command], launch, outlook, never, check_now)
    found = run_preflight(command, machine, runs, launch)
    if forbidden:
        found = replace(found, problems=(*found.problems, Problem("launch", forbidden)))
    is_unknown = needs_weights(command, found)
    # only an earlier answer: the trainer needs seconds to load torch, which no key press may wait for
    answer = _ANSWERS.get(_key(command, launch.num_processes), "") if is_unknown else ""
    can_read = is_unknown and not answer
    rows = plan_rows(command, found)
    card = card_values(command.output_dir, command.resume, found, rows, can_read=can_read, answer=answer)
    chosen = found.estimate.facts.settings if found.estimate else None
    marks = marks_html(command, chosen, is_resume=found.resumed is not None)
    outlook = outlook_of(command, found, is_unknown=can_read)
    beside = [
        Notice(t("training.other_runs", project=title_of(other)))
        for other in projects
        if other != project and is_training(other.run_dir)
    ]
    return Start(
        [command],
        launch,
        replace(outlook, details=[*card, nodes, marks, *changes], notes=[*beside, *outlook.notes]),
        error=never,
        check=partial(_check, command, found, launch.num_processes),
    )


def _check(command: Train, found: Preflight, num_processes: int) -> None:
    """Raise a UserError if a check blocks an immediate start, or the trainer would refuse it."""
    if found.problems:
        raise UserError(" ".join(f"{text_of(problem.message)}." for problem in found.problems))
    if needs_weights(command, found):
        ask_trainer(command, num_processes)


def needs_weights(command: Train, found: Preflight) -> bool:
    """Return whether only the weights can decide what a resume restores."""
    is_refused = any(problem.about == "resume" for problem in found.problems)
    return bool(command.resume) and found.resumed is None and not is_refused


def is_active(project: Project) -> bool:
    job = newest_job(project, "train")
    return job is not None and job.is_active and job.state != "waiting"


def foreign_machines(settings: ProjectSettings, launch: Launch) -> Message | None:
    """Return a message if the launch names machines that the project's settings do not.

    Processes trust each other, so whoever names the machines controls this one. A visitor of a shared link
    must not; a user who can write the project's settings controls it anyway.
    """
    own = launch_of(settings.launch)
    if launch.nodes == 1 or (launch.nodes, launch.endpoint) == (own.nodes, own.endpoint):
        return None
    return Message("training.machines_not_allowed", {"nodes": str(launch.nodes), "endpoint": launch.endpoint})


# ---- values of the form -> command


def command_of(
    roots: Roots,
    project: Project,
    settings: ProjectSettings,
    is_resume: bool,
    typed: str | None,
    values: Sequence[Any],
) -> Train:
    """Return the command of the form (FIELDS, LAUNCH), `typed` to resume from; else a UserError."""
    fields = fields_from(Train, FIELDS, values[: len(FIELDS)])
    for field in PATHS:
        if field in fields:
            fields[field] = inside(roots, field, fields[field])
    if "listen_asr" in fields:
        fields["listen_asr"] = "".join(chosen_recognizers(roots, fields["listen_asr"])[:1])
    emptied = Train.automatic - fields.keys()  # automatic, even where the project sets a value
    own = {name: value for name, value in settings.train.items() if name not in emptied}
    settings = settings.model_copy(update={"train": {**own, **fields}})
    [command] = plan_stage(project, settings, "train").commands
    assert isinstance(command, Train)
    resume = resume_value(roots, is_resume, typed, command.output_dir)
    return command.model_copy(update={"resume": resume})


def launch_in(values: Sequence[Any]) -> Launch:
    """Return the launch of the form, the defaults for empty fields; a UserError for an invalid value."""
    return Launch(**fields_from(Launch, LAUNCH, values[len(FIELDS) :]))


def resume_value(roots: Roots, is_resume: bool, typed: str | None, run_dir: Path) -> str:
    """Return the trainer's --resume; a file name without a folder is one of the run directory."""
    name = (typed or "").strip()
    if not is_resume:
        return ""
    if not name:
        return "auto"
    if not name.endswith(".pth"):
        raise UserError(f"{t('training.resume_path')}: {t('training.not_a_checkpoint', path=name)}")
    is_bare = "/" not in name
    return str(roots.inside(run_dir / name if is_bare else name, t("training.resume_path")))


def _run_dir(roots: Roots, project: Project, settings: ProjectSettings, values: Sequence[Any]) -> Path:
    """Return the run directory of a form with an invalid value, else the project's own."""
    with suppress(UserError):
        return command_of(roots, project, settings, False, "", values).output_dir
    return project.run_dir


# ---- the trainer's own answer, for a checkpoint whose meta file does not suffice


def ask_trainer(command: Train, num_processes: int = 1) -> str:
    """Return what the trainer's --plan prints on rank 0, or its earlier answer; a UserError if it refuses.

    The page never loads torch and never runs a pickle, so a process of its own reads the weights.
    """
    key = _key(command, num_processes)
    if key in _ANSWERS:
        return _ANSWERS[key]
    environment = dict(os.environ)
    if num_processes > 1:  # set by torchrun otherwise; a plan joins no process group
        environment |= {"RANK": "0", "WORLD_SIZE": str(num_processes)}
    # the trainer itself and no function of ours: what it prints is what the start will do
    argv = [sys.executable, str(REPOSITORY / command.program), *to_argv(command), "--plan"]
    # files and not pipes: the answer of a process that is killed at the end of its time can still be read
    with tempfile.TemporaryFile("w+", encoding="utf-8") as answer, tempfile.TemporaryFile("w+") as problem:
        try:
            status = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=problem,
                timeout=PLAN_TIMEOUT_S,
                env=environment,
            ).returncode
        except subprocess.TimeoutExpired:
            raise UserError(t("training.no_answer", seconds=PLAN_TIMEOUT_S)) from None
        answer.seek(0)
        problem.seek(0)
        output, errors = answer.read().strip().splitlines(), problem.read().strip().splitlines()
    if status:
        ended = f"the trainer ended without a message (status {status}); stop other jobs, and try again"
        raise UserError(errors[-1].removeprefix("[Error] ") if errors else ended)
    # in memory and not on the disk: a restarted page asks again, and no stale file has to be recognised
    while len(_ANSWERS) >= MAX_ANSWERS:
        _ANSWERS.pop(next(iter(_ANSWERS)), None)
    _ANSWERS[key] = "\n".join(line for line in output if not line.startswith("["))  # without the log
    return _ANSWERS[key]


def _key(command: Train, num_processes: int) -> tuple[object, ...]:
    """Return the command with the stamps of the files that its plan depends on."""
    files = {Path(command.resume), command.tokenizer, command.config, command.base_checkpoint}
    files |= {file.path for file in (*command.train_files, *command.val_files)}
    files |= {*command.output_dir.glob("*.pth"), *command.output_dir.glob("*.json")}
    stamps = [(str(path), file_stamp(path)) for path in sorted(files) if path.is_file()]
    return (*to_argv(command), num_processes, *stamps)
