"""Tests of the charts of tab 5."""

from indextts.data.pair_summary import Histogram, PairSummary, SpeakerPairs
from indextts.webui.pairs.tab import plots_html


def summary(*speakers: SpeakerPairs) -> PairSummary:
    histogram = Histogram.of([1.0, 2.0, 2.5])
    return PairSummary(3, 2, list(speakers), histogram, histogram, histogram, histogram)


def test_there_is_a_chart_for_pairs_hours_and_each_histogram():
    html = plots_html(summary(SpeakerPairs("almaz", 2, 0.5), SpeakerPairs("bekele", 1, 0.25)))
    assert html.count("<svg") == 6
    assert "almaz: 2 " in html
    assert "bekele: 0.25 " in html


def test_the_name_of_a_speaker_is_escaped():
    assert "<img" not in plots_html(summary(SpeakerPairs("<img src=x>", 2, 0.5)))
