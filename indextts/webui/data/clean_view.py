"""Cleaning section of tab 2: remove noise and music from the clips that the check flagged.

One job cleans the clips and checks the data again. The review plays a cleaned clip before and after.
"""

import shutil
from collections.abc import Sequence
from functools import partial

from indextts.commands.base import Command
from indextts.commands.data import CleanAudio
from indextts.data.cleaned import CLEANED_NAME, INSTALL, METHOD_OF, missing_packages, read_cleaned
from indextts.data.quality.summary import OVERVIEW_NAME, read_overview
from indextts.data.review import check_folder
from indextts.projects.jobs.starting import CLEAN_JOB
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.stages import plan_check
from indextts.system.amounts import shown_size
from indextts.webui.devices import device_shown, free_device
from indextts.webui.language import t
from indextts.webui.layout import fold
from indextts.webui.page import Page
from indextts.webui.running.job_bar import job_bar
from indextts.webui.running.outlook import Notice, Outlook
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.view_versions import files_version

START = "#data/clean-start"
CHECK = "#data/check-start"
REVIEW = "#data/data-tab-review"
ONWARD = {"finished": (REVIEW, "data.open_cleaned"), "failed": (REVIEW, "data.open_review")}
DOING = {"Cleaning": "data.doing.cleaning"}


def build(page: Page) -> None:
    """Build the run panel in a fold."""
    with fold(t("data.clean_heading"), "check-clean"):
        stage = Stage(
            CLEAN_JOB,
            "data.clean",
            partial(clean_commands, page),
            outlook=partial(clean_outlook, page),
            outlook_version=flagged_version,
            progress=lambda project: job_bar(project, CLEAN_JOB, DOING),
            onward=ONWARD,
        )
        stage_panel(page, stage)


def flagged_version(project: Project) -> str:
    """Return a version that changes with the flags of the check and with what was cleaned."""
    overview = check_folder(project.manifest) / OVERVIEW_NAME
    return files_version(project.manifest, overview, project.dataset / CLEANED_NAME)


def num_flags(project: Project) -> int | None:
    """Return the number of flags that cleaning may remove; None before a check."""
    overview = read_overview(check_folder(project.manifest))
    if overview is None:
        return None
    return sum(reason.count for reason in overview.reasons if reason.name in METHOD_OF)


def clean_commands(page: Page, project: Project, settings: ProjectSettings) -> list[Command]:
    """Return the commands: clean the flagged clips, and check again."""
    clean = CleanAudio(manifest=project.manifest, device=free_device(page.workspace))
    return [clean, plan_check(project, settings)]


def clean_outlook(
    page: Page, project: Project, _settings: ProjectSettings, planned: Sequence[Command]
) -> Outlook:
    """Return how many flags there are, and what prevents the cleaning."""
    count = num_flags(project)
    if count is None:
        return Outlook(blockers=[Notice(t("data.not_checked"), CHECK, t("data.start_check"), kind="missing")])
    cleaned = read_cleaned(project.manifest).values()
    num_used = sum(bool(record["is_used"]) for record in cleaned)
    command, _ = planned
    assert isinstance(command, CleanAudio)
    facts = [
        (t("data.facts.flags"), f"{count:,}"),
        (t("data.facts.cleaned"), t("data.facts.cleaned_of", count=num_used, total=len(cleaned))),
        (t("listen.device"), device_shown(page.workspace, command.device)),
        (t("data.facts.free"), shown_size(shutil.disk_usage(project.root).free)),
    ]
    blockers = []
    if missing := missing_packages():
        text = t("data.clean_install", packages=", ".join(missing), command=INSTALL)
        blockers.append(Notice(text, kind="missing"))
    elif not count:
        blockers.append(Notice(t("data.nothing_to_clean"), kind="finished"))
    return Outlook(facts, blockers=blockers)
