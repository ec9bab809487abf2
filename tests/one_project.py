"""A page for tests that draw nothing."""

from indextts.projects.project import Project
from indextts.webui.page import Page


class OneProject(Page):
    """A page whose only project is given; nothing of it is drawn."""

    def __init__(self, project: Project) -> None:
        self.project_of_test = project

    def find_project(self, name: str | None) -> Project:
        return self.project_of_test
