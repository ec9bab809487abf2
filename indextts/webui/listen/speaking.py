"""Sub-tab Speak of tab 8: type a text, choose a voice, and listen.

A checkpoint always uses its own tokenizer. The players read the disk (renders.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component
from gradio.utils import get_upload_folder

from indextts.commands.sampling_options import Sampling
from indextts.commands.speech import Synthesize
from indextts.errors import UserError
from indextts.projects.jobs.records import list_jobs, newest_job
from indextts.projects.project import Project, ProjectSettings, read_project
from indextts.projects.stages import backend_of
from indextts.speech.synthesis.script import NAMED, names_in, voices_in
from indextts.text.bases import load_tokenizer
from indextts.text.normalize import normalize
from indextts.webui.data.uploads import store_adapter, store_voice
from indextts.webui.devices import device_shown, free_device
from indextts.webui.events import on
from indextts.webui.forms import fields_from, form_for, with_choices
from indextts.webui.language import field_help, field_title, t
from indextts.webui.layout import columns, fields, fold, labelled
from indextts.webui.listen.renders import (
    SIDES,
    history_html,
    newest_html,
    newest_pieces,
    newest_render,
    next_folder,
)
from indextts.webui.listen.renders import pieces_html as sound_html
from indextts.webui.listen.saved_models import (
    UPLOAD,
    adapter_meta,
    adapters,
    fields_of,
    find_model,
    find_recording,
    kept_choice,
    model_or_best,
    normalizer_of,
    speaker_choices,
    speakers,
    voice_choices,
    voice_named,
)
from indextts.webui.markup import empty_html
from indextts.webui.page import Page, follow_shared_choice
from indextts.webui.running.outlook import LinkedError, Notice, Outlook, Start
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.tokenizer.tab import legend_html, pieces_html
from indextts.webui.view_versions import files_version, job_version

STAGE, COMPARE_STAGE = "listen", "compare"
STRENGTH = "adapter_strength"
SETTINGS = (
    *Sampling.model_fields,
    "candidates",
    "joined",
    "device",
    "precision",
    "solver_steps",
    "guidance",
    "duration_factor",
    "emotion",
    "emotion_alpha",
)
MAX_TEXTS = 100
MAX_CHARS = 20_000
MAX_LINES_IN_PIECES = 10
MAX_NAMES = 6  # of a dialogue that have a menu
NO_CHOICE = ""


@dataclass(frozen=True)
class Wish:
    """A form's request for speech.

    Args:
        typed: a text in each line.
        checkpoints: of the run or adapters: one, or two for a comparison.
        strengths: of the LoRAs among them, None for the usual one.
        text_link: leads to the field of the text.
        cast: for names in a dialogue the choice of a voice, "" for none; others have the voice of this name.
    """

    typed: str
    voice: str | None
    emotion: str | None
    checkpoints: tuple[str | None, ...]
    strengths: tuple[float | None, ...] = (None, None)
    text_link: str = "#listen/listen-text"
    cast: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Speaking:
    """Components whose values a comparison uses too."""

    text: gr.Textbox
    emotion: gr.Dropdown
    settings: Sequence[Component]  # in the order of SETTINGS
    cast: Sequence[Component]  # the names of a dialogue, and the menus of their voices
    filled_for: gr.Textbox


def build(page: Page) -> Speaking:
    player = gr.HTML(elem_id="listen-players", render=False)
    with columns() as (main, side):
        with main:
            text = text_field("listen.lines_help", "listen-text", lines=3)
            spoken = gr.Textbox(
                **labelled("listen.spoken_form", "listen-spoken"), lines=1, max_lines=4, interactive=False
            )
            with fold(t("listen.tokens"), "listen-tokens"):
                pieces = gr.HTML(elem_id="listen-pieces")
            voice = gr.Dropdown([], label=t("listen.voice"), elem_id="listen-voice")
            with fields("listen-cast"):
                menus = [gr.Dropdown([], elem_id=f"listen-cast-{n}", visible=False) for n in range(MAX_NAMES)]
            cast = [page.signal(), *menus]
            checkpoint, strength, emotion, form = _more(page, voice)
            earlier = gr.HTML(elem_id="listen-history")
        inputs = [text, voice, emotion, checkpoint, strength, *cast, *form]
        filled_for = page.fill(
            lambda project, _: list(default_settings(backend_of(project, read_project(project))).values()),
            form,
        )
        with side:
            stage_panel(page, _stage(page, inputs, filled_for, player))

    watch_speakers(page, [checkpoint])
    page.watch(voices_version, known_voices, [voice, emotion], [voice, emotion])
    page.watch(voices_version, cast_menus, cast, [text, *cast], also=[text.change])
    on(
        [page.project.change, text.change, checkpoint.change, *(menu.change for menu in menus)],
        read_as,
        [page.project, text, checkpoint, *cast],
        [spoken, pieces],
        latest=True,
    )
    page.watch(
        lambda project: (
            f"{job_version(project, STAGE)} {files_version(project.listen)} {len(newest_pieces(project))}"
        ),
        show_players,
        [player, earlier],
    )
    return Speaking(text, emotion, form, cast, filled_for)


def _more(page: Page, voice: gr.Dropdown) -> tuple[gr.Dropdown, gr.Number, gr.Dropdown, list[Component]]:
    """Build what most texts do not need: checkpoint, uploads of an adapter and a voice, emotion, sampling."""
    with fold(t("listen.more"), "listen-settings"):
        with fields():
            checkpoint = gr.Dropdown([], **labelled("listen.checkpoint", "listen-checkpoint"))
            strength = strength_field(page, checkpoint, "listen-strength")
            emotion = gr.Dropdown([], label=t("listen.emotion_of"), elem_id="listen-emotion")
        with gr.Row():
            upload = gr.File(
                **labelled("listen.upload_voice", "voice-upload"), file_count="single", height=96
            )
            adapter = gr.File(**labelled("listen.adapter", "adapter-upload"), file_count="single", height=96)
        with fields():
            form = list(form_for(Synthesize, SETTINGS).values())
    follow_shared_choice(page, "listen", speaker_choices, kept_choice, checkpoint)
    on([adapter.upload], store_uploaded_adapter, [page.project, adapter], [adapter, checkpoint])
    on([upload.upload], store_uploaded_voice, [page.project, upload, emotion], [upload, voice, emotion])
    return checkpoint, strength, emotion, form


def strength_field(page: Page, checkpoint: gr.Dropdown, id: str, label: str = "") -> gr.Number:
    """Build the field of the adapter's strength, which is there while a LoRA is chosen."""
    title, help = label or field_title(Synthesize, STRENGTH), field_help(Synthesize, STRENGTH)
    strength = gr.Number(1, label=title, info=help, elem_id=id, visible=False)

    def shown(project: Project, chosen: str | list[str] | None) -> gr.Number:
        names = set([chosen] if isinstance(chosen, str) else chosen or ())
        return gr.Number(visible=any(m.has_strength and names & set(m.names) for m in speakers(project)))

    on([page.project.change, checkpoint.change], shown, [page.project, checkpoint], [strength], latest=True)
    return strength


