"""Tab 7: progress, charts, health and checkpoints of the current or last run."""

import html
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import gradio as gr

from indextts.commands.app import ServeTensorboard
from indextts.errors import UserError
from indextts.projects.jobs.starting import TENSORBOARD_JOB
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.tensorboard import live_port
from indextts.webui.data.review_list import playable
from indextts.webui.language import t
from indextts.webui.layout import fold
from indextts.webui.listen.renders import SPOKEN_NAME, Sound, player_html, read_sounds
from indextts.webui.markup import empty_html, sound_html
from indextts.webui.monitor import checkpoint_list, curves_view, status
from indextts.webui.page import Page
from indextts.webui.running.outlook import Start
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.serving.security import file_address
from indextts.webui.view_versions import utterances_of

MAX_STEPS = 8  # the newest; older ones stay on disk and in TensorBoard
FOLDER = re.compile(r"part(\d+)_step(\d+)")


def build(page: Page) -> None:
    status.build_empty(page)
    with gr.Column(elem_id=status.BODY):
        status.build(page)
        cards = status.build_health(page)
        curves_view.build(page)
        checkpoint_list.build(page, cards)
        with fold(t("monitor.samples"), "monitor-samples-fold"):
            players = gr.HTML(elem_id="monitor-samples")
        with fold(t("monitor.machine"), "monitor-machine-fold"):
            status.build_machine(page)
        with fold(t("monitor.tensorboard"), "tensorboard"):
            build_tensorboard(page)

    def version(project: Project) -> str:
        # by names only, because redrawing a player stops it
        return " ".join(folder.name for folder in sample_folders(project.run_dir))

    def shown(project: Project) -> str:
        return samples_html(sample_folders(project.run_dir), recordings_of(project))

    page.watch(version, shown, [players])


def sample_folders(run_dir: Path) -> list[Path]:
    """Return the newest complete samples of a run, in the order of parts and steps."""
    folders = [
        (match, path.parent) for path in run_dir.glob(f"samples/*/{SPOKEN_NAME}") if (match := _place(path))
    ]
    return [folder for _, folder in sorted(folders)][-MAX_STEPS:]


def recordings_of(project: Project) -> dict[str, Path]:
    """Return the recordings of the held-out sentences that can be played, by their texts."""
    with suppress(UserError):  # preprocessed elsewhere, or again at this moment
        found = (
            (clip.text, playable(project, clip.audio)) for clip in utterances_of(project.utterances("val"))
        )
        return {text: path for text, path in found if path is not None}
    return {}


def samples_html(folders: list[Path], recordings: Mapping[str, Path]) -> str:
    """Return the players of each sentence, its recording and along the steps, or why there are none."""
    by_text: dict[str, list[Sound]] = {}
    for folder in folders:
        for sound in read_sounds(folder):
            by_text.setdefault(sound.spoken.text, []).append(sound)
    rows = []
    for text, sounds in by_text.items():
        players = [*map(player_html, sounds)]
        if path := recordings.get(text):
            title = html.escape(t("demo.sound_of.recording"))
            players.insert(
                0, f'<div class="player">{sound_html(file_address(path))}<span>{title}</span></div>'
            )
        rows.append(f'<p class="lead">{html.escape(text)}</p><div class="samples">{"".join(players)}</div>')
    return "".join(rows) or empty_html(t("monitor.no_samples"))


def _place(path: Path) -> tuple[int, int] | None:
    match = FOLDER.fullmatch(path.parent.name)
    return (int(match[1]), int(match[2])) if match else None


FRAME = (
    '<iframe src="tensorboard/{project}/" title="TensorBoard" id="tensorboard-frame" loading="lazy"></iframe>'
)


def build_tensorboard(page: Page) -> None:
    stage_panel(page, Stage(TENSORBOARD_JOB, "monitor.start_tensorboard", prepare))
    frame = gr.HTML(t("monitor.tensorboard_help"), elem_id="tensorboard-page")
    # separate from the status, because reloading the frame loses its settings
    page.watch(port_version, frame_of, [frame])


def prepare(project: Project, _settings: ProjectSettings | None = None) -> Start:
    """Return the command that serves the event files of the run; a UserError without any."""
    folder = project.run_dir / "logs"
    if not folder.is_dir():
        raise UserError(t("monitor.no_events", folder=folder))
    prefix = f"/tensorboard/{project.root.name}"
    address = project.tensorboard_address
    return Start([ServeTensorboard(logdir=folder, address_file=address, path_prefix=prefix)])


def frame_of(project: Project) -> str:
    if live_port(project.tensorboard_address) is None:
        return t("monitor.tensorboard_help")
    return FRAME.format(project=html.escape(project.root.name))


def port_version(project: Project) -> str:
    return str(live_port(project.tensorboard_address))
