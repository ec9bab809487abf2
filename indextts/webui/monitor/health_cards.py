"""Health section of tab 7: a card for each problem of the run."""

import time
from html import escape

import gradio as gr

from indextts.projects.project import Project
from indextts.runs.health.checks import CHECKS, check_health
from indextts.runs.health.observed import Finding, Level
from indextts.webui.language import t
from indextts.webui.monitor.metrics_reader import RUNS
from indextts.webui.page import Page
from indextts.webui.view_versions import files_version

WORDS: dict[Level, str] = {"problem": "monitor.severity.problem", "warning": "monitor.severity.warning"}
HEALTHY = "monitor.healthy"
NO_RUN = "monitor.no_run"
RECOMMENDED_ACTION = "monitor.recommended_action"
DISK_INTERVAL_S = 60


def build(page: Page) -> None:
    cards = gr.HTML(elem_id="monitor-health")
    page.watch(version, lambda name: shown(page.find_project(name)), [cards])


def version(project: Project) -> str:
    """Return a version that changes with metrics and settings, and every minute for the disk."""
    files = [project.run_dir / name for name in ("metrics.jsonl", "config.json", "exit.json")]
    return f"{files_version(*files)} {time.time() // DISK_INTERVAL_S}"


def findings(project: Project) -> list[Finding]:
    """Return the findings of a project's run, problems first; only new lines are read."""
    return check_health(project.run_dir, RUNS.of(project.run_dir).read())


def shown(project: Project) -> str:
    """Return the cards of a project's run."""
    if not RUNS.of(project.run_dir).read():
        return f'<div class="health none">{escape(t(NO_RUN))}</div>'
    found = findings(project)
    if not found:
        return f'<div class="health well">✓ {escape(t(HEALTHY, number=len(CHECKS)))}</div>'
    return "".join(map(card_html, found))


def card_html(finding: Finding) -> str:
    """Return a finding as HTML; its values come from files of the run, so everything is escaped."""
    what, evidence, advice = (
        escape(t(template, **finding.values)) for template in (finding.what, finding.evidence, finding.advice)
    )
    return (
        f'<div class="health {finding.level}" data-check="{escape(finding.check)}">'
        f"<p><strong>{escape(t(WORDS[finding.level]))}: {what}</strong></p>"
        f"<p>{evidence}</p><p><strong>{escape(t(RECOMMENDED_ACTION))}</strong> {advice}</p></div>"
    )
