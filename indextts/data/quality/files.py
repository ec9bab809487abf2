"""Output files of a check.

    REPORT_DIR/                later stages use the verdicts in FOLDER_OF_THE_MANIFEST/check (data/review.py)
      report.txt               the printed reports
      overview.json            totals, reasons and histograms (summary.py)
      texts.json               forms that need a reading, texts with two readings (data/text_report.py)
      normalizer.json          version and options of the normaliser
      limits.json              the limits of the check, by the names of QualityLimits
      rejected.jsonl           {"id", "speaker", "audio", "text", "reasons": ["noisy", ...],
                                "said": the descriptions, ["low signal-to-noise ratio: 8.1 dB", ...]}
      clips.jsonl              {"id", "verdict": "good" | "warned" | "rejected",
                                "flags": [{"reason", "severity", "said"}, ...],
                                "measures": {...}: null if undefined,
                                "audio": null or {"version", "file_sha256", "samples_sha256",
                                                  "fingerprint" (copies.py), "measures"},
                                "heard": the transcript of the recognizer, or null}

The next check reuses `audio` of clips.jsonl for files with the same bytes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.commands.quality_limits import QualityLimits
from indextts.data.quality.clips import Clip, Sound
from indextts.data.quality.copies import parse_fingerprint
from indextts.data.quality.measures import MEASURES_VERSION
from indextts.data.review import REJECTED_NAME
from indextts.errors import UserError
from indextts.system.files import write_json
from indextts.system.json_lines import json_lines_if_any, write_json_lines

CLIPS_NAME = "clips.jsonl"
REPORT_NAME = "report.txt"


def write_files(
    folder: Path, clips: Sequence[Clip], limits: QualityLimits, options: NormalizerOptions
) -> None:
    """Write the files on single clips and the settings; rejected.jsonl, which other stages read, is last."""
    write_json_lines(folder / CLIPS_NAME, map(_clip_record, clips))
    write_json(folder / "normalizer.json", options.record)
    write_json(folder / "limits.json", {name: getattr(limits, name) for name in QualityLimits.model_fields})
    write_json_lines(folder / REJECTED_NAME, (_rejected_record(clip) for clip in clips if clip.is_rejected))


def read_known(folder: Path | None) -> Mapping[str, Sound]:
    """Return the measures of an earlier check with the same version, by the digest of the file."""
    if folder is None:
        return {}
    known = {}
    try:
        for _, record in json_lines_if_any(folder / CLIPS_NAME):
            audio: Any = record.get("audio")
            if isinstance(audio, dict) and audio.pop("version") == MEASURES_VERSION:
                fingerprint = parse_fingerprint(audio.pop("fingerprint"))
                known[audio["file_sha256"]] = Sound(**audio, fingerprint=fingerprint)
    except (UserError, KeyError, TypeError, ValueError):  # corrupt: measure everything again
        return {}
    return known


def _clip_record(clip: Clip) -> dict[str, object]:
    sound = clip.sound
    known = {
        "version": MEASURES_VERSION,
        "file_sha256": sound.file_sha256,
        "samples_sha256": sound.samples_sha256,
        "fingerprint": str(sound.fingerprint),
        "measures": sound.measures,
    }
    return {
        "id": clip.utterance.id,
        "verdict": clip.verdict,
        "flags": [
            {"reason": flag.reason, "severity": flag.severity, "said": flag.description}
            for flag in clip.flags
        ],
        "measures": {
            name: None if value is None else round(value, 3) for name, value in clip.measures.items()
        },
        "audio": None if sound.measures is None else known,
        "heard": clip.heard.text if clip.heard else None,
    }


def _rejected_record(clip: Clip) -> dict[str, object]:
    return {
        "id": clip.utterance.id,
        "speaker": clip.utterance.speaker,
        "audio": str(clip.utterance.audio),
        "text": clip.utterance.text,
        "reasons": [flag.reason for flag in clip.flags],
        "said": [flag.description for flag in clip.flags],
    }
