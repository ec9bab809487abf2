"""Speech recognizers that a user types on the page: folders, or models of the hub."""

from indextts.commands.base import REPOSITORY_NAME
from indextts.projects.project import REPOSITORY
from indextts.webui.language import t
from indextts.webui.serving.security import Roots


def chosen_recognizers(roots: Roots, typed: str | None) -> list[str]:
    """Return the value of `--asr` for typed lines.

    Raises:
        UserError: a folder is outside the allowed folders.
    """
    lines = [line.strip() for line in (typed or "").splitlines() if line.strip()]
    return [_chosen(roots, line) for line in lines]


def _chosen(roots: Roots, line: str) -> str:
    # A job takes a name that is a folder of the program for that folder.
    is_folder = not REPOSITORY_NAME.fullmatch(line) or any(
        (folder / line).is_dir() for folder in (roots.workspace, REPOSITORY)
    )
    return str(roots.inside(line, t("listen.a_recognizer"))) if is_folder else line
