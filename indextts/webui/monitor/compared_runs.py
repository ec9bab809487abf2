"""Which runs can be drawn beside a project's own: its older parts, and the runs of the other projects.

A choice is "PROJECT:PART", part 0 for the newest. No Gradio here.
"""

from collections.abc import Sequence
from pathlib import Path

from indextts.projects.project import Project, project_names
from indextts.webui.language import t
from indextts.webui.monitor.charts import ComparedRun, part_of
from indextts.webui.monitor.metrics_reader import RUNS
from indextts.webui.versions import files_version

MAX_COMPARED = 3
PART = "part {part}"


def comparable(workspace: Path, name: str) -> list[tuple[str, str]]:
    """Return label and choice of each run that can be drawn beside that of the project `name`."""
    parts = sorted({line["part"] for line in RUNS.of(Project(workspace / name).run_dir).read()})
    older = [(t(PART, part=part), f"{name}:{part}") for part in parts[:-1]]
    others = [
        (other, f"{other}:0")
        for other in project_names(workspace)
        if other != name and (Project(workspace / other).run_dir / "metrics.jsonl").is_file()
    ]
    return older + others


def runs_version(workspace: Path, project: Project) -> str:
    """Return a word that changes when a run begins in any project, or a new part of the project's own."""
    runs = (Project(workspace / name).run_dir / "config.json" for name in project_names(workspace))
    lines = RUNS.of(project.run_dir).read()
    return f"{files_version(*runs)} {lines[-1]['part'] if lines else 0}"


def compared(workspace: Path, name: str, chosen: Sequence[str] | None) -> list[ComparedRun]:
    """Return the chosen runs, named as `comparable` names them, at most MAX_COMPARED.

    What is in no list is left out: after a change of the project a page asks once for what it had chosen.
    """
    labels = {choice: label for label, choice in comparable(workspace, name)} if chosen else {}
    found = []
    for choice in [choice for choice in chosen or [] if choice in labels][:MAX_COMPARED]:
        project, part = choice.rsplit(":", 1)
        lines = RUNS.of(Project(workspace / project).run_dir).read()
        found.append(ComparedRun(labels[choice], part_of(lines, int(part)) if part != "0" else lines))
    return found
