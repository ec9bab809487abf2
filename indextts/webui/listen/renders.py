"""Renders: speech that the page generated, and blind votes on pairs of checkpoints. No Gradio or torch here.

    NAME/listen/
      voices/              uploaded voice recordings (uploads.py)
      0001/  a/            output of tools/synthesize.py: 001.wav ... spoken.jsonl
                           one text: also 001.pieces/001.wav ..., written while it is spoken
             b/            output of the second checkpoint in a comparison
      votes.jsonl          {"render": "0001", "number": 1, "text": ..., "first": "step 200",
                            "second": "step 236", "choice": "first" | "second" | "same", "time": unix time}

A digest of both outputs decides which checkpoint plays first. So the order is the same in every view, differs
between sentences, and tells the listener nothing. A text gets one vote, and only if two different models
spoke it.
"""

import hashlib
import html
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ValidationError

from indextts.errors import UserError
from indextts.projects.jobs.records import Job
from indextts.projects.project import Project
from indextts.system.amounts import shown_time
from indextts.system.json_lines import append_json_line
from indextts.webui.language import t
from indextts.webui.markup import sound_html
from indextts.webui.serving.security import file_address

SPOKEN_NAME = "spoken.jsonl"
SIDES = ("a", "b")


MODEL = re.compile(r"step (\d+)(?: of part (\d+))?")
STRENGTH = " at strength "

Choice = Literal["first", "second", "same"]


class SpokenText(BaseModel):
    """A line of spoken.jsonl with the fields that the page shows."""

    file: str | None
    text: str
    spoken: str
    seconds: float
    has_stopped: bool
    checkpoint: str
    strength: float = 1.0
    step: int | None
    part: int | None = None

    @property
    def model(self) -> str:
        """Name of the model by its step, because names such as latest.pth change with the next save."""
        name = f"step {self.step}" + (f" of part {self.part}" if (self.part or 1) > 1 else "")
        if self.step is None or not self.checkpoint.endswith(".pth"):  # an adapter of another run
            name = self.checkpoint
        return name if self.strength == 1 else f"{name}{STRENGTH}{self.strength:g}"


class Vote(BaseModel):
    render: str
    number: int
    text: str
    first: str
    second: str
    choice: Choice
    time: float


@dataclass(frozen=True)
class Sound:
    """A text spoken by one model; `path` is None if it produced no sound."""

    path: Path | None
    spoken: SpokenText


@dataclass(frozen=True)
class Render:
    """Output of one synthesis job: for each text the sounds of one model or two."""

    folder: Path
    sides: tuple[tuple[Sound, ...], ...]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def is_comparison(self) -> bool:
        return len(self.sides) == len(SIDES)

    @property
    def is_of_two_models(self) -> bool:
        return self.is_comparison and self.sides[0][0].spoken.model != self.sides[1][0].spoken.model

    def pair(self, number: int) -> tuple[Sound, Sound]:
        """Return both sounds of text `number` (from 1) in playing order; a UserError without two models."""
        if not self.is_comparison or not 1 <= number <= len(self.sides[0]):
            raise UserError(t("listen.no_such_text", number=number))
        sounds = tuple(side[number - 1] for side in self.sides)
        if sounds[0].spoken.model == sounds[1].spoken.model:
            raise UserError(t("listen.same_model", model=model_title(sounds[0].spoken.model)))
        spoken = "".join(sound.spoken.model_dump_json() for side in self.sides for sound in side)
        is_swapped = hashlib.sha256(f"{self.name} {number} {spoken}".encode()).digest()[0] & 1
        return (sounds[1], sounds[0]) if is_swapped else (sounds[0], sounds[1])


def model_title(model: str) -> str:
    """Return a name of `SpokenText.model` in the current language."""
    model, _, strength = model.partition(STRENGTH)
    if strength:
        return model_title(model) + t("listen.at_strength", strength=strength)
    found = MODEL.fullmatch(model)
    if found is None:
        return model
    step, part = (int(number) if number else 1 for number in found.groups())
    return t("listen.step", step=step) if part == 1 else t("listen.step_of_part", step=step, part=part)


def renders(project: Project) -> Iterator[Render]:
    """Yield the complete renders, newest first."""
    for folder in numbered(project.listen):
        sides = tuple(found for side in SIDES if (found := read_sounds(folder / side)))
        if sides and len({len(side) for side in sides}) == 1:
            yield Render(folder, sides)


