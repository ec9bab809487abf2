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
                                "heard": the transcript of the recognizer, or null}
      measured/                measures of each recording (clips.py), and what models heard

The next check reuses measured/ for files with the same bytes.
"""

from collections.abc import Sequence
from pathlib import Path

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.commands.quality_limits import QualityLimits
from indextts.data.quality.clips import Clip
from indextts.data.quality.summary import OVERVIEW_NAME, Overview
from indextts.data.review import REJECTED_NAME
from indextts.data.review_table import CLIPS_NAME
from indextts.data.text_report import TEXTS_NAME, TextReport
from indextts.system.files import write_json
from indextts.system.json_lines import write_json_lines

REPORT_NAME = "report.txt"


def write_files(
    folder: Path,
    clips: Sequence[Clip],
    limits: QualityLimits,
    options: NormalizerOptions,
    overview: Overview,
    texts: TextReport,
) -> None:
    """Write all files but the printed reports; rejected.jsonl, which other stages read, is last."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / TEXTS_NAME, texts.model_dump())
    write_json(folder / OVERVIEW_NAME, overview.model_dump())
    write_json_lines(folder / CLIPS_NAME, map(_clip_record, clips))
    write_json(folder / "normalizer.json", options.record)
    write_json(folder / "limits.json", {name: getattr(limits, name) for name in QualityLimits.model_fields})
    write_json_lines(folder / REJECTED_NAME, (_rejected_record(clip) for clip in clips if clip.is_rejected))


def _clip_record(clip: Clip) -> dict[str, object]:
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
