"""The distribution of a pairs file as a picture."""

from pathlib import Path

from matplotlib.figure import Figure

from indextts.data.pair_summary import NUM_BARS, Histogram, PairSummary


def draw(summary: PairSummary, picture: Path) -> None:
    """Write a PNG with pairs and hours of each speaker and the lengths of prompts and targets."""
    figure = Figure(figsize=(12, 6.5), layout="constrained")
    axes = figure.subplots(2, 3)
    shown = summary.speakers[:NUM_BARS]
    places = range(1, len(shown) + 1)  # names may be of any length and script: the text output has them
    for axis, values, title in (
        (axes[0][0], [speaker.num_pairs for speaker in shown], "pairs of a speaker"),
        (axes[0][1], [speaker.target_hours for speaker in shown], "hours of targets of a speaker"),
    ):
        axis.bar(places, values)
        axis.set(title=title, xlabel="speakers, most pairs first")
    histograms: tuple[tuple[Histogram, str, str], ...] = (
        (summary.prompt_uses, "how often a clip is a prompt", "times"),
        (summary.prompt_s, "length of prompts", "s"),
        (summary.target_s, "length of targets", "s"),
        (summary.target_codes, "codes of targets", "codes"),
    )
    for axis, (histogram, title, unit) in zip((axes[0][2], *axes[1]), histograms, strict=True):
        axis.stairs(histogram.counts, histogram.edges, fill=True)
        axis.set(title=title, xlabel=unit)
    figure.suptitle(f"{summary.num_pairs} pairs of {len(summary.speakers)} speakers")
    figure.savefig(picture, dpi=100)
