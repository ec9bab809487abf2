"""Record of the clips that were cleaned of hum (sound_cleaning.py). No torch here.

    DATASET/
      audio/NAME.wav           the input stays
      audio/NAME-clean.flac    cleaned, mono at the rate of the input; in the manifest if it is better
      cleaned.jsonl            {"id", "input": name or path,
                                "input_sha256", "original", "before": {"sig", "bak", "ovrl", "snr_db"},
                                "after": {..., "lost"}, "is_used"}

The file has a line for each clip that was tried; the newest of a clip counts.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from indextts.system.json_lines import json_lines_if_any

CLEANED_NAME = "cleaned.jsonl"
# Reasons of the check: tones in the pauses are called music.
MAY_HUM = (
    *("noisy", "some_noise", "music", "some_music"),
    *("loud_background", "background", "some_background"),
)


def read_cleaned(manifest: Path) -> dict[str, dict[str, Any]]:
    """Return the newest record of each clip that was tried; empty before."""
    lines = json_lines_if_any(manifest.parent / CLEANED_NAME)
    return {str(record.get("id")): record for _, record in lines}


def audio_before(manifest: Path, record: Mapping[str, Any] | None) -> Path | None:
    """Return the input of a cleaned clip that is in use; None for other clips."""
    return manifest.parent / "audio" / record["input"] if record and record["is_used"] else None


def shown_scores(record: Mapping[str, Any]) -> str:
    """Return the scores of a record before and after as text: OVRL 2.1 → 3.0, SIG ..."""
    before, after = record["before"], record["after"]
    names = (("ovrl", "OVRL", ".1f"), ("sig", "SIG", ".1f"), ("bak", "BAK", ".1f"), ("snr_db", "SNR", ".0f"))
    shown = [
        f"{shown} {before[name]:{form}} → {after[name]:{form}}{' dB' if name == 'snr_db' else ''}"
        for name, shown, form in names
        if before[name] is not None and after[name] is not None
    ]
    if "lost" in after:
        shown.append(f"{after['lost']:.0%} of the speech lost")
    if "errors" in after:
        shown.append(f"recognizer's errors {before['errors']} → {after['errors']}")
    return ", ".join(shown)
