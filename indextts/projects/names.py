"""Names of projects: a title to read and a folder name.

title    any text on one line, also Amharic or with spaces; in project.json, "" for the folder name
folder   ASCII, the name of the project in addresses, flags and links; never changes
"""

import re
import unicodedata
from pathlib import Path

from indextts.errors import UserError
from indextts.projects.project import PUBLISHED_FOLDERS, Project, is_title, project_names, read_project

MAX_FOLDER_CHARS = 40
ETHIOPIC = "ETHIOPIC SYLLABLE "  # its Unicode name ends with the syllable in Latin letters: "SE"
UNNAMED = "project"


def title_of(project: Project) -> str:
    """Return the title of a project, its folder name if it has none or its project.json is corrupt."""
    try:
        title = read_project(project).title
    except UserError:
        return project.root.name
    return title if is_title(title) else project.root.name


def titled_projects(workspace: Path) -> list[tuple[str, str]]:
    """Return title and folder name of each project; equal titles have the folder name behind them."""
    names = project_names(workspace)
    titles = [title_of(Project(workspace / name)) for name in names]
    return [
        (title if titles.count(title) == 1 else f"{title} ({name})", name)
        for title, name in zip(titles, names, strict=True)
    ]


def folder_name(title: str, workspace: Path) -> str:
    """Return a folder name for a title that nothing in the workspace has yet."""
    slug = re.sub(r"[^a-z0-9]+", "-", "".join(map(_latin, title)).lower()).strip("-")
    slug = slug[:MAX_FOLDER_CHARS].strip("-") or UNNAMED
    taken = {path.name.lower() for path in workspace.iterdir()} if workspace.is_dir() else set()
    numbered = (f"{slug}-{number}" for number in range(2, len(taken) + 4))
    return next(name for name in (slug, *numbered) if name not in taken and name not in PUBLISHED_FOLDERS)


def _latin(letter: str) -> str:
    """Return a letter in ASCII: without its accent, an Ethiopic syllable as its Unicode name spells it."""
    name = unicodedata.name(letter, "")
    if name.startswith(ETHIOPIC):
        return name.split()[-1]
    plain = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return plain or ("" if unicodedata.combining(letter) else " ")
