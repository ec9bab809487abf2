"""A page for tests that draw nothing."""

from indextts.projects.project import Project
from indextts.webui.page import Page
from indextts.webui.serving.security import Roots


class OneProject(Page):
    """A page whose only project is given; nothing of it is drawn."""

    def __init__(self, project: Project) -> None:
        self.project_of_test = project
        # fields of a frozen class
        object.__setattr__(self, "workspace", project.root.parent)
        object.__setattr__(self, "roots", Roots(project.root.parent))

    def find_project(self, name: str | None) -> Project:
        return self.project_of_test
