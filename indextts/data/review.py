"""Review of a manifest: decisions of a person and verdicts of the check. No torch here.

The manifest itself is never edited:

    FOLDER of the manifest/
      manifest.jsonl
      review.jsonl           decisions of a person, one per line, append-only:
                             {"id": "rec_0001", "verdict": "keep" | "reject" | null, "text": "..." | null}
                                 replaces earlier decisions on this clip; null: the verdict of the check, the
                                 text of the manifest
                             {"undo": true}
                                 cancels the last decision that is not cancelled yet
      check/rejected.jsonl   verdicts of the check: {"id": "rec_0007", "reasons": ["noisy", ...], ...}, a line
                             for each clip with a hard reason

The stages after the import read a manifest with `read_reviewed`: without the clips that a person or, failing
that, the check rejected, and with corrected texts.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from indextts.data.manifest import Utterance, read_numbered_utterances, read_texts
from indextts.errors import UserError
from indextts.system.json_lines import append_json_line, read_json_lines

logger = logging.getLogger(__name__)

REVIEW_NAME = "review.jsonl"
CHECK_FOLDER_NAME = "check"
REJECTED_NAME = "rejected.jsonl"


class Decision(BaseModel):
    """Decision of a person on a clip."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    verdict: Literal["keep", "reject"] | None = None
    text: str | None = Field(None, min_length=1)


class _Undo(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    undo: Literal[True]


@dataclass(frozen=True)
class Decisions:
    """Current decisions by clip, and the one that `undo` would cancel."""

    of: Mapping[str, Decision]
    last: Decision | None


def review_file(manifest: Path) -> Path:
    return manifest.parent / REVIEW_NAME


def check_folder(manifest: Path) -> Path:
    return manifest.parent / CHECK_FOLDER_NAME


def overlay_files(manifest: Path) -> tuple[Path, Path]:
    """Return the files that `read_reviewed` depends on besides the manifest; they may be absent."""
    return review_file(manifest), check_folder(manifest) / REJECTED_NAME


def read_reviewed(manifest: Path) -> list[tuple[int, Utterance]]:
    """Return the utterances to use, each with its line number in the manifest.

    Raises:
        UserError: manifest, decisions or verdicts are invalid, or all utterances are rejected.
    """
    numbered = read_numbered_utterances(manifest)
    decisions = read_decisions(manifest).of
    rejected = read_rejected(manifest)
    kept = [
        (number, edited(utterance, decisions))
        for number, utterance in numbered
        if is_kept(utterance.id, decisions, rejected)
    ]
    if not kept:
        raise UserError(
            f"{manifest}: every utterance is rejected ({len(numbered):,} in total); see "
            f"{review_file(manifest)} and {check_folder(manifest) / REJECTED_NAME}"
        )
    if len(kept) < len(numbered):
        logger.info(
            "%s: skipping %d of %d utterances, rejected by the check or in the review",
            manifest,
            len(numbered) - len(kept),
            len(numbered),
        )
    return kept


def read_reviewed_texts(manifest: Path) -> list[str]:
    """Return the texts of the utterances to use; without review and check, of all lines with a text.

    Raises:
        UserError: as `read_reviewed`.
    """
    if not any(path.exists() for path in overlay_files(manifest)):
        return read_texts(manifest)
    return [utterance.text for _, utterance in read_reviewed(manifest)]


def is_kept(id: str, decisions: Mapping[str, Decision], rejected: Iterable[str]) -> bool:
    """Return whether to use a clip: the decision of a person, else the verdict of the check."""
    decision = decisions.get(id)
    if decision is not None and decision.verdict is not None:
        return decision.verdict == "keep"
    return id not in rejected


def edited(utterance: Utterance, decisions: Mapping[str, Decision]) -> Utterance:
    """Return the utterance with its corrected text, if any."""
    decision = decisions.get(utterance.id)
    if decision is None or decision.text is None:
        return utterance
    return replace(utterance, text=decision.text)


def read_rejected(manifest: Path) -> dict[str, Sequence[str]]:
    """Return the reasons of each clip that the check rejected; empty before a check.

    Raises:
        UserError: a line is not a verdict.
    """
    path = check_folder(manifest) / REJECTED_NAME
    rejected: dict[str, Sequence[str]] = {}
    for number, record in _lines_of(path):
        id, reasons = record.get("id"), record.get("reasons")
        if not isinstance(id, str) or not isinstance(reasons, list):
            raise UserError(f"{path}:{number}: a verdict requires id and reasons; check the data again")
        rejected[id] = reasons
    return rejected


def read_decisions(manifest: Path) -> Decisions:
    """Return the decisions of a person; none without a review.

    An incomplete last line was never acknowledged and does not count.

    Raises:
        UserError: a line is not a decision.
    """
    path = review_file(manifest)
    active: list[Decision] = []
    for number, line in enumerate(_complete_lines(path), start=1):
        if not line.strip():
            continue
        try:
            entry = _entry(line)
        except ValidationError as error:
            what = error.errors()[0]["msg"]
            raise UserError(
                f"{path}:{number}: the line is not a decision ({what}); correct or remove it"
            ) from None
        if isinstance(entry, Decision):
            active.append(entry)
        elif active:
            active.pop()
    return Decisions({decision.id: decision for decision in active}, active[-1] if active else None)


def add_decision(manifest: Path, decision: Decision) -> None:
    """Append a decision and sync it to the disk.

    Raises:
        UserError: the file cannot be written.
    """
    append_json_line(review_file(manifest), decision.model_dump())


def undo(manifest: Path) -> Decision | None:
    """Cancel the last decision and return it; None if there is none.

    Raises:
        UserError: the file cannot be read or written.
    """
    last = read_decisions(manifest).last
    if last is not None:
        append_json_line(review_file(manifest), {"undo": True})
    return last


def _entry(line: bytes) -> Decision | _Undo:
    try:
        return _Undo.model_validate_json(line)
    except ValidationError:
        return Decision.model_validate_json(line)


def _complete_lines(path: Path) -> list[bytes]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check the file") from None
    return content[: content.rfind(b"\n") + 1].split(b"\n")


def _lines_of(path: Path) -> Iterable[tuple[int, dict[str, object]]]:
    return read_json_lines(path) if path.is_file() and path.stat().st_size else ()
