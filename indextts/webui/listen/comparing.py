"""Sub-tab Compare of tab 8: two checkpoints speak the same texts, and a listener judges them blindly.

The players contain their sounds: an address would reveal the checkpoint. After a vote the page shows both
names. Two files that hold the same model are not compared, because a vote would say nothing.
"""

import base64
from collections.abc import Sequence
from functools import partial
from html import escape
from typing import Any

import gradio as gr
from gradio.components import Component

from indextts.commands.speech import Synthesize
from indextts.errors import UserError
from indextts.projects.project import Project, ProjectSettings
from indextts.webui.events import on
from indextts.webui.forms import with_choices
from indextts.webui.language import t
from indextts.webui.layout import columns, fields, labelled
from indextts.webui.listen.renders import (
    Render,
    Sound,
    judged_html,
    model_title,
    newest_render,
    tally,
    vote,
    vote_on,
    votes,
)
from indextts.webui.listen.saved_models import find_model, kept_choice, speaker_choices, speakers
from indextts.webui.listen.speaking import (
    COMPARE_STAGE,
    MAX_NAMES,
    Speaking,
    Wish,
    cast_of,
    speak_commands,
    speech_facts,
    strength_field,
    text_field,
    watch_speakers,
    watch_voices,
)
from indextts.webui.markup import empty_html, sound_html, table_html
from indextts.webui.page import Page
from indextts.webui.running.outlook import LinkedError, Notice, Outlook, Start, made_by
from indextts.webui.running.panel import Stage, stage_panel
from indextts.webui.view_versions import files_version

HEADERS = ("checkpoint_a", "checkpoint_b", "votes_for_a", "votes_for_b", "no_difference")
FOLLOW_TEXT = "(typed, now) => window.followText(typed, now)"  # page_files/page.js


class _Judging:
    def __init__(self) -> None:
        self.nothing = gr.HTML(elem_id="compare-nothing")
        with gr.Column(visible=False, elem_id="compare-judging") as self.body:
            with gr.Row():
                self.number = gr.Number(
                    1, **labelled("listen.text", "compare-number"), precision=0, minimum=1, min_width=90
                )
                self.text = gr.Textbox(
                    **labelled("listen.spoken_text", "compare-text"), interactive=False, scale=6
                )
            with gr.Row():
                self.first, self.second = (gr.HTML(elem_id=f"compare-{side}") for side in ("first", "second"))
            with gr.Row(elem_classes="votes"):
                self.buttons = {
                    choice: gr.Button(t(label), elem_id=f"compare-vote-{choice}")
                    for choice, label in (
                        ("first", "listen.first_is_better"),
                        ("same", "listen.no_difference"),
                        ("second", "listen.second_is_better"),
                    )
                }
                self.following = gr.Button(t("listen.next_text"), elem_id="compare-next")
            self.result = gr.Textbox(
                label=t("listen.judged"),
                show_label=False,
                container=False,
                interactive=False,
                elem_id="compare-result",
                elem_classes="status",
            )
        self.tally = gr.HTML(elem_id="compare-tally")
        self.heard = gr.Textbox(visible="hidden", container=False, show_label=False)  # name of the render

    @property
    def shown(self) -> list[Component]:
        voting = [self.result, self.tally, *self.buttons.values()]
        return [self.nothing, self.body, self.text, self.first, self.second, *voting, self.heard]


def build(page: Page, speaking: Speaking) -> None:
    with columns() as (main, side):
        with main:
            text = text_field("listen.compare_help", "compare-lines", lines=2)
            with fields():
                first = gr.Dropdown([], label=t("listen.headers.checkpoint_a"), elem_id="compare-a")
                second = gr.Dropdown([], label=t("listen.headers.checkpoint_b"), elem_id="compare-b")
                strengths = [
                    strength_field(page, menu, f"{menu.elem_id}-strength", t(f"listen.strength_{side}"))
                    for side, menu in (("a", first), ("b", second))
                ]
                voice = gr.Dropdown([], label=t("listen.voice"), elem_id="compare-voice")
            judging = _Judging()
        with side:
            chosen = [text, voice, speaking.emotion, first, second, *strengths]
            inputs = [*chosen, *speaking.cast, *speaking.settings]
            stage_panel(page, _stage(page, inputs, speaking.filled_for))

    speaking.text.blur(None, [speaking.text, text], [text], js=FOLLOW_TEXT)
    watch_speakers(page, [first, second], both_choices)
    on(
        [first.change],
        lambda project, *now: both_choices(project, *now)[1],
        [page.project, first, second],
        [second],
        latest=True,
    )
    watch_voices(page, voice)
    _connect(page, judging)


