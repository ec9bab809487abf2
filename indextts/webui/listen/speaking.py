"""Synthesis section of tab 8: type a text, choose a voice and one or two checkpoints, and listen.

A checkpoint always uses its own tokenizer. The players read the disk (renders.py).
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.utils import get_upload_folder

from indextts.commands.base import Command
from indextts.commands.data import Preprocess
from indextts.commands.sampling_options import Sampling
from indextts.commands.speech import Synthesize
from indextts.errors import UserError
from indextts.projects.jobs.records import newest_job
from indextts.projects.project import Project, ProjectSettings, project_names
from indextts.text.normalize import normalize
from indextts.webui.data.uploads import store_voice
from indextts.webui.events import on
from indextts.webui.forms import fields_from, form_for, with_choices
from indextts.webui.language import t
from indextts.webui.listen.renders import SIDES, Render, Sound, newest_render, next_folder, vote_on
from indextts.webui.listen.saved_models import (
    UPLOAD,
    choices,
    find_recording,
    names,
    normalizer_of,
    voice_choices,
)
from indextts.webui.page import Page, follow_shared_choice
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.serving.security import file_address
from indextts.webui.view_versions import files_version, job_version

STAGE = "listen"
SETTINGS = (*Sampling.model_fields, "device", "solver_steps", "guidance", "emotion", "emotion_alpha")
MAX_TEXTS = 100
MAX_CHARS = 20_000
NO_CHOICE = ""

NOTHING = "listen.no_other"
SAME_AS_VOICE = "listen.same_as_voice"
VOTE_FIRST = "listen.vote_first"
SILENT = "listen.silent"
SOUND = "listen.sound"
SOUND_CUT = "listen.sound_cut"
DOWNLOAD = "listen.download"
NO_CHECKPOINT = "listen.no_checkpoint"
NO_TEXT = "listen.text_empty"
TOO_LONG = "listen.too_long"
TOO_MANY = "listen.too_many"


@dataclass(frozen=True)
class Speaking:
    """Components that the comparison also changes."""

    players: gr.HTML


def build(page: Page) -> Speaking:
    """Build the form, the job panel and the players."""
    text = gr.Textbox("ሰላም ለዓለም።", label=t("listen.lines"), lines=4, elem_id="listen-text")
    spoken = gr.Textbox(label=t("listen.spoken_form"), lines=2, interactive=False, elem_id="listen-spoken")
    with gr.Row():
        checkpoint = gr.Dropdown(
            [], label=t("listen.checkpoint"), info=t("listen.checkpoint_help"), elem_id="listen-checkpoint"
        )
        other = gr.Dropdown(
            [],
            label=t("listen.compare_with"),
            info=t("listen.compare_with_help"),
            elem_id="listen-other",
        )
    with gr.Row():
        voice = gr.Dropdown([], label=t("listen.voice"), elem_id="listen-voice")
        emotion = gr.Dropdown([], label=t("listen.emotion_of"), elem_id="listen-emotion")
        upload = gr.File(
            label=t("listen.upload_voice"),
            file_count="single",
            height=110,
            elem_id="voice-upload",
        )
    with gr.Accordion(t("listen.settings"), open=False, elem_id="listen-settings"), gr.Row():
        form = form_for(Synthesize, SETTINGS)
    follow_shared_choice(page, "listen", choices, checkpoint)
    inputs = [text, voice, emotion, checkpoint, other, *form.values()]

    def commands(project: Project, settings: ProjectSettings, *values: Any) -> Sequence[Command]:
        return speak_commands(page, project, settings, *values)

    filled_for = page.fill(lambda name, _before: project_settings(page, name), list(form.values()))
    stage_panel(page, Stage(STAGE, t("listen.speak"), commands, inputs, filled_for=filled_for))
    players = gr.HTML(elem_id="listen-players")

    page.watch(
        lambda project: files_version(project.run_dir),
        lambda name, *now: checkpoint_choices(page, name, *now),
        [checkpoint, other],
        [checkpoint, other],
    )
    page.watch(
        lambda project: files_version(project.manifest, project.listen / "voices"),
        lambda name, *now: known_voices(page, name, *now),
        [voice, emotion],
        [voice, emotion],
    )
    on(
        [upload.upload],
        lambda *v: store_uploaded_voice(page, *v),
        [page.project, upload, emotion],
        [upload, voice, emotion],
    )
    on(
        [page.demo.load, page.project.change, text.change, checkpoint.change],
        lambda name, typed, chosen: read_as(page, name, typed, chosen),
        [page.project, text, checkpoint],
        [spoken],
        latest=True,
    )
    page.watch(spoken_version, lambda name: show_players(page, name), [players])
    return Speaking(players)


def speak_commands(
    page: Page,
    project: Project,
    settings: ProjectSettings,
    typed: str,
    voice: str | None,
    emotion: str | None,
    checkpoint: str | None,
    other: str | None,
    *values: Any,
) -> list[Command]:
    """Return a command for each chosen checkpoint, with the same texts, voice, settings and seed.

    Raises:
        UserError: a choice is missing, or the text is empty or too long.
    """
    chosen = [checkpoint, *([other] if other else [])]
    known = names(project)
    if not all(name in known for name in chosen):
        raise UserError(t(NO_CHECKPOINT))
    folder = next_folder(project.listen)
    fields: dict[str, Any] = {
        "text": texts_in(typed),
        "voice": str(find_recording(project, voice, page.roots)),
        "emotion_voice": find_recording(project, emotion, page.roots) if emotion else None,
        "features": project.preprocessed / "features",
        "models": settings.base,
        **changed(fields_from(Synthesize, SETTINGS, values), backend_of(settings)),
    }
    if fields.get("device", "auto") == "auto" and is_training_anywhere(page.workspace):
        fields["device"] = "cpu"  # the program itself only knows the run of its checkpoint
    return [
        Synthesize(checkpoint=project.run_dir / str(name), output=folder / side, **fields)
        for name, side in zip(chosen, SIDES, strict=False)
    ]


def is_training_anywhere(workspace: Path) -> bool:
    """Return whether a training job of the page runs in any project."""
    jobs = [newest_job(Project(workspace / name), "train") for name in project_names(workspace)]
    return any(job is not None and job.is_active for job in jobs)


def texts_in(typed: str) -> list[str]:
    """Return the non-empty lines.

    Raises:
        UserError: there are none, or too many.
    """
    if len(typed) > MAX_CHARS:
        raise UserError(t(TOO_LONG, count=len(typed), most=MAX_CHARS))
    texts = [line.strip() for line in typed.splitlines() if line.strip()]
    if not texts:
        raise UserError(t(NO_TEXT))
    if len(texts) > MAX_TEXTS:
        raise UserError(t(TOO_MANY, count=len(texts), most=MAX_TEXTS))
    return texts


def project_settings(page: Page, name: str) -> list[Any]:
    """Return the default settings for the codes of a project."""
    defaults = default_settings(backend_of(page.find_settings(name)))
    return [defaults[field] for field in SETTINGS]


def backend_of(settings: ProjectSettings) -> str:
    """Return the speech backend of a project's features."""
    return str(settings.preprocess.get("backend", Preprocess.model_fields["backend"].default))


