"""The rules by which check and review filtered a manifest, beside the manifests made from it. No torch here.

filter_rules.json (preprocessing), NAME.rules.json (export)
  {"manifest": "manifest.jsonl", "sha256": "9c56...",
   "before": {"utterances": 256, "hours": 0.17}, "after": {"utterances": 251, "hours": 0.167},
   "check": {"limits": {"min_snr_db": 15.0, ...},     null for a check of an earlier version
             "normalizer": {"version": ..., ...},
             "rejected": {"noisy": 4, "clipped": 2},   a clip can have several reasons
             "sha256": "0f3a..."},                     of rejected.jsonl; "check" is null without a check
   "review": {"kept": 2, "rejected": 1, "corrected_texts": 7, "sha256": "77ab..."}}    null without one
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from indextts.data.manifest import Utterance, read_utterances, write_utterances
from indextts.data.review import (
    check_folder,
    overlay_files,
    read_decisions,
    read_rejected,
    read_reviewed,
    review_file,
)
from indextts.errors import disk_errors
from indextts.system.digest import file_sha256
from indextts.system.files import write_json

RULES_NAME = "filter_rules.json"
LIMITS_NAME = "limits.json"
NORMALIZER_NAME = "normalizer.json"


def rules_of(manifest: Path, kept: Sequence[Utterance]) -> Mapping[str, Any]:
    """Return the rules by which `kept` was just read from a manifest.

    Raises:
        UserError: a file of the check or the review is invalid.
    """
    _, rejected = overlay_files(manifest)
    return {
        "manifest": manifest.name,
        "sha256": file_sha256(manifest),
        "before": _amounts(read_utterances(manifest)),
        "after": _amounts(kept),
        "check": _check(manifest) if rejected.is_file() else None,
        "review": _review(manifest) if review_file(manifest).is_file() else None,
    }


def export_reviewed(manifest: Path, output: Path) -> Mapping[str, Any]:
    """Write the utterances to use, with corrected texts, as a manifest with its rules beside it.

    Returns:
        The rules.

    Raises:
        UserError: as `read_reviewed`, or the files cannot be written.
    """
    kept = [utterance for _, utterance in read_reviewed(manifest)]
    rules = rules_of(manifest, kept)
    write_utterances(output, kept, keeps_links=True)
    with disk_errors(output):
        write_json(rules_file(output), rules)
    return rules


def rules_file(output: Path) -> Path:
    """Return the file with the rules of an exported manifest."""
    return output.with_suffix(".rules.json")


def _amounts(utterances: Sequence[Utterance]) -> dict[str, float]:
    seconds = sum(utterance.duration_s for utterance in utterances)
    return {"utterances": len(utterances), "hours": round(seconds / 3600, 4)}


def _check(manifest: Path) -> dict[str, Any]:
    folder = check_folder(manifest)
    reasons = Counter(reason for found in read_rejected(manifest).values() for reason in found)
    return {
        "limits": _read_json(folder / LIMITS_NAME),
        "normalizer": _read_json(folder / NORMALIZER_NAME),
        "rejected": dict(reasons.most_common()),
        "sha256": file_sha256(overlay_files(manifest)[1]),
    }


def _review(manifest: Path) -> dict[str, Any]:
    decisions = read_decisions(manifest).values()
    verdicts = Counter(decision.verdict for decision in decisions)
    return {
        "kept": verdicts["keep"],
        "rejected": verdicts["reject"],
        "corrected_texts": sum(decision.text is not None for decision in decisions),
        "sha256": file_sha256(review_file(manifest)),
    }


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
