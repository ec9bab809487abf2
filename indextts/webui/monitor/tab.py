"""Tab 7: progress, charts, health and checkpoints of the current or last run."""

import html
import re
from pathlib import Path

import gradio as gr

from indextts.projects.project import Project
from indextts.webui.language import t
from indextts.webui.layout import fold
from indextts.webui.listen.players import player_html
from indextts.webui.listen.renders import SPOKEN_NAME, Sound, read_sounds
from indextts.webui.markup import empty_html
from indextts.webui.monitor import checkpoint_list, curves_view, health_cards, status, tensorboard_view
from indextts.webui.page import Page

MAX_STEPS = 8  # the newest; older ones stay on disk and in TensorBoard
FOLDER = re.compile(r"part(\d+)_step(\d+)")


def build(page: Page) -> None:
    status.build_empty(page)
    with gr.Column(elem_id=status.BODY):
        status.build(page)
        curves_view.build(page)
        health_cards.build(page)
        checkpoint_list.build(page)
        with fold(t("monitor.samples"), "monitor-samples-fold"):
            players = gr.HTML(elem_id="monitor-samples")
        with fold(t("monitor.machine"), "monitor-machine-fold"):
            status.build_machine(page)
        with fold(t("monitor.tensorboard"), "tensorboard"):
            tensorboard_view.build(page)

    def version(project: Project) -> str:
        # by names only, because redrawing a player stops it
        return " ".join(folder.name for folder in sample_folders(project.run_dir))

    page.watch(version, lambda project: samples_html(sample_folders(project.run_dir)), [players])


def sample_folders(run_dir: Path) -> list[Path]:
    """Return the newest complete samples of a run, in the order of parts and steps."""
    folders = [
        (match, path.parent) for path in run_dir.glob(f"samples/*/{SPOKEN_NAME}") if (match := _place(path))
    ]
    return [folder for _, folder in sorted(folders)][-MAX_STEPS:]


def samples_html(folders: list[Path]) -> str:
    """Return the players of each sentence along the steps, or why there are none."""
    by_text: dict[str, list[Sound]] = {}
    for folder in folders:
        for sound in read_sounds(folder):
            by_text.setdefault(sound.spoken.text, []).append(sound)
    rows = [
        f'<p class="lead">{html.escape(text)}</p>' + "".join(map(player_html, sounds))
        for text, sounds in by_text.items()
    ]
    return "".join(rows) or empty_html(t("monitor.no_samples"))


def _place(path: Path) -> tuple[int, int] | None:
    match = FOLDER.fullmatch(path.parent.name)
    return (int(match[1]), int(match[2])) if match else None