def default_settings(backend: str) -> dict[str, Any]:
    """Return the default settings for the codes of a backend."""
    sampling = Sampling.of_backend(backend, {}).model_dump()
    return {field: sampling.get(field, Synthesize.model_fields[field].default) for field in SETTINGS}


def changed(fields: dict[str, Any], backend: str) -> dict[str, Any]:
    """Return the fields that differ from the defaults."""
    defaults = default_settings(backend)
    return {name: value for name, value in fields.items() if value != defaults[name]}


def checkpoint_choices(page: Page, name: str, now: str | None, other: str | None) -> tuple[Any, Any]:
    """Return the available checkpoints for both dropdowns; the selection stays."""
    found = choices(page.find_project(name))
    return with_choices(found, now), with_choices([(t(NOTHING), NO_CHOICE), *found], other)


def known_voices(page: Page, name: str, now: str | None, emotion: str | None) -> tuple[Any, Any]:
    """Return the available voices for voice and emotion; the selection stays."""
    found = voice_choices(page.find_project(name))
    return with_choices(found, now), with_choices([(t(SAME_AS_VOICE), NO_CHOICE), *found], emotion)


def store_uploaded_voice(
    page: Page, name: str, path: str | None, emotion: str | None
) -> tuple[Any, Any, Any]:
    """Store an uploaded voice and select it."""
    project = page.find_project(name)
    if not path:
        return gr.skip(), gr.skip(), gr.skip()
    taken = store_voice(project, path, Path(get_upload_folder()))
    found = voice_choices(project)
    chosen = gr.Dropdown(choices=found, value=UPLOAD + taken.name)
    return None, chosen, with_choices([(t(SAME_AS_VOICE), NO_CHOICE), *found], emotion)


def read_as(page: Page, name: str, typed: str, checkpoint: str | None) -> str:
    """Return the lines in spoken form, as the tokenizer of the checkpoint reads them."""
    options = normalizer_of(page.find_project(name), checkpoint)
    lines = typed[:MAX_CHARS].splitlines()[:MAX_TEXTS]
    return "\n".join(normalize(line, options) for line in lines if line.strip())


def spoken_version(project: Project) -> str:
    """Return a version that changes with every render and vote."""
    return f"{job_version(project, STAGE)} {files_version(project.listen)}"


def show_players(page: Page, name: str) -> Any:
    """Return the players of the newest render; a comparison shows only texts with a vote."""
    project = page.find_project(name)
    job = newest_job(project, STAGE)
    render = newest_render(project)
    if job is not None and job.is_active:
        return gr.skip()
    return "" if render is None else players_html(project, render)


def players_html(project: Project, render: Render) -> str:
    """Return a row for each text: the spoken form, and a player with a download for each model."""
    rows = []
    for number, sounds in enumerate(zip(*render.sides, strict=True), 1):
        if render.is_comparison and vote_on(project, render, number) is None:
            rows.append(f"<p>{number}. {html.escape(t(VOTE_FIRST, text=sounds[0].spoken.text))}</p>")
            continue
        heard = "".join(map(player_html, sounds))
        title = f"{number}. {html.escape(sounds[0].spoken.spoken)}"
        rows.append(f"<p style='margin-top:8px'>{title}</p>{heard}")
    return "".join(rows)


def player_html(sound: Sound) -> str:
    """Return a player for a file; the modification time in its URL makes browsers load a new version."""
    model = sound.spoken.model
    if sound.path is None:
        return f"<div>{html.escape(t(SILENT, model=model))}</div>"
    address = file_address(sound.path)
    caption = t(SOUND if sound.spoken.has_stopped else SOUND_CUT, model=model, seconds=sound.spoken.seconds)
    return (
        f'<div style="display:flex;align-items:center;gap:12px">'
        f'<audio controls preload="metadata" src="{address}"></audio>'
        f"<span>{html.escape(caption)}</span>"
        f'<a href="{address}" download>{html.escape(t(DOWNLOAD))}</a></div>'
    )
