"""Players of spoken texts. No Gradio here.

A player names a file of the project; the browser loads it when it plays, so a long list costs nothing.
"""

import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from indextts.projects.project import Project
from indextts.system.amounts import shown_time
from indextts.webui.language import t
from indextts.webui.listen.renders import Render, Sound, model_title, renders, votes
from indextts.webui.serving.security import file_address

MAX_NEWEST = 3  # sounds under the start button
MAX_ROWS = 100

CHOICES = {"first": "listen.was_first", "second": "listen.was_second", "same": "listen.no_difference"}


def player_html(sound: Sound, preload: str = "metadata") -> str:
    """Return a player for a sound, with its model, length and download."""
    model = model_title(sound.spoken.model)
    if sound.path is None:
        return f'<div class="player">{html.escape(t("listen.silent", model=model))}</div>'
    address = file_address(sound.path)
    caption = t(
        "listen.sound" if sound.spoken.has_stopped else "listen.sound_cut",
        model=model,
        seconds=sound.spoken.seconds,
    )
    return (
        f'<div class="player"><audio controls preload="{preload}" src="{address}"></audio>'
        f"<span>{html.escape(caption)}</span>"
        f'<a href="{address}" download>{html.escape(t("listen.download"))}</a></div>'
    )


def pieces_html(pieces: Sequence[Path], is_live: bool) -> str:
    """Return the list of pieces that page_files/stream.js plays; empty without pieces."""
    if not pieces:
        return ""
    addresses = " ".join(file_address(path) for path in pieces)
    name = html.escape(pieces[0].parent.parent.parent.name)
    shown = f'<p class="lead">{html.escape(t("listen.playing_live"))}</p>' if is_live else ""
    live = str(is_live).lower()
    return f'{shown}<div data-stream="{name}" data-live="{live}" data-pieces="{addresses}"></div>'


def newest_html(render: Render) -> str:
    """Return the first sounds of a render."""
    return "".join(
        f'<p class="lead">{html.escape(sound.spoken.spoken)}</p>{player_html(sound)}'
        for sound in render.sides[0][:MAX_NEWEST]
    )


def history_html(project: Project) -> str:
    """Return a row for each spoken text, newest first, without those that `newest_html` shows completely."""
    found = (render for render in renders(project) if not render.is_comparison)
    newest = next(found, None)
    if newest is None:
        return ""
    is_complete = len(newest.sides[0]) <= MAX_NEWEST
    rows = _rows(found if is_complete else (newest, *found))
    if not rows:
        return ""
    title = html.escape(t("listen.spoken_before" if is_complete else "listen.all_spoken"))
    return f'<h3>{title}</h3><ol class="spoken">{"".join(rows)}</ol>'


def _rows(found: Iterable[Render]) -> list[str]:
    rows: list[str] = []
    for render in found:
        when = shown_time(render.folder.stat().st_mtime)
        for sound in render.sides[0]:
            if len(rows) == MAX_ROWS:
                return rows
            text = html.escape(sound.spoken.spoken)
            rows.append(f"<li><p>{text}<small>{when}</small></p>{player_html(sound, 'none')}</li>")
    return rows


def judged_html(project: Project, render: Render) -> str:
    """Return both sounds of each text of a comparison that has a vote; the others stay blind."""
    rows = []
    for given in votes(project):
        if given.render != render.name or not 1 <= given.number <= len(render.sides[0]):
            continue
        sounds = render.pair(given.number)
        both = "".join(player_html(sound, "none") for sound in sounds)
        text, verdict = html.escape(sounds[0].spoken.spoken), html.escape(t(CHOICES[given.choice]))
        rows.append(f"<li><p>{text}<small>{verdict}</small></p><div>{both}</div></li>")
    return (
        f'<h3>{html.escape(t("listen.judged"))}</h3><ol class="spoken">{"".join(rows)}</ol>' if rows else ""
    )
