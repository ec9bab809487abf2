"""What a job computes with: its device, and the speech recognizers that a user typed. No Gradio here."""

from pathlib import Path

from indextts.commands.base import REPOSITORY_NAME, Device
from indextts.planning.hardware import find_machine
from indextts.projects.project import REPOSITORY, Project, project_names
from indextts.runs.owner import is_training
from indextts.webui.language import t
from indextts.webui.serving.security import Roots


def is_training_anywhere(workspace: Path) -> bool:
    """Return whether a trainer runs in any project, whatever started it."""
    return any(is_training(Project(workspace / name).run_dir) for name in project_names(workspace))


def free_device(workspace: Path, chosen: Device = "auto") -> Device:
    """Return the device for a job; an automatic one is the CPU while a trainer has the GPU for itself.

    The programs themselves know only the run of their checkpoint.
    """
    return "cpu" if chosen == "auto" and is_training_anywhere(workspace) else chosen


def device_shown(workspace: Path, device: Device) -> str:
    gpu = find_machine().gpu
    if device == "cpu":
        return t("listen.cpu_while_training" if gpu and is_training_anywhere(workspace) else "listen.cpu")
    if gpu is not None:
        return gpu.name
    return t("listen.cpu") if device == "auto" else device


def chosen_recognizers(roots: Roots, typed: str | None) -> list[str]:
    """Return `--asr` for typed folders or models of the hub; a UserError for a folder that is not allowed."""
    lines = [line.strip() for line in (typed or "").splitlines() if line.strip()]
    return [_chosen(roots, line) for line in lines]


def _chosen(roots: Roots, line: str) -> str:
    # A job takes a name that is a folder of the program for that folder.
    is_folder = not REPOSITORY_NAME.fullmatch(line) or any(
        (folder / line).is_dir() for folder in (roots.workspace, REPOSITORY)
    )
    return str(roots.inside(line, t("listen.a_recognizer"))) if is_folder else line
