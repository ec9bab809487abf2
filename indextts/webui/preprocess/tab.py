"""Tab 4: encode recordings as features, with a progress bar."""

import shutil
from typing import Any

from indextts.commands.data import Preprocess as PreprocessCommand
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.stages import plan_stage
from indextts.system.amounts import shown_size
from indextts.webui.forms import fields_from, form_for, kept_form
from indextts.webui.language import t, t_or
from indextts.webui.layout import columns, fields, heading
from indextts.webui.page import Page
from indextts.webui.run_progress import job_bar
from indextts.webui.running.outlook import Outlook, Start, missing
from indextts.webui.running.panel import CONTINUE, Stage, stage_panel
from indextts.webui.view_versions import num_lines

FIELDS = ("backend", "val_ratio", "val_speakers", "seed", "device")
DOING = {
    "Checking recordings": "preprocess.doing.checking_recordings",
    "Encoding": "preprocess.doing.encoding",
}


def build(page: Page) -> None:
    with columns() as (main, side):
        with main:
            heading("preprocess.heading", "preprocess.lead")
            with fields():
                form = form_for(PreprocessCommand, FIELDS)
            inputs = list(form.values())
            filled_for = kept_form(page, "preprocess", PreprocessCommand, FIELDS, inputs)
        with side:
            stage = Stage(
                "preprocess",
                "preprocess.preprocess",
                prepare,
                inputs,
                progress=lambda project: job_bar(project, "preprocess", DOING),
                onward=CONTINUE,
                filled_for=filled_for,
            )
            stage_panel(page, stage)


def prepare(project: Project, settings: ProjectSettings, *values: Any) -> Start:
    """Return the command, with the encoder, number of utterances, earlier output and free disk space."""
    asked = settings.with_fields("preprocess", **fields_from(PreprocessCommand, FIELDS, values))
    commands = plan_stage(project, asked, "preprocess").commands
    backend = next(each.backend for each in commands if isinstance(each, PreprocessCommand))
    encoder = t_or(f"preprocess.encoders.{backend}", t("preprocess.encoders.unknown"))
    facts = [(t("preprocess.encoder"), encoder)]
    count = num_lines(project.manifest)
    if count is not None:
        facts.append((t("preprocess.utterances"), f"{count:,}"))
    made = [num_lines(project.utterances(split)) for split in ("train", "val")]
    if made[0] is not None and made[1] is not None:
        facts.append(
            (t("preprocess.made"), t("preprocess.made_count", train=f"{made[0]:,}", val=f"{made[1]:,}"))
        )
    facts.append((t("preprocess.free"), shown_size(shutil.disk_usage(project.root).free)))
    blockers = missing(project.manifest, "preprocess.no_manifest", "data")
    return Start(commands, outlook=Outlook(facts, blockers))
