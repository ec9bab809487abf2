"""Blind comparison in tab 8 of two checkpoints that spoke the same texts.

The players get samples and no URLs, which would reveal the checkpoint. After a vote the page shows both
names.
"""

from typing import Any

import gradio as gr
import soundfile

from indextts.errors import UserError
from indextts.projects.jobs.records import newest_job
from indextts.projects.project import Project
from indextts.webui.events import on
from indextts.webui.language import t
from indextts.webui.listen.renders import Render, Sound, newest_render, tally, vote, vote_on, votes
from indextts.webui.listen.speaking import STAGE, Speaking, show_players, spoken_version
from indextts.webui.page import Page

NOTHING = "listen.nothing_to_compare"
VOTED = {
    "first": "listen.voted.first",
    "second": "listen.voted.second",
    "same": "listen.voted.same",
}
HEADERS = [
    "listen.headers.checkpoint_a",
    "listen.headers.checkpoint_b",
    "listen.headers.votes_for_a",
    "listen.headers.votes_for_b",
    "listen.headers.no_difference",
]


def build(page: Page, speaking: Speaking) -> None:
    """Build the comparison of the newest render."""
    gr.Markdown(t("listen.which_is_better"))
    with gr.Row():
        number = gr.Number(1, precision=0, minimum=1, label=t("listen.text"), elem_id="compare-number")
        spoken_text = gr.Textbox(
            t(NOTHING), label=t("listen.spoken_text"), interactive=False, elem_id="compare-text", scale=4
        )
    with gr.Row():
        first = gr.Audio(interactive=False, buttons=[], label=t("listen.first"), elem_id="compare-first")
        second = gr.Audio(interactive=False, buttons=[], label=t("listen.second"), elem_id="compare-second")
    with gr.Row():
        buttons = {
            "first": gr.Button(t("listen.first_is_better"), elem_id="compare-vote-first"),
            "same": gr.Button(t("listen.no_difference"), elem_id="compare-vote-same"),
            "second": gr.Button(t("listen.second_is_better"), elem_id="compare-vote-second"),
        }
        following = gr.Button(t("listen.next_text"), elem_id="compare-next")
    result = gr.Textbox(label=t("listen.compared"), interactive=False, elem_id="compare-result")
    table = gr.Dataframe(
        headers=list(map(t, HEADERS)), label=t("listen.votes"), interactive=False, elem_id="compare-tally"
    )

    shown = [spoken_text, first, second, result, table]
    page.watch(spoken_version, lambda *v: show_if_idle(page, *v), shown, [number])
    on([number.change], lambda *v: show(page, *v), [page.project, number], shown, latest=True)
    on([following.click], lambda name, at: next_number(page, name, at), [page.project, number], [number])
    for choice, button in buttons.items():
        on([button.click], _voter(page, choice), [page.project, number], [result, table, speaking.players])


def show_if_idle(page: Page, name: str, number: float | None) -> list[Any]:
    """Return `show`, or no change while a synthesis job runs."""
    job = newest_job(page.find_project(name), STAGE)
    return [gr.skip()] * 5 if job is not None and job.is_active else show(page, name, number)


def show(page: Page, name: str, number: float | None) -> list[Any]:
    """Return the text, both players, the names if already voted, and the votes."""
    project = page.find_project(name)
    render, rows = newest_render(project), tally(votes(project))
    try:
        if render is None:
            raise UserError(t(NOTHING))
        first, second = render.pair(int(number or 1))
    except UserError:
        return [t(NOTHING), None, None, "", rows]
    result = vote_result(project, render, int(number or 1))
    return [first.spoken.text, _samples(first), _samples(second), result, rows]


def next_number(page: Page, name: str, number: float | None) -> int:
    """Return the number of the next text; the first follows the last."""
    render = newest_render(page.find_project(name))
    count = len(render.sides[0]) if render else 1
    return int(number or 0) % count + 1


def vote_result(project: Project, render: Render, number: int) -> str:
    """Return the names of the two checkpoints after a vote."""
    given = vote_on(project, render, number)
    if given is None:
        return ""
    return t(VOTED[given.choice], first=given.first, second=given.second)


def _voter(page: Page, choice: str) -> Any:
    def decide(name: str, number: float | None) -> tuple[Any, Any, Any]:
        project = page.find_project(name)
        vote(project, int(number or 1), choice)
        render = newest_render(project)
        assert render is not None
        return vote_result(project, render, int(number or 1)), tally(votes(project)), show_players(page, name)

    return decide


def _samples(sound: Sound) -> Any:
    if sound.path is None:
        return None
    samples, sample_rate_hz = soundfile.read(sound.path, dtype="int16")
    return sample_rate_hz, samples
