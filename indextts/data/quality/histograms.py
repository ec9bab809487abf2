"""The measures of a set as one picture: a histogram of each, with the limits."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from indextts.commands.quality_limits import QualityLimits
from indextts.data.quality.reasons import REASONS
from indextts.data.quality.verdicts import Verdict

PANELS = {
    "duration_s": "duration (s)",
    "fidel_per_s": "fidel per second",
    "snr_db": "SNR (dB)",
    "silence_percent": "silence (%)",
    "rms_dbfs": "RMS (dBFS)",
    "loudness_lufs": "loudness (LUFS)",
    "bandwidth_hz": "bandwidth (Hz)",
    "clipped_percent": "clipped samples (%)",
    "ethiopic_percent": "Ethiopic letters (%)",
}
NUM_BINS = 40
COLUMNS = 3


def write_histograms(path: Path, verdicts: Sequence[Verdict], limits: QualityLimits) -> None:
    """Write the picture as PNG: solid lines where clips are rejected, dashed ones for warnings."""
    rows = -(-len(PANELS) // COLUMNS)
    figure = Figure(figsize=(4 * COLUMNS, 2.4 * rows), layout="constrained", dpi=90)
    FigureCanvasAgg(figure)
    for place, (name, title) in enumerate(PANELS.items()):
        axes = figure.add_subplot(rows, COLUMNS, place + 1)
        values = [value for verdict in verdicts if (value := verdict.measures.get(name)) is not None]
        axes.hist(values, bins=NUM_BINS, color="#3b6ea5")
        low, high = axes.get_xlim()
        for reason in REASONS:
            limit = getattr(limits, reason.limit) if reason.measure == name and reason.limit else None
            if limit is not None and low <= limit <= high:
                axes.axvline(limit, color="#b03a2e", linestyle="-" if reason.is_hard else "--", linewidth=1)
        axes.set_title(f"{title}, {len(values)} clips", fontsize=9)
        axes.tick_params(labelsize=8)
    aside = path.with_name(f".tmp-{path.name}")
    figure.savefig(aside, format="png")
    aside.replace(path)
