"""Tests of indextts/webui/plots.py, and of the charts of tab 5."""

import re

import pytest

from indextts.data.pair_summary import Histogram, PairSummary, SpeakerPairs
from indextts.webui.pairs.tab import plots_html, speakers_html
from indextts.webui.plots import HEIGHT, WIDTH, Threshold, histogram_svg


def numbers(svg: str, attribute: str) -> list[float]:
    return [float(text) for text in re.findall(rf' {attribute}="([\d.]+)"', svg)]


def test_the_bars_of_a_histogram_are_as_high_as_their_counts():
    svg = histogram_svg([1, 4, 2], [1e-5, 1.0, 2.0, 3.0], unit="s", name="Duration")
    rects = re.findall(r"<rect.*?</rect>", svg)
    assert [numbers(rect, "height")[0] for rect in rects] == [HEIGHT / 4, HEIGHT, HEIGHT / 2]
    assert sum(numbers(rect, "width")[0] for rect in rects) == pytest.approx(WIDTH)
    assert "1 \u2013 2 s: 4" in svg
    assert "<span>0</span>" in svg  # not 1e-05


def test_a_threshold_stands_at_its_value_and_outside_the_edges_nowhere():
    thresholds = [Threshold(2.0), Threshold(3.0, "warn"), Threshold(9.0)]
    svg = histogram_svg([1, 1], [1.0, 2.0, 3.0], thresholds)
    assert re.findall(r'class="limit (\w+)" x1="([\d.]+)"', svg) == [
        ("bad", f"{WIDTH / 2:.2f}"),
        ("warn", f"{WIDTH:.2f}"),
    ]


def test_names_are_escaped():
    evil = "<img src=x onerror=alert(1)>"
    assert "<img" not in histogram_svg([1], [0, 1], (), evil, name=evil, remark=evil)


def test_tab_5_shows_a_histogram_each_and_the_limit_of_the_similarity():
    lengths, cosines = Histogram.of([1.0, 2.0, 2.5]), Histogram.of([0.2, 0.6, 1.0])
    speakers = [SpeakerPairs("almaz", 2, 0.5, 34.0, 3), SpeakerPairs("<b>", 1, 0.25)]
    summary = PairSummary(3, 2, speakers, lengths, lengths, lengths, cosines, 0.5, 33.0, 1)
    html = plots_html(summary)
    assert (html.count("<svg"), html.count('class="limit')) == (4, 1)
    assert "33 %" in html
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in speakers_html(summary).split("<tr")[2:]]
    assert [(row[0], *row[-2:]) for row in rows] == [("almaz", "34", "3"), ("&lt;b&gt;", "-", "0")]
    assert plots_html(PairSummary(3, 2, speakers, lengths, lengths, lengths)).count("<svg") == 3
