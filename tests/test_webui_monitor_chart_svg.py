import html
import json
import re

import numpy as np
import pytest

from indextts.webui.language import t
from indextts.webui.monitor.chart_svg import (
    NO_VALUES,
    POINTED,
    Chart,
    Mark,
    Scale,
    Series,
    chart_html,
    number,
)


def series(points: list[tuple[float, float]], **options) -> Series:
    return Series("training", np.array(points, dtype=float).reshape(-1, 2), **options)


def chart(*drawn: Series, span: tuple[float, float] = (0, 100), **options) -> str:
    return chart_html(Chart("Mel loss", "nats/code", drawn, span, **options))


def paths(text: str, css: str) -> list[str]:
    return re.findall(rf'<path class="{css}" d="([^"]*)"/>', text)


def data_of(text: str) -> dict:
    [found] = re.findall(r"data-points='([^']*)'", text)
    return json.loads(html.unescape(found))


def places(text: str, css: str) -> list[list[int]]:
    """Return the points of a line, in units of the svg."""
    [path] = paths(text, css)
    begin, moves = path.removeprefix("M").split("l")
    found = [[int(number) for number in begin.split()]]
    numbers = [int(number) for number in moves.split()]
    for right, down in zip(numbers[::2], numbers[1::2], strict=True):
        found.append([found[-1][0] + right, found[-1][1] + down])
    return found


def test_the_first_logged_point_is_visible():
    text = chart(series([(10, 5.0)]), span=(10, 11))
    assert paths(text, "run-1 training") == []  # a line of one point would be invisible
    [dots] = paths(text, "run-1 training dots")
    assert dots.count("h0") == 1


def test_only_series_with_few_points_have_dots():
    few = chart(series([(step, 1.0) for step in range(POINTED - 1)]))
    many = chart(series([(step, 1.0) for step in range(POINTED)]))
    assert paths(few, "run-1 training dots")
    assert not paths(many, "run-1 training dots")


def test_a_line_goes_from_left_to_right_and_high_values_are_above():
    line = places(chart(series([(0, 1.0), (50, 2.0), (100, 3.0)])), "run-1 training")
    across, down = zip(*line, strict=True)
    assert list(across) == sorted(across)
    assert list(down) == sorted(down, reverse=True)
    assert line[1] == [500, 500]


def test_the_pointer_reads_steps_and_values_but_no_unsmoothed_line():
    text = chart(
        series([(0, 9.0), (100, 9.0)], kind="raw"),
        series([(0, 1.23456789), (100, 2.0)]),
    )
    data = data_of(text)
    [only] = data["series"]
    assert (only["steps"], only["values"]) == ([0, 100], [1.2346, 2.0])
    assert data["span"][0] < 0 < 100 < data["span"][1]


def test_names_and_titles_are_escaped():
    hostile = "<b id='planted'>&amp;\"</b>"
    text = chart_html(
        Chart(
            hostile,
            hostile,
            [Series(hostile, np.array([[0.0, 1.0]]))],
            (0, 1),
            [Mark(0, hostile, "best", 1.0)],
        )
    )
    assert "<b id" not in text
    assert data_of(text)["series"][0]["name"] == hostile


def test_without_values_a_sentence_takes_the_place_of_the_lines():
    for text in (chart(), chart(series([]))):
        assert t(NO_VALUES) in text
        assert "<svg" not in text


def test_marks_outside_the_span_are_left_out():
    marks = [Mark(10, "resumed", "resume"), Mark(50, "best 1", "best", 1.0), Mark(500, "resumed", "resume")]
    text = chart(series([(0, 1.0), (100, 2.0)]), marks=marks)
    assert paths(text, "resume")[0].count("v1000") == 1
    assert paths(text, "best")[0].count("v1000") == 1
    assert text.count('class="best-dot"') == 1


def test_marks_close_together_share_one_text():
    marks = [Mark(step, "resumed", "resume") for step in range(0, 100, 2)]
    text = chart(series([(0, 1.0), (100, 2.0)]), marks=marks)
    assert 1 < text.count('class="flag') < 10
    assert paths(text, "resume")[0].count("v1000") == 50


def test_a_zoomed_chart_offers_all_steps():
    assert "data-show-all" not in chart(series([(0, 1.0)]))
    assert "data-show-all" in chart(series([(0, 1.0)]), is_zoomed=True)


def test_an_outlier_of_the_unsmoothed_values_does_not_flatten_the_line():
    raw = [(step, 2.0) for step in range(99)] + [(99, 1_000.0)]
    smooth = [(step, 1.0 + step / 100) for step in range(100)]
    line = places(chart(series(raw, kind="raw"), series(smooth)), "run-1 training")
    assert line[0][1] - line[-1][1] > 400


@pytest.mark.parametrize(
    ("value", "is_log"),
    [
        *((value, False) for value in (0.0, 1e-9, 4.0, -3.0, 1e9)),
        *((value, True) for value in (1e-9, 4.0, 1e9)),  # a logarithm needs a value above 0
    ],
)
def test_equal_values_are_drawn(value: float, is_log: bool):
    text = chart(series([(0, value), (100, value)]), is_log=is_log)
    assert len({down for _, down in places(text, "run-1 training")}) == 1


def test_the_size_follows_the_screen():
    steps = np.linspace(0, 100, 602)
    drawn = [
        Series(str(run), np.stack([steps, np.sin(steps) + 2], axis=1), run, "training") for run in range(1, 5)
    ]
    text = chart(*drawn)
    assert len(text) < 80_000
    assert text.count("<") - text.count("</") < 60


@pytest.mark.parametrize(
    ("scale", "wanted", "ticks"),
    [
        (Scale(0, 236), 6, [0, 50, 100, 150, 200]),
        (Scale(1.2, 5.8), 5, [2, 3, 4, 5]),
        (Scale(0.5, 200, is_log=True), 5, [0.5, 1, 2, 5, 10, 20, 50, 100, 200]),
        (Scale(1e-6, 1e3, is_log=True), 5, [10.0**power for power in range(-6, 4)]),
    ],
)
def test_ticks_are_round_numbers(scale: Scale, wanted: int, ticks: list[float]):
    assert sorted(scale.ticks(wanted)) == pytest.approx(ticks)


@pytest.mark.parametrize("scale", [Scale(1.61, 1.64, is_log=True), Scale(0.99, 1.01), Scale(-5, 1e-3)])
def test_a_narrow_scale_has_ticks_too(scale: Scale):
    assert 2 <= len(scale.ticks(5)) <= 10
    assert all(scale.low - 1e-9 <= tick <= scale.high + 1e-9 for tick in scale.ticks(5))


def test_numbers_are_short():
    found = [number(value) for value in (0, 5e-5, 1.2345e-4, 0.25, 1.6420, 812.3, 1480.4, 1e6)]
    assert found == ["0", "5e-5", "1.23e-4", "0.25", "1.642", "812.3", "1,480", "1,000,000"]
