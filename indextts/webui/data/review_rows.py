"""Rows of the review: the clips of a project with the verdicts of the check and of people. No Gradio here.

A data set may have 100,000 clips, so the files of the check are read once per change, and only one page of
rows is sent to a browser.
"""

import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from indextts.data.manifest import Utterance
from indextts.data.quality.reasons import REASON_OF, REASONS, Flag
from indextts.data.review import Decision, Decisions, check_folder, edited, is_kept, read_decisions
from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.system.json_lines import read_json_lines
from indextts.webui.data.reason_texts import reason_name
from indextts.webui.language import t
from indextts.webui.view_versions import files_version, utterances_of

ROWS_PER_PAGE = 20
MAX_TEXT_CHARS = 2000
ALL, REJECTED, WARNED, DECIDED = "all", "rejected", "warned", "decided by hand"
SHUFFLED = "shuffled"
FILTERS = {
    ALL: "data.filters.all",
    SHUFFLED: "data.filters.shuffled",
    REJECTED: "data.filters.rejected",
    WARNED: "data.filters.warned",
    DECIDED: "data.filters.decided",
}
VERDICTS = {  # (is kept, decided by hand)
    (True, False): "data.verdicts.kept",
    (False, False): "data.verdicts.rejected",
    (True, True): "data.verdicts.kept_by_hand",
    (False, True): "data.verdicts.rejected_by_hand",
}

CHOOSE = "data.choose_clip"
EMPTY = "data.text_empty"
TOO_LONG = "data.text_too_long"
CORRUPT = "data.corrupt"

_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class Row:
    """One clip with its effective text: the edited text if there is one."""

    utterance: Utterance
    original_text: str
    flags: tuple[Flag, ...]
    decision: Decision | None

    @property
    def is_kept(self) -> bool:
        decisions = {self.utterance.id: self.decision} if self.decision else {}
        rejected = [self.utterance.id] if any(flag.is_hard for flag in self.flags) else []
        return is_kept(self.utterance.id, decisions, rejected)

    @property
    def verdict(self) -> str:
        """Id of the verdict, and whether it was made by hand."""
        by_hand = self.decision is not None and self.decision.verdict is not None
        return VERDICTS[self.is_kept, by_hand]

    @property
    def is_decided(self) -> bool:
        return self.decision is not None and (self.decision.verdict or self.decision.text) is not None


@dataclass(frozen=True)
class Review:
    """All clips of a project, in the order of the manifest."""

    rows: Sequence[Row]
    last: Decision | None

    def find(self, id: str) -> Row:
        """Return the row of a clip.

        Raises:
            UserError: there is no such clip.
        """
        for row in self.rows:
            if row.utterance.id == id:
                return row
        raise UserError(t(CHOOSE))

    def filters(self) -> list[tuple[str, str]]:
        """Return label (with the number of clips) and name of each filter."""
        counts = Counter(flag.reason for row in self.rows for flag in row.flags)
        counts[ALL] = counts[SHUFFLED] = len(self.rows)
        for name in (REJECTED, WARNED, DECIDED):
            counts[name] = len(self.chosen(name))
        names = [*FILTERS]
        names += [reason.name for reason in REASONS if counts[reason.name]]
        labels = {name: t(id) for name, id in FILTERS.items()}
        return [(f"{labels.get(name) or reason_name(name)} ({counts[name]:,})", name) for name in names]

    def chosen(self, name: str) -> Sequence[Row]:
        """Return the clips of a filter; those of a reason are sorted by severity.

        The random order of SHUFFLED is that of the digests of the ids, so that its pages stay the same.
        """
        if name == SHUFFLED:
            return sorted(self.rows, key=lambda row: zlib.crc32(row.utterance.id.encode()))
        if name == REJECTED:
            return [row for row in self.rows if not row.is_kept]
        if name == WARNED:
            return [row for row in self.rows if row.flags and row.is_kept]
        if name == DECIDED:
            return [row for row in self.rows if row.is_decided]
        if name in REASON_OF:
            found = [(flag.severity, row) for row in self.rows for flag in row.flags if flag.reason == name]
            return [row for _, row in sorted(found, key=lambda pair: -pair[0])]
        return self.rows


def read_review(project: Project) -> Review:
    """Read the clips of a project from disk; empty before the import.

    Raises:
        UserError: a file is corrupt.
    """
    manifest = project.manifest
    if not manifest.is_file():
        return Review([], None)
    flags = _flags(check_folder(manifest) / "clips.jsonl")
    decisions: Decisions = read_decisions(manifest)
    rows = [
        Row(edited(u, decisions.of), u.text, flags.get(u.id, ()), decisions.of.get(u.id))
        for u in utterances_of(manifest)
    ]
    return Review(rows, decisions.last)


def checked_text(typed: str | None) -> str:
    """Return the validated text that was typed for a clip.

    Raises:
        UserError: it is empty or too long.
    """
    text = " ".join(_CONTROL.sub(" ", typed or "").split())
    if not text:
        raise UserError(t(EMPTY))
    if len(text) > MAX_TEXT_CHARS:
        raise UserError(t(TOO_LONG, count=len(text), most=MAX_TEXT_CHARS))
    return text


def _flags(path: Path) -> Mapping[str, tuple[Flag, ...]]:
    return _read_flags(path, files_version(path)) if path.is_file() else {}


def _flag(record: Mapping[str, Any]) -> Flag:
    return Flag(record["reason"], record["severity"], record["said"])


@lru_cache(maxsize=2)
def _read_flags(path: Path, _version: str) -> Mapping[str, tuple[Flag, ...]]:
    try:
        return {
            str(record["id"]): tuple(map(_flag, record["flags"]))  # type: ignore[call-overload]
            for _, record in read_json_lines(path)
            if record["flags"]
        }
    except (KeyError, TypeError) as error:
        raise UserError(t(CORRUPT, path=path, problem=error)) from None
