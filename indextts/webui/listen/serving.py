"""Sub-tab Server of tab 8: the speech server (tools/serve.py) with chosen voices, behind a key.

    NAME/server_keys    sha256: and the digest of the key; the page shows the key once, when it creates it

The server listens on this machine only: who can reach this page must not be able to open a port of the
machine to others.
"""

import hashlib
import io
import re
import secrets
from collections.abc import Sequence
from functools import partial
from html import escape
from typing import Any

import gradio as gr

from indextts.commands.speech import Serve
from indextts.errors import disk_errors
from indextts.projects.jobs.records import Job, newest_job
from indextts.projects.project import Project, ProjectSettings
from indextts.system.files import write_bytes
from indextts.webui.devices import device_shown, free_device
from indextts.webui.events import on
from indextts.webui.forms import fields_from, form_for
from indextts.webui.language import t
from indextts.webui.layout import columns, fields, labelled, small_button
from indextts.webui.listen.saved_models import (
    fields_of,
    find_recording,
    kept_choice,
    model_or_best,
    speaker_choices,
)
from indextts.webui.listen.speaking import strength_field, watch_speakers, watch_voices
from indextts.webui.page import Page, follow_shared_choice
from indextts.webui.running.outlook import LinkedError, Notice, Outlook, Start
from indextts.webui.running.panel import Stage, stage_panel

STAGE = "serve"
FIELDS = ("port", "model_name", "requests_per_minute", "max_characters")
KEY_BYTES = 24
ADDRESS = re.compile(rb"\bhttp://\S+/v1$", re.MULTILINE)  # in the first lines of the server's log
HEAD_BYTES = 64 * 1024


def build(page: Page) -> None:
    with columns() as (main, side):
        with main:
            checkpoint = gr.Dropdown([], label=t("listen.checkpoint"), elem_id="serve-checkpoint")
            strength = strength_field(page, checkpoint, "serve-strength")
            voices = gr.Dropdown([], **labelled("listen.voices", "serve-voices"), multiselect=True)
            with fields():
                form = list(form_for(Serve, FIELDS).values())
            key = gr.Textbox(**labelled("listen.key", "serve-key"), interactive=False, buttons=["copy"])
            new_key = small_button("listen.new_key", "serve-new-key")
        with side:
            stage = Stage(
                STAGE,
                "listen.start_server",
                partial(prepare, page),
                [checkpoint, strength, voices, *form],
                progress=lambda project: address_html(newest_job(project, STAGE)),
            )
            stage_panel(page, stage)
    on([new_key.click], create_key, [page.project], [key])
    on([page.project.change], lambda _project: "", [page.project], [key])
    follow_shared_choice(page, "listen", speaker_choices, kept_choice, checkpoint, opens=False)
    watch_speakers(page, [checkpoint])
    watch_voices(page, voices)


def prepare(
    page: Page,
    project: Project,
    settings: ProjectSettings,
    checkpoint: str | None,
    strength: float | None,
    voices: Sequence[str],
    *values: Any,
) -> Start:
    """Return the command that serves a checkpoint with voices; a UserError without a choice or a key."""
    model = model_or_best(project, checkpoint)
    recordings = [find_recording(project, choice, page.roots) for choice in voices or [""]]
    names = [path.stem for path in recordings]
    for name in names:
        if names.count(name) > 1:
            raise LinkedError(Notice(t("listen.same_voice_name", name=name), "#listen/serve-voices"))
    command = Serve(
        voices=recordings,
        key_file=project.server_keys,
        models=settings.base,
        device=free_device(page.workspace),
        **fields_from(Serve, FIELDS, values),
        **fields_of(project, model, strength, page.roots),
    )
    if not project.server_keys.is_file():
        raise LinkedError(Notice(t("listen.no_key"), "#listen/serve-new-key", kind="unfilled"))
    facts = [
        (t("listen.checkpoint"), model.title),
        (t("listen.voices"), ", ".join(names)),
        (t("listen.device"), device_shown(page.workspace, command.device)),
    ]
    return Start([command], outlook=Outlook(facts, notes=[Notice(t("listen.only_here"))]))


def create_key(project: Project) -> str:
    """Return a new key and record its digest in place of the one before; a UserError if that fails."""
    key = secrets.token_urlsafe(KEY_BYTES)
    digest = hashlib.sha256(key.encode()).hexdigest()
    with disk_errors(project.server_keys):
        write_bytes(project.server_keys, f"sha256:{digest}\n".encode())
    return key


def address_html(job: Job | None) -> str:
    """Return the address of a running server from its log as HTML; "" while it is loading its model."""
    try:
        with job.log.open("rb") if job else io.BytesIO() as file:
            found = ADDRESS.search(file.read(HEAD_BYTES))
    except OSError:
        found = None
    if found is None:
        return ""
    shown = t("listen.address", address=found[0].decode(errors="replace"))
    return f'<p class="lead" id="serve-address">{escape(shown)}</p>'