def _stage(page: Page, inputs: Sequence[Component], filled_for: gr.Textbox, player: gr.HTML) -> Stage:
    def prepare(project: Project, settings: ProjectSettings, *values: Any) -> Start:
        text, voice, emotion, checkpoint, strength, names, *rest = values
        chosen, form = (model_or_best(project, checkpoint).name,), rest[MAX_NAMES:]
        wish = Wish(text, voice, emotion, chosen, (strength,), cast=cast_of(names, rest))
        planned = speak_commands(page, project, settings, wish, form)
        facts, notes = speech_facts(page.workspace, project, planned), []
        if backend_of(project, settings) == "builtin":
            link = ("#preprocess/Preprocess-backend", t("listen.open_backend"))
            notes = [Notice(t("listen.builtin_sound"), *link)]
        return Start(planned, outlook=Outlook(facts, notes=notes))

    return Stage(
        STAGE,
        "listen.speak",
        prepare,
        inputs,
        onward={"finished": ("#listen/listen-compare", "listen.open_compare")},
        result=player,
        filled_for=filled_for,
    )


def voices_version(project: Project) -> str:
    return files_version(project.manifest, project.listen / "voices")


def speak_commands(
    page: Page, project: Project, settings: ProjectSettings, wish: Wish, values: Sequence[Any]
) -> list[Synthesize]:
    """Return a command for each checkpoint, with the same settings; a UserError for a missing choice."""
    chosen = [find_model(project, name) for name in wish.checkpoints]
    jobs = [job for stage in (STAGE, COMPARE_STAGE) for job in list_jobs(project, stage)]
    folder = next_folder(project.listen, jobs)
    texts = texts_in(wish.typed, wish.text_link)
    given: dict[str, Any] = {
        "text": texts,
        "stream": len(texts) == len(chosen) == 1,  # many texts are faster in batches
        "voice": str(find_recording(project, wish.voice, page.roots)),
        "emotion_voice": find_recording(project, wish.emotion, page.roots) if wish.emotion else None,
        "models": settings.base,
        **changed(fields_from(Synthesize, SETTINGS, values), backend_of(project, settings)),
    }
    cast = {name: wish.cast.get(name, voice_named(project, name)) for name in names_in(texts)}
    given["voices"] = [
        Path(f"{name}={find_recording(project, choice, page.roots)}")
        for name, choice in cast.items()
        if choice
    ]
    given["stream"] &= given.get("candidates", 1) == 1  # the best is known at the end
    given["device"] = free_device(page.workspace, given.get("device", "auto"))
    return [
        Synthesize(output=folder / side, **fields_of(project, model, strength, page.roots), **given)
        for model, strength, side in zip(chosen, wish.strengths, SIDES, strict=False)
    ]