def newest_pieces(project: Project) -> list[Path]:
    """Return the pieces of the newest render, in playing order; empty for one that was not streamed."""
    folders = numbered(project.listen)
    return sorted(folders[0].glob(f"{SIDES[0]}/*.pieces/[!.]*.wav")) if folders else []


def newest_render(project: Project, *, is_comparison: bool) -> Render | None:
    """Return the newest complete render of one model, or of two."""
    return next((render for render in renders(project) if render.is_comparison is is_comparison), None)


def votes(project: Project) -> list[Vote]:
    """Return the votes, oldest first: the first one on each text; invalid lines are skipped."""
    try:
        lines = (project.listen / "votes.jsonl").read_bytes().splitlines()
    except OSError:
        return []
    found: dict[tuple[str, int], Vote] = {}
    for line in lines:
        try:
            given = Vote.model_validate_json(line)
        except ValidationError:
            continue
        found.setdefault((given.render, given.number), given)
    return list(found.values())


def vote_on(project: Project, render: Render, number: int) -> Vote | None:
    return next((v for v in votes(project) if (v.render, v.number) == (render.name, number)), None)


def vote(project: Project, heard: str, number: int, choice: str) -> Vote:
    """Store and return a vote on text `number` of the newest comparison.

    Args:
        heard: name of the render that the listener heard.

    Raises:
        UserError: there is nothing to compare, the listener heard an older comparison, the text already has a
            vote, or the file cannot be written.
    """
    render = newest_render(project, is_comparison=True)
    if render is None:
        raise UserError(t("listen.no_comparison_yet"))
    if render.name != heard:
        raise UserError(t("listen.newer_comparison"))
    first, second = render.pair(number)
    if vote_on(project, render, number) is not None:
        raise UserError(t("listen.already_voted", number=number))
    if choice not in get_args(Choice):
        raise UserError(t("listen.no_vote", choice=choice))
    given = Vote(
        render=render.name,
        number=number,
        text=first.spoken.text,
        first=first.spoken.model,
        second=second.spoken.model,
        choice=choice,
        time=time.time(),
    )
    append_json_line(project.listen / "votes.jsonl", given.model_dump())
    return given


def tally(given: Iterable[Vote]) -> list[list[str | int]]:
    """Return a row for each pair of different models: A, B, votes for A, votes for B, ties."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for one in given:
        models = (min(one.first, one.second), max(one.first, one.second))
        winner = {"first": one.first, "second": one.second, "same": ""}[one.choice]
        counts.setdefault(models, Counter())[winner] += 1
    return [
        [*models, *(count[name] for name in (*models, ""))]
        for models, count in sorted(counts.items(), key=lambda item: item[0])
    ]


def read_sounds(folder: Path) -> tuple[Sound, ...]:
    """Return the sounds of one model; empty if they are incomplete."""
    try:
        lines = (folder / SPOKEN_NAME).read_text(encoding="utf-8").splitlines()
        spoken = [SpokenText.model_validate(json.loads(line)) for line in lines]
    except (OSError, ValueError):
        return ()
    return tuple(
        Sound(path if path.is_file() and not path.is_symlink() else None, text)
        for text in spoken
        for path in [folder / Path(text.file or "absent").name]  # a path outside is never served
    )


def next_folder(parent: Path, jobs: Iterable[Job] = ()) -> Path:
    """Return the next numbered folder; those that the commands of active `jobs` name are taken."""
    named = re.compile(rf"--output\S*={re.escape(str(parent))}/(\d+)(?:/.*)?")
    words = (word for job in jobs if job.is_active for argv in job.argvs for word in argv)
    taken = [int(match[1]) for word in words if (match := named.fullmatch(word))]
    taken += [int(folder.name) for folder in numbered(parent)]
    return parent / f"{max(taken, default=0) + 1:04}"


def numbered(parent: Path) -> list[Path]:
    """Return the numbered folders, newest first; empty if `parent` does not exist."""
    if not parent.is_dir():
        return []
    found = [path for path in parent.iterdir() if path.name.isdecimal() and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name), reverse=True)


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
        f'<div class="player">{sound_html(address, preload)}'
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
    """Return the first sounds of a render, and the file of all its texts."""
    players = [
        f'<p class="lead">{html.escape(sound.spoken.spoken)}</p>{player_html(sound)}'
        for sound in render.sides[0][:MAX_NEWEST]
    ]
    players += [
        f'<p><a href="{file_address(path)}" download>{html.escape(t("listen.joined"))}</a></p>'
        for path in (render.folder / SIDES[0]).glob("*.m4b")
    ]
    return "".join(players)


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
