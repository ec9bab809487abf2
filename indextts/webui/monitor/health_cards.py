"""Health of the run in tab 7: a card for each problem and each warning, and the words of the tile."""

import time
from collections.abc import Sequence
from functools import lru_cache
from html import escape

import gradio as gr

from indextts.projects.project import Project
from indextts.runs.health.checks import CHECKS, check_health
from indextts.runs.health.observed import Finding, Level
from indextts.webui.language import t, text_of
from indextts.webui.markup import UNKNOWN, Tile
from indextts.webui.metrics_reader import read_run
from indextts.webui.page import Page
from indextts.webui.view_versions import files_version

SECTION = "monitor-health"
WORDS: dict[Level, str] = {"problem": "monitor.severity.problem", "warning": "monitor.severity.warning"}
FOUND: dict[Level, str] = {"problem": "monitor.problems", "warning": "monitor.warnings"}
DISK_INTERVAL_S = 60


def build(page: Page) -> None:
    cards = gr.HTML(elem_id=SECTION)
    page.watch(version, lambda project: cards_html(findings(project)), [cards])


def version(project: Project) -> str:
    """Return a version that changes with metrics and settings, and every minute for the disk."""
    files = [project.run_dir / name for name in ("metrics.jsonl", "config.json", "exit.json")]
    return f"{files_version(*files)} {time.time() // DISK_INTERVAL_S}"


def findings(project: Project) -> Sequence[Finding]:
    """Return the findings of a project's run, problems first; only new lines are read."""
    return _checked(project, version(project))


@lru_cache(maxsize=8)  # the tile and the cards of several open pages show the same
def _checked(project: Project, _version: str) -> Sequence[Finding]:
    lines = read_run(project.run_dir)
    return tuple(check_health(project.run_dir, lines)) if lines else ()


def health_tile(project: Project) -> Tile:
    """Return the number of problems and warnings, as a link to the cards."""
    found = findings(project)
    numbers = {level: sum(each.level == level for each in found) for level in FOUND}
    words = [t(FOUND[level], number=number) for level, number in numbers.items() if number]
    if not words and not read_run(project.run_dir):
        return Tile(t("monitor.tiles.health"), UNKNOWN)  # nothing is checked before the first line
    if not words:
        return Tile(
            t("monitor.tiles.health"), t("monitor.all_well"), t("monitor.num_checks", number=len(CHECKS))
        )
    value, remark = words[0], " ".join(words[1:])
    return Tile(
        t("monitor.tiles.health"),
        value,
        remark,
        "bad" if numbers["problem"] else "warn",
        f"#monitor/{SECTION}",
    )


def cards_html(found: Sequence[Finding]) -> str:
    """Return the cards; empty without findings."""
    return f'<div class="cards">{"".join(map(card_html, found))}</div>' if found else ""


def card_html(finding: Finding) -> str:
    """Return a finding as HTML; its values come from files of the run, so everything is escaped."""
    what, evidence, advice = (escape(text_of(text)) for text in finding.texts)
    return (
        f'<div class="health {finding.level}" data-check="{escape(finding.check)}">'
        f"<p><strong>{escape(t(WORDS[finding.level]))}: {what}</strong></p>"
        f"<p>{evidence}</p><p><strong>{escape(t('monitor.recommended_action'))}</strong> {advice}</p></div>"
    )
