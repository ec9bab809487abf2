"""Tab 6: resume card and settings on the left; the run panel, its outlook and the proof on the right."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gradio as gr
from gradio.components import Component

from indextts.commands.app import ProveSetup
from indextts.commands.launching import Launch
from indextts.commands.terminal import to_argv
from indextts.commands.train import Train
from indextts.projects.jobs.starting import PROOF_JOB
from indextts.projects.project import Project, ProjectSettings, read_project
from indextts.projects.proof import NAME, Check
from indextts.runs.directory import checkpoint_files
from indextts.system.json_lines import json_lines_if_any
from indextts.webui.devices import chosen_recognizers
from indextts.webui.events import on
from indextts.webui.language import t, text_of
from indextts.webui.layout import columns, heading, labelled
from indextts.webui.markup import meter_html
from indextts.webui.page import EVERY_TAB, Page
from indextts.webui.run_progress import duration, progress_of, read_run
from indextts.webui.running.outlook import Notice, Outlook, Start, missing, outlook_html
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.training.resume_card import ResumeCard, answer_html
from indextts.webui.training.settings_form import SettingsForm, connect_settings
from indextts.webui.training.starting import ask_trainer, command_of, launch_in, prepare
from indextts.webui.training.training_form import chosen_resume, store_resume
from indextts.webui.view_versions import files_version

MONITOR = ("#monitor", "training.open_monitor")
ONWARD = {
    "running": MONITOR,
    "stopping": MONITOR,
    "stopped": MONITOR,
    "failed": MONITOR,
    "finished": ("#listen", "training.open_listen"),
}


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