def cast_menus(project: Project, typed: str, before: str, *chosen: str | None) -> list[Any]:
    """Return the names in a dialogue and a menu for each; those now are `before` with the voices `chosen`."""
    names, known = names_in(typed[:MAX_CHARS].splitlines())[:MAX_NAMES], cast_of(before, chosen)
    found = [(t("listen.name_is_text"), NO_CHOICE), *voice_choices(project)]
    menus = []
    for place, name in enumerate(names):
        is_kept = known.get(name) in [value for _, value in found]
        if is_kept and before.splitlines()[place : place + 1] == [name]:
            menus.append(gr.Dropdown(found))  # its value stays: the user may have changed it meanwhile
            continue
        value, label = known[name] if is_kept else voice_named(project, name), t("listen.voice_of", name=name)
        menus.append(gr.Dropdown(found, value=value, label=label, visible=True))
    return ["\n".join(names), *menus, *[gr.Dropdown(visible=False)] * (MAX_NAMES - len(names))]


def cast_of(names: str, chosen: Sequence[Any]) -> dict[str, str]:
    """Return the choices by name, from the values of the components of `cast_menus`."""
    return {name: choice or NO_CHOICE for name, choice in zip(names.splitlines(), chosen, strict=False)}


def texts_in(typed: str, link: str = "") -> list[str]:
    """Return the non-empty lines; a UserError with a link to the field for none or too many."""
    if len(typed) > MAX_CHARS:
        raise LinkedError(Notice(t("listen.too_long", count=len(typed), most=MAX_CHARS), link))
    texts = [line.strip() for line in typed.splitlines() if line.strip()]
    if not texts:
        raise LinkedError(Notice(t("listen.text_empty"), link, kind="unfilled"))
    if len(texts) > MAX_TEXTS:
        raise LinkedError(Notice(t("listen.too_many", count=len(texts), most=MAX_TEXTS), link))
    return texts


def default_settings(backend: str) -> dict[str, Any]:
    """Return the default settings for the codes of a backend, in the order of SETTINGS."""
    sampling = Sampling.of_backend(backend, {}).model_dump()
    return {field: sampling.get(field, Synthesize.model_fields[field].default) for field in SETTINGS}


def changed(given: dict[str, Any], backend: str) -> dict[str, Any]:
    defaults = default_settings(backend)
    return {name: value for name, value in given.items() if value != defaults[name]}


def text_field(help_id: str, id: str, lines: int) -> gr.Textbox:
    """Build the field of the texts to speak, `lines` high while they are short."""
    return gr.Textbox(
        "ሰላም ለዓለም።", label=t("listen.lines"), info=t(help_id), lines=lines, max_lines=8, elem_id=id
    )


def watch_speakers(page: Page, menus: Sequence[gr.Dropdown], show: Callable[..., Any] | None = None) -> None:
    """Keep the models of the run and the adapters as choices."""
    page.watch(
        lambda project: files_version(project.run_dir, *adapters(project)),
        show or known_speakers,
        menus,
        menus,
    )


def known_speakers(project: Project, now: str | Sequence[str] | None) -> gr.Dropdown:
    return with_choices(speaker_choices(project), now, partial(kept_choice, project))


