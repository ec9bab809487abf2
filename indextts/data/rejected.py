"""Recordings that preprocessing rejects, with reasons, and the file of those of any stage. No torch here.

    OUTPUT_DIR/rejected.jsonl    absent if there are none
      {"id": "rec_0001", "audio": "/data/rec_0001.wav", "code": "truncated", "reason": "the recording ..."}

indextts/features/audio.py defines the values of `code`. The file describes the last run only; the next run
encodes a recording that was repaired.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from indextts.data.manifest import Utterance
from indextts.features.audio import ReasonCode, RecordingError
from indextts.system.json_lines import json_lines_if_any, write_json_lines

REJECTED_NAME = "rejected.jsonl"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A rejected recording."""

    id: str
    audio: Path
    code: ReasonCode
    reason: str

    @property
    def record(self) -> dict[str, object]:
        """The line of the file."""
        return {**asdict(self), "audio": str(self.audio)}

    @classmethod
    def of(cls, utterance: Utterance, code: ReasonCode, reason: str) -> Self:
        return cls(utterance.id, utterance.audio, code, reason)

    @classmethod
    def from_error(cls, utterance: Utterance, error: RecordingError) -> Self:
        return cls.of(utterance, error.code, error.reason)


def write_rejected(
    output_dir: Path, records: Sequence[dict[str, object]], sources: Collection[str] = ()
) -> None:
    """Write the file, or remove an earlier one if nothing is rejected.

    Args:
        sources: of an import; the records of its other sources stay.

    Raises:
        UserError: the file cannot be written.
    """
    path = output_dir / REJECTED_NAME
    before = json_lines_if_any(path) if sources else ()
    kept = [record for _, record in before if record.get("source") not in sources]
    if kept or records:
        write_json_lines(path, [*kept, *records])
    else:
        path.unlink(missing_ok=True)


def counts_by_code(counts: Mapping[str, int]) -> str:
    """Return the counts as text, in descending order: "2 too_long, 1 missing"."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count} {code}" for code, count in ordered)


def rejected_counts(rejected: Iterable[Rejected]) -> str:
    """Return the counts by code: "3 rejected (2 too_long, 1 missing)"."""
    codes = Counter(str(one.code) for one in rejected)
    return f"{codes.total()} rejected" + (f" ({counts_by_code(codes)})" if codes else "")


def all_rejected(
    numbered: Sequence[tuple[int, Utterance]],
    rejected: Sequence[Rejected],
    keys: Mapping[str, str],
    encoded: Set[str],
) -> list[Rejected]:
    """Return every utterance without features and its reason, in the order of the manifest.

    Args:
        rejected: the rejected ones; only one of several utterances with the same recording.
        keys: the key of the recording, by id.
        encoded: ids with features in the store.
    """
    # The key is the id where the recording is unreadable.
    reasons = {keys.get(one.id, one.id): one for one in rejected}
    changed = "changed while it was encoded; run the same command again"
    complete = []
    for _, utterance in numbered:
        same = reasons.get(keys.get(utterance.id, utterance.id))
        if same:
            complete.append(Rejected.of(utterance, same.code, same.reason))
        elif utterance.id not in encoded:
            complete.append(Rejected.of(utterance, "changed", changed))
    return complete
