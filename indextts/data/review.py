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
      check/rejected.jsonl   verdicts of the check: {"id": "rec_0007", "reasons": ["noisy", ...], ...}, a line
                             for each clip with a hard reason

The stages after the import read a manifest with `read_reviewed`: without the clips that a person or, failing
that, the check rejected, without doubtful transcripts that nobody kept, and with corrected texts.
"""

import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from indextts.data.manifest import Provenance, Utterance, read_hours, read_numbered_utterances, read_texts
from indextts.data.report import log_hours
from indextts.errors import UserError
from indextts.system.amounts import counted
from indextts.system.files import FileStamp, file_stamp
from indextts.system.json_lines import append_json_line, json_lines_if_any
from indextts.system.yaml_files import problems_of

REVIEW_NAME = "review.jsonl"
CHECK_FOLDER_NAME = "check"
REJECTED_NAME = "rejected.jsonl"


class Decision(BaseModel, frozen=True, extra="forbid"):
    """Decision of a person on a clip; `key` cancels it."""

    key: str = Field("", max_length=64)
    id: str
    verdict: Literal["keep", "reject"] | None = None
    text: str | None = Field(None, min_length=1)


class _Undo(BaseModel, frozen=True, extra="forbid"):
    undo: str


_ENTRY: TypeAdapter[Decision | _Undo] = TypeAdapter(Decision | _Undo)


class DecisionLog:
    """Decisions of a file. Use one at a time from several threads.

    Args:
        made: decisions that are not cancelled, by key, in the order of the file.
        decided: the decision that counts for each clip, in the order in which they were made.
        changed: the clip that each line changed.
    """

    def __init__(self, manifest: Path) -> None:
        self.path = review_file(manifest)
        self.made: Mapping[str, Decision] = {}
        self.decided: Mapping[str, Decision] = {}
        self.changed: Sequence[str] = []
        self._stamp: FileStamp | None = None

    def refresh(self) -> None:
        """Read the file if it changed, without an unacknowledged last line; a UserError for no decision."""
        stamp, content = None, b""
        try:
            stamp = file_stamp(self.path)
            if stamp == self._stamp:
                return
            content = self.path.read_bytes()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read ({error.strerror}); check the file") from None
        made: dict[str, Decision] = {}
        changed: list[str] = []
        for number, line in enumerate(content.split(b"\n")[:-1], start=1):
            if not line.strip():
                continue
            try:
                entry = _ENTRY.validate_json(line)
            except ValidationError as error:
                raise UserError(
                    f"{self.path}:{number}: no decision ({problems_of(error)[0]}); correct or remove the line"
                ) from None
            if isinstance(entry, Decision):
                key = entry.key or f"#{number}"  # of a line that was written by hand
                made[key] = entry.model_copy(update={"key": key})
                changed.append(entry.id)
            elif (undone := made.pop(entry.undo, None)) is not None:
                changed.append(undone.id)
        self.made, self.changed, self._stamp = made, changed, stamp
        self.decided = {decision.id: decision for decision in made.values()}


def review_file(manifest: Path) -> Path:
    return manifest.parent / REVIEW_NAME


def check_folder(manifest: Path) -> Path:
    return manifest.parent / CHECK_FOLDER_NAME


def overlay_files(manifest: Path) -> tuple[Path, Path]:
    """Return the files that `read_reviewed` depends on besides the manifest; they may be absent."""
    return review_file(manifest), check_folder(manifest) / REJECTED_NAME


def read_reviewed(manifest: Path) -> list[tuple[int, Utterance]]:
    """Return the utterances to use with their line numbers; a UserError for invalid files or none left."""
    numbered = read_numbered_utterances(manifest)
    decisions = read_decisions(manifest)
    reasons_of = {u.id: ["doubtful"] for _, u in numbered if u.is_doubtful} | dict(read_rejected(manifest))
    kept = [
        (number, edited(utterance, decisions))
        for number, utterance in numbered
        if is_kept(utterance.id, decisions, reasons_of)
    ]
    if not kept:
        raise UserError(
            f"{manifest}: every utterance is rejected or doubtful ({len(numbered):,} in total); see "
            f"{review_file(manifest)} and {check_folder(manifest) / REJECTED_NAME}; keep clips in the "
            "review, or change the limits and check again"
        )
    if len(kept) < len(numbered):
        used = {utterance.id for _, utterance in kept}
        skipped = [utterance.id for _, utterance in numbered if utterance.id not in used]
        names = Counter(reasons_of.get(id, ("rejected in the review",))[0] for id in skipped).most_common()
        reasons = ", ".join(f"{count} {name}" for name, count in names)
        text = f"{counted(len(skipped), 'utterance')} of {len(numbered):,} skipped ({reasons})"
        log_hours(str(manifest), (u for _, u in numbered), (u for _, u in kept), text)
    return kept


def read_reviewed_texts(manifest: Path) -> list[str]:
    """Return the texts to use; without review and check, of all lines. Errors as for `read_reviewed`."""
    return read_reviewed_speech([manifest])[0]


def read_reviewed_speech(manifests: Iterable[Path]) -> tuple[list[str], float | None]:
    """Return the texts to use and their hours, None without a duration; errors as for `read_reviewed`."""
    texts: list[str] = []
    hours: list[float | None] = []
    for manifest in manifests:
        if any(path.exists() for path in overlay_files(manifest)):
            used = [utterance for _, utterance in read_reviewed(manifest)]
            texts += [utterance.text for utterance in used]
            hours.append(sum(utterance.duration_s for utterance in used) / 3600)
        else:
            texts += read_texts(manifest)
            hours.append(read_hours(manifest))
    return texts, None if None in hours else sum(found for found in hours if found is not None)


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
    """Return the reasons of each clip that the check rejected; a UserError for an invalid line."""
    path = check_folder(manifest) / REJECTED_NAME
    rejected: dict[str, Sequence[str]] = {}
    for number, record in json_lines_if_any(path):
        id, reasons = record.get("id"), record.get("reasons")
        if not isinstance(id, str) or not isinstance(reasons, list):
            raise UserError(f"{path}:{number}: a verdict requires id and reasons; run the data check again")
        rejected[id] = reasons
    return rejected


def read_decisions(manifest: Path) -> Mapping[str, Decision]:
    """Return the decision that counts for each clip; a UserError for a line that is none."""
    log = DecisionLog(manifest)
    log.refresh()
    return log.decided


def decide(log: DecisionLog, ids: Sequence[str], changed: Mapping[str, str | None]) -> list[Decision]:
    """Change the verdict or the text of clips, sync them to the disk and return the decisions.

    What others decided meanwhile counts: only what is named in `changed` is replaced.

    Args:
        changed: `verdict`, `text` or both, as in Decision.

    Returns:
        Those that differ from the decision on their clip so far.

    Raises:
        UserError: the file cannot be read or written.
    """
    key_of = {id: secrets.token_hex(8) for id in ids}

    def lines() -> list[dict[str, Any]]:
        log.refresh()
        before = [log.decided.get(id) or Decision(id=id) for id in ids]
        after = [Decision.model_validate({**each.model_dump(), **changed}) for each in before]
        made = [new for old, new in zip(before, after, strict=True) if new != old]
        return [{**each.model_dump(), "key": key_of[each.id]} for each in made]

    log.refresh()
    if not log.path.exists() and not lines():
        return []  # not even an empty file: its stages would be out of date
    append_json_line(log.path, lines)
    log.refresh()
    return [log.made[key] for key in key_of.values() if key in log.made]


def undo(log: DecisionLog, key: str) -> Decision | None:
    """Cancel and return the decision with a key, None if there is none; errors as for `decide`."""
    log.refresh()
    made = log.made.get(key)
    if made is not None:
        append_json_line(log.path, {"undo": key})
        log.refresh()
    return made
