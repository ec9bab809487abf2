"""What every tab is given: the chosen project, the clock, and the way from a name to a project.

The page keeps nothing in memory: every view is made from the disk, so that a reload, a second browser or a
restart of the page shows the same.
"""

from dataclasses import dataclass
from pathlib import Path

import gradio as gr

from indextts.errors import UserError
from indextts.project import Project, ProjectSettings, read_project
from indextts.webui.security import Roots

TICK_S = 2.0


@dataclass(frozen=True)
class Page:
    """The components that all tabs share.

    Args:
        project: its value is the name of the chosen project; an input of every handler.
        timer: ticks every TICK_S, for what is shown of running jobs.
    """

    demo: gr.Blocks
    project: gr.Dropdown
    timer: gr.Timer
    workspace: Path
    roots: Roots

    def find_project(self, name: str | None) -> Project:
        """Return the project of that name.

        Raises:
            UserError: there is none.
        """
        if not name or name not in project_names(self.workspace):
            raise UserError(f"there is no project {name!r}; choose or make one in the tab Project")
        return Project(self.workspace / name)

    def find_settings(self, name: str | None) -> ProjectSettings:
        """Return what the project was made with."""
        return read_project(self.find_project(name))


def project_names(workspace: Path) -> list[str]:
    """Return the projects of the workspace, the demo last."""
    names = [path.parent.name for path in workspace.glob("*/project.json")]
    return sorted(names, key=lambda name: (name == "demo", name))
