"""Sub-tab Publish of tab 8: upload the exported model to a private repository on the hub (tools/publish.py).

A repository becomes public only from a terminal or on the hub's own page: who can reach this page must not be
able to publish a voice with the login of this machine.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from indextts.commands.base import REPOSITORY_NAME
from indextts.commands.speech import PublishModel
from indextts.projects.project import Project, ProjectSettings
from indextts.webui.forms import component_for, fields_from, form_for
from indextts.webui.language import field_title, t
from indextts.webui.layout import columns, fields
from indextts.webui.listen.exporting import RECORD
from indextts.webui.listen.scoring import newest_report
from indextts.webui.page import Page
from indextts.webui.running.outlook import LinkedError, Notice, Outlook
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.view_versions import files_version

STAGE = "publish"
FIELDS = ("repository", "base_licence", "statement", "samples")
PATHS = ("base_licence", "samples")


def build(page: Page) -> None:
    """Build the form and the run panel; the log of a dry run shows all files and the card."""
    with columns() as (main, side):
        with main, fields():
            form = list(form_for(PublishModel, FIELDS).values())
            dry_run = component_for(PublishModel, "dry_run", True)
        with side:
            stage = Stage(
                STAGE,
                "listen.publish",
                partial(commands, page),
                [*form, dry_run],
                outlook=outlook,
                outlook_version=lambda project: files_version(project.export, project.scores),
            )
            stage_panel(page, stage)


def commands(page: Page, project: Project, _settings: ProjectSettings, *values: Any) -> list[PublishModel]:
    """Return the command that publishes the project's export with the losses and the newest scores.

    Args:
        values: of FIELDS, then whether it is a dry run.

    Raises:
        UserError: nothing is exported, a field is invalid, or a path is outside the allowed folders.
    """
    given = fields_from(PublishModel, FIELDS, values[:-1])
    for name in PATHS:
        if name in given:
            given[name] = page.roots.inside(given[name], field_title(PublishModel, name))
    if not (project.export / RECORD).is_file():
        raise LinkedError(t("listen.nothing_exported"), "#listen/listen-export", kind="missing")
    if not REPOSITORY_NAME.fullmatch(given.get("repository", "")):
        raise LinkedError(t("listen.no_repository"), "#listen/PublishModel-repository")
    report = newest_report(project)
    scores = {} if report is None else {"evaluation": report}
    return [
        PublishModel(
            model_folder=project.export, run_dir=project.run_dir, dry_run=bool(values[-1]), **scores, **given
        )
    ]


def outlook(_project: Project, _settings: ProjectSettings, planned: Sequence[PublishModel]) -> Outlook:
    """Return what is published, and whether a login is needed."""
    [command] = planned
    facts = [
        (field_title(PublishModel, "repository"), command.repository),
        (field_title(PublishModel, "model_folder"), str(command.model_folder)),
        (field_title(PublishModel, "evaluation"), str(command.evaluation or "-")),
    ]
    return Outlook(
        facts, notes=[Notice(t("listen.sends_nothing" if command.dry_run else "listen.hub_login"))]
    )