def _stage(page: Page, inputs: Sequence[Component], filled_for: gr.Textbox) -> Stage:
    def prepare(project: Project, settings: ProjectSettings, *values: Any) -> Start:
        text, voice, emotion, first, second, strength_a, strength_b, names, *rest = values
        models, strengths, cast = (first, second), (strength_a, strength_b), cast_of(names, rest)
        wish = Wish(text, voice, emotion, models, strengths, "#listen/compare-lines", cast)
        planned = compare_commands(page, project, settings, wish, rest[MAX_NAMES:])
        return Start(planned, outlook=Outlook(speech_facts(page.workspace, project, planned)))

    return Stage(
        COMPARE_STAGE,
        "listen.speak_both",
        prepare,
        inputs,
        onward={"finished": ("#listen/compare-judging", "listen.open_judging")},
        filled_for=filled_for,
    )


def compare_commands(
    page: Page, project: Project, settings: ProjectSettings, wish: Wish, values: Sequence[Any]
) -> list[Synthesize]:
    """Return the commands of two models or strengths; a UserError if both choices are the same."""
    found = speakers(project)
    if len(found) == 1 and not found[0].has_strength:
        raise LinkedError(made_by("training", t("listen.only_one_model", model=found[0].title)))
    planned = speak_commands(page, project, settings, wish, values)
    first, second = (find_model(project, name) for name in wish.checkpoints)
    if first == second and planned[0].adapter_strength == planned[1].adapter_strength:
        text = t("listen.same_chosen", a=wish.checkpoints[0], b=wish.checkpoints[1], model=first.title)
        raise LinkedError(Notice(text, "#listen/compare-b"))
    return planned


def both_choices(project: Project, first: str | None, second: str | None) -> tuple[Any, Any]:
    """Return the menus of both checkpoints; in the second one the model of the first, if a LoRA, is last."""
    found = speaker_choices(project)
    kept = kept_choice(project, first) or (found[0][1] if found else None)
    loras = [model.name for model in speakers(project) if model.has_strength]
    others = [choice for choice in found if choice[1] != kept or kept in loras]
    others.sort(key=lambda choice: choice[1] == kept)
    same = partial(kept_choice, project)
    return with_choices(found, first, same), with_choices(others, second, same)


def _connect(page: Page, judging: _Judging) -> None:
    def version(project: Project) -> str:
        return files_version(project.listen)

    number = judging.number
    page.watch(version, show, judging.shown, [number], result_of=[COMPARE_STAGE])
    on([number.change], show, [page.project, number], judging.shown, latest=True)
    on([judging.following.click], next_number, [page.project, number], [number])
    for choice, button in judging.buttons.items():
        on([button.click], partial(decide, choice), [page.project, judging.heard, number], judging.shown)


def show(project: Project, number: float | None) -> list[Any]:
    """Return the text, both players, the names if already voted, votes, buttons, name of the render."""
    render = newest_render(project, is_comparison=True)
    try:
        if render is None:
            raise UserError(t("listen.nothing_to_compare"))
        first, second = render.pair(int(number or 1))
    except UserError as error:
        buttons = [gr.Button(interactive=False)] * 3
        is_other_text = render is not None and render.is_of_two_models
        shown_text = [str(error), "", "", "", tally_html(project, None), *buttons]
        return [
            "" if is_other_text else empty_html(str(error)),
            gr.Column(visible=is_other_text),
            *shown_text,
            "",
        ]
    given, result = vote_on(project, render, int(number or 1)), ""
    if given is not None:
        names = {"first": model_title(given.first), "second": model_title(given.second)}
        result = t(f"listen.voted.{given.choice}", **names)
    buttons = [gr.Button(interactive=not result)] * 3
    players = [_player(*each) for each in (("listen.first", first), ("listen.second", second))]
    sounds = [first.spoken.text, *players, result]
    return ["", gr.Column(visible=True), *sounds, tally_html(project, render), *buttons, render.name]


def next_number(project: Project, number: float | None) -> int:
    render = newest_render(project, is_comparison=True)
    count = len(render.sides[0]) if render else 1
    return int(number or 0) % count + 1


def tally_html(project: Project, render: Render | None) -> str:
    """Return the judged texts of a comparison, and the votes for each pair of models."""
    judged = judged_html(project, render) if render else ""
    rows = tally(votes(project))
    if not rows:
        return judged
    heads = [(t(f"listen.headers.{name}"), "number" * (place > 1)) for place, name in enumerate(HEADERS)]
    cells = [(*(escape(model_title(str(one))) for one in row[:2]), *map(str, row[2:])) for row in rows]
    return f"{judged}<h3>{escape(t('listen.votes'))}</h3>{table_html(heads, cells)}"


def decide(choice: str, project: Project, heard: str, number: float | None) -> list[Any]:
    """Store a vote and return `show`; the players go on."""
    vote(project, heard, int(number or 1), choice)
    shown = show(project, number)
    shown[3:5] = [gr.skip(), gr.skip()]
    return shown


def _player(title: str, sound: Sound) -> str:
    """Return a player that contains its sound; without one, its title alone."""
    head = f'<p class="lead">{escape(t(title))}</p>'
    if sound.path is None:
        return head
    data = base64.b64encode(sound.path.read_bytes()).decode()
    return head + sound_html(f"data:audio/wav;base64,{data}", "metadata")