def watch_voices(page: Page, menu: gr.Dropdown) -> None:
    """Keep the available voices as choices; the first one is the default."""

    def known(project: Project, now: str | Sequence[str] | None) -> gr.Dropdown:
        return with_choices(voice_choices(project), now)

    page.watch(voices_version, known, [menu], [menu])


def known_voices(project: Project, now: str | None, emotion: str | None) -> tuple[Any, Any]:
    found = voice_choices(project)
    return with_choices(found, now), with_choices([(t("listen.same_as_voice"), NO_CHOICE), *found], emotion)


def store_uploaded_voice(project: Project, path: str | None, emotion: str | None) -> tuple[Any, Any, Any]:
    if not path:
        return gr.skip(), gr.skip(), gr.skip()
    taken = store_voice(project, path, Path(get_upload_folder()))
    found = voice_choices(project)
    chosen = gr.Dropdown(choices=found, value=UPLOAD + taken.name)
    return None, chosen, with_choices([(t("listen.same_as_voice"), NO_CHOICE), *found], emotion)


def store_uploaded_adapter(project: Project, path: str | None) -> tuple[Any, Any]:
    if not path:
        return gr.skip(), gr.skip()
    stored = store_adapter(project, path, Path(get_upload_folder()), adapter_meta)
    chosen = next(model.name for model in speakers(project) if model.adapter == stored)
    return None, gr.Dropdown(choices=speaker_choices(project), value=chosen)


def read_as(
    project: Project, typed: str, checkpoint: str | None, names: str = "", *chosen: str | None
) -> tuple[str, str]:
    """Return the lines in spoken form and their pieces; a name with a voice (`cast_of`) is not spoken."""
    options, cast = normalizer_of(project, checkpoint), cast_of(names, chosen)
    lines = [line for line in typed[:MAX_CHARS].splitlines()[:MAX_TEXTS] if line.strip()]
    dialogue = [NAMED.fullmatch(line) for line in lines]
    lines = [d[2] if d and cast.get(d[1]) else line for d, line in zip(dialogue, lines, strict=True)]
    spoken = "\n".join(normalize(line, options) for line in lines)
    try:
        meta = model_or_best(project, checkpoint).meta
        tokenizer = load_tokenizer(project.run_dir / "tokenizer.model", options)
    except UserError:
        return spoken, empty_html(t("listen.no_checkpoint_yet"))
    if tokenizer.vocabulary.fingerprint != meta.tokenizer_fingerprint:
        return spoken, empty_html(t("listen.other_tokenizer"))
    shown = [
        pieces_html(t("listen.line", number=number), tokenizer, line, meta.base_size, meta.piece_counts)
        for number, line in enumerate(lines[:MAX_LINES_IN_PIECES], start=1)
    ]
    return spoken, "".join([legend_html(meta.piece_counts), *shown])


def show_players(project: Project) -> tuple[Any, Any]:
    """Return the newest and the earlier renders; while a job speaks, its pieces replace the newest."""
    job, pieces = newest_job(project, STAGE), newest_pieces(project)
    if job is not None and job.is_active:
        return (sound_html(pieces, is_live=True) if pieces else gr.skip()), gr.skip()
    render = newest_render(project, is_comparison=False)
    if render is None:
        return "", ""
    return newest_html(render) + sound_html(pieces, is_live=False), history_html(project)


def speech_facts(workspace: Path, project: Project, planned: Sequence[Synthesize]) -> list[tuple[str, str]]:
    first = planned[0]
    characters = sum(map(len, first.text))
    known = {(model.adapter or project.run_dir / model.name).resolve(): model for model in speakers(project)}
    titles = [
        known[command.checkpoint.resolve()].title
        + t("listen.at_strength", strength=command.adapter_strength) * (command.adapter_strength != 1)
        for command in planned
    ]
    facts = [(t("listen.texts"), f"{len(first.text):,}"), (t("listen.characters"), f"{characters:,}")]
    both = [t("listen.headers.checkpoint_a"), t("listen.headers.checkpoint_b")]
    facts += zip(both if len(titles) > 1 else [t("listen.checkpoint")], titles, strict=True)
    facts.append((t("listen.voice"), Path(first.voice).stem))
    cast = [f"{name}: {path.stem}" for name, path in voices_in(first.voices).items()]
    facts += [(t("listen.voices"), ", ".join(cast))] * bool(cast)
    if first.emotion_voice is not None:
        facts.append((t("listen.emotion_of"), first.emotion_voice.stem))
    facts.append((t("listen.device"), device_shown(workspace, first.device)))
    return facts
