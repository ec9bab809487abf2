"""Review of a manifest: decisions of people and verdicts of the check. No torch here.

The manifest itself is never edited:

    FOLDER of the manifest/
      manifest.jsonl
      review.jsonl           decisions of people, one per line, append-only:
                             {"key": "5f0c...", "id": "rec_0001", "verdict": "keep" | "reject" | null,
                              "text": "..." | null}
                                 replaces earlier decisions on this clip; null: the verdict of the check, the
                                 text of the manifest
                             {"undo": "5f0c..."}
                                 cancels the decision with this key; nothing if it is cancelled already
                             earlier versions wrote no keys, and {"undo": true} for the last decision that
                             was not cancelled yet; such a decision has its line number as key: "#17"
      check/rejected.jsonl   verdicts of the check: {"id": "rec_0007", "reasons": ["noisy", ...], ...}, a line
                             for each clip with a hard reason

The stages after the import read a manifest with `read_reviewed`: without the clips that a person or, failing
that, the check rejected, without doubtful transcripts that nobody kept, and with corrected texts.
"""

import logging
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from indextts.data.manifest import Provenance, Utterance, read_numbered_utterances, read_texts
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


class _Line(Decision):
    key: str = Field("", max_length=64)


class _Undo(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    undo: Literal[True] | str


@dataclass(frozen=True)
class Made:
    """A decision in the file, and the key that cancels it."""

    key: str
    decision: Decision


class DecisionLog:
    """Decisions in the order of the file; `refresh` reads only what was appended since.

    Use one at a time from several threads.
    """

    def __init__(self, manifest: Path) -> None:
        self.path = review_file(manifest)
        self._forget()

    def _forget(self) -> None:
        self._inode = self._offset = self._num_lines = 0
        self._last_line = b""
        self._made: dict[str, Made] = {}  # not cancelled, by key, in the order of the file
        self._made_on: dict[str, list[Made]] = {}  # the same, by clip
        self.changed: list[str] = []  # the clip that each line changed

    def refresh(self) -> None:
        """Read the lines that were added. An incomplete last line was never acknowledged and does not count.

        Raises:
            UserError: a line is not a decision.
        """
        try:
            with self.path.open("rb") as file:
                if not self._is_continued(file):
                    self._forget()
                    self._inode = os.fstat(file.fileno()).st_ino
                file.seek(self._offset)
                added = file.read()
        except FileNotFoundError:
            self._forget()
            return
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error.strerror}); check the file") from None
        for line in BytesIO(added[: added.rfind(b"\n") + 1]):
            self._read(line)
            self._offset += len(line)
            self._last_line = line

    def current(self, id: str) -> Decision | None:
        """Return the decision that counts for a clip."""
        made = self.last_on(id)
        return made.decision if made else None

    def last_on(self, id: str) -> Made | None:
        """Return the last decision on a clip that is not cancelled."""
        made = self._made_on.get(id)
        return made[-1] if made else None

    def find(self, key: str) -> Made | None:
        """Return the decision with a key; None if there is none or it is cancelled."""
        return self._made.get(key)

    def decided(self) -> Mapping[str, Decision]:
        """Return the decision that counts for each clip, in the order in which they were made."""
        return {made.decision.id: made.decision for made in self._made.values()}

    def _is_continued(self, file: IO[bytes]) -> bool:
        """Return whether the file still begins with the lines that were read."""
        if os.fstat(file.fileno()).st_ino != self._inode:
            return False
        file.seek(self._offset - len(self._last_line))
        return file.read(len(self._last_line)) == self._last_line

    def _read(self, line: bytes) -> None:
        self._num_lines += 1
        if not line.strip():
            return
        try:
            entry = _entry(line)
        except ValidationError as error:
            what, number = error.errors()[0]["msg"], self._num_lines
            self._forget()
            raise UserError(
                f"{self.path}:{number}: the line is not a decision ({what}); correct or remove it"
            ) from None
        if isinstance(entry, _Undo):
            key = next(reversed(self._made), "") if entry.undo is True else str(entry.undo)
            undone = self._made.pop(key, None)
            if undone is not None:
                self._made_on[undone.decision.id].remove(undone)
                self.changed.append(undone.decision.id)
            return
        decision = Decision(id=entry.id, verdict=entry.verdict, text=entry.text)
        made = Made(entry.key or f"#{self._num_lines}", decision)
        self._made[made.key] = made
        self._made_on.setdefault(decision.id, []).append(made)
        self.changed.append(decision.id)


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
    decisions = read_decisions(manifest)
    rejected = {*read_rejected(manifest), *(u.id for _, u in numbered if u.is_doubtful)}
    kept = [
        (number, edited(utterance, decisions))
        for number, utterance in numbered
        if is_kept(utterance.id, decisions, rejected)
    ]
    if not kept:
        raise UserError(
            f"{manifest}: every utterance is rejected or doubtful ({len(numbered):,} in total); see "
            f"{review_file(manifest)} and {check_folder(manifest) / REJECTED_NAME}"
        )
    if len(kept) < len(numbered):
        logger.info(
            "%s: skipping %d of %d utterances, rejected by the check or in the review, or doubtful",
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
    """Return the utterance with its corrected text, if any, and whether a person confirmed the text.

    A correction confirms a text, but not a doubtful one: its clip is used only if a person keeps it.
    """
    decision = decisions.get(utterance.id)
    if decision is None or (decision.text is None and decision.verdict != "keep"):
        return utterance
    found = utterance.provenance or Provenance(kind="given")
    if decision.verdict == "keep" or not found.is_doubtful:
        found = found.model_copy(update={"is_reviewed": True})
    return replace(utterance, text=decision.text or utterance.text, provenance=found)


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


def read_decisions(manifest: Path) -> Mapping[str, Decision]:
    """Return the decision that counts for each clip; none without a review.

    Raises:
        UserError: a line is not a decision.
    """
    log = DecisionLog(manifest)
    log.refresh()
    return log.decided()


def decide(log: DecisionLog, id: str, changed: Mapping[str, str | None]) -> Made | None:
    """Change the verdict or the text of a clip, sync it to the disk and return the decision.

    What others decided meanwhile counts: only what is named in `changed` is replaced.

    Args:
        changed: `verdict`, `text` or both, as in Decision.

    Returns:
        None if this is the decision already.

    Raises:
        UserError: the file cannot be read or written.
    """
    key = secrets.token_hex(8)

    def line() -> dict[str, Any] | None:
        log.refresh()
        before = log.current(id) or Decision(id=id)
        after = Decision.model_validate({**before.model_dump(), **changed})
        return None if after == before else {"key": key, **after.model_dump()}

    log.refresh()
    if not log.path.exists() and line() is None:
        return None  # not even an empty file: its stages would be out of date
    append_json_line(log.path, line)
    log.refresh()
    return log.find(key)


def undo(log: DecisionLog, key: str) -> Made | None:
    """Cancel the decision with a key and return it; None if it is cancelled already or unknown.

    Raises:
        UserError: the file cannot be read or written.
    """
    log.refresh()
    made = log.find(key)
    if made is not None:
        append_json_line(log.path, {"undo": key})
        log.refresh()
    return made


def _entry(line: bytes) -> _Line | _Undo:
    try:
        return _Undo.model_validate_json(line)
    except ValidationError:
        return _Line.model_validate_json(line)


def _lines_of(path: Path) -> Iterable[tuple[int, dict[str, object]]]:
    return read_json_lines(path) if path.is_file() and path.stat().st_size else ()
