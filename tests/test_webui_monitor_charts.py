import json
import math
import random
import re
from html import unescape
from itertools import pairwise

import numpy as np
import pytest

from indextts.webui.language import t
from indextts.webui.monitor.charts import (
    BUCKETS,
    DisplayOptions,
    DrawnRun,
    Mark,
    Series,
    best_validation,
    chart_html,
    curves,
    decimate,
    in_range,
    marks,
    run_of,
    span_of,
)
from tests.metrics_lines import point, start


def lines_of(
    *runs: DrawnRun, metric: str = "mel_loss", **display
) -> dict[tuple[str, str], list[list[float]]]:
    """Return the points of each line by its name and kind."""
    found = curves(runs, metric, DisplayOptions(**display))
    return {(each.name, each.kind): each.points.tolist() for each in found}


def steps_of(*runs: DrawnRun, **display) -> list[float]:
    return [step for step, _ in lines_of(*runs, **display)["training", "training"]]


def test_without_lines_nothing_is_drawn():
    empty = run_of([])
    assert curves([empty], "text_loss") == []
    assert span_of([empty]) == (0, 1)
    assert (marks(empty, "mel_loss"), best_validation(empty)) == ([], None)


def test_curves_are_named_and_have_no_gaps():
    lines = [point(0, 3.0, kind="val"), point(1, 2.0), point(2, None), point(3, math.nan), point(4, 1.0)]
    assert lines_of(run_of(lines), metric="text_loss") == {
        ("training", "training"): [[1.0, 2.0], [4.0, 1.0]],
        ("validation", "validation"): [[0.0, 3.0]],
    }


def test_the_newest_part_is_drawn_and_another_part_or_run_beside_it():
    lines = [point(1, 5.0), point(2, 4.0), point(1, 3.0, part=2)]
    run = run_of(lines)
    assert lines_of(run) == {("training", "training"): [[1.0, 3.0]]}
    others = [run_of(lines, 1, "part 1"), run_of([point(7, 9.0, kind="val")], name="other")]
    assert lines_of(run, *others) == {
        ("training", "training"): [[1.0, 3.0]],
        ("training, part 1", "training"): [[1.0, 5.0], [2.0, 4.0]],
        ("validation, other", "validation"): [[7.0, 9.0]],
    }
    assert [each.run for each in curves([run, *others], "mel_loss")] == [3, 2, 1]


def test_smoothing_keeps_the_logged_curve_and_does_not_change_validations():
    generator = random.Random(0)
    lines = [start(0)]
    for step in range(1, 500):
        lines.append(point(step, 4.0 + generator.gauss(0, 0.5)))
        if step % 50 == 0:
            lines.append(point(step, 4.0 + generator.gauss(0, 0.5), kind="val"))
    run = run_of(lines)
    plain, smooth = lines_of(run), lines_of(run, smoothing=0.95)
    assert smooth["training", "raw"] == plain["training", "training"]
    assert smooth["validation", "validation"] == plain["validation", "validation"]
    late = [value for _, value in smooth["training", "training"]][100:]
    assert max(late) - min(late) < 0.8  # of raw values that lie 3 apart
    assert abs(sum(late) / len(late) - 4.0) < 0.05


def test_only_a_range_of_steps_is_drawn_and_its_lines_go_on_at_both_ends():
    run = run_of([point(step, 10.0 if step <= 50 else 1.0) for step in range(1, 101)])
    assert steps_of(run, span=(51, 60)) == [float(step) for step in range(50, 62)]
    assert steps_of(run, span=(51, 52)) == [50.0, 51.0, 52.0, 53.0]
    assert span_of([run], DisplayOptions(span=(51, 60))) == (51, 60)
    smooth = lines_of(run, span=(51, 60), smoothing=0.99)["training", "training"]
    assert smooth[0][1] == pytest.approx(10)  # the mean of the steps before is in it
    assert in_range(np.empty((0, 2)), 1, 2).tolist() == []


def test_a_narrow_range_of_a_long_run_shows_every_line_again():
    run = run_of([point(step, float(step)) for step in range(1, 15_001)])
    assert len(steps_of(run)) <= 2 * BUCKETS + 2
    assert steps_of(run, span=(7_000, 7_400)) == [float(step) for step in range(6_999, 7_402)]


def test_a_logarithmic_scale_skips_values_that_have_no_logarithm():
    run = run_of([point(1, 100.0), point(2, 0.0), point(3, 0.01)])
    assert lines_of(run, is_log=True) == {("training", "training"): [[1.0, 100.0], [3.0, 0.01]]}


def test_resumes_and_the_best_validation_are_marked():
    lines = [
        start(0),
        point(0, 1.0, kind="val"),  # of the untrained model
        point(10, 3.0, kind="val"),
        start(10),
        point(20, 2.0, kind="val"),
        point(30, 2.5, kind="val"),
    ]
    run = run_of(lines)
    assert [(mark.step, mark.kind, mark.value) for mark in marks(run, "text_loss")] == [
        (10, "resume", None),
        (20, "best", 2.0),
    ]
    assert [mark.kind for mark in marks(run, "lr")] == ["resume"]
    assert marks(run, "mel_loss")[1].text == "best 2"
    # the step of the lowest mel loss is not that of the lowest text loss
    assert marks(run, "text_loss")[1].text == "at the best step: 2"


@pytest.mark.parametrize("count", [0, 1, 2, 2 * BUCKETS, 2 * BUCKETS + 1, 1_999, 100_000])
def test_decimation_keeps_both_ends_and_at_most_two_points_of_a_bucket(count: int):
    points = np.array([(float(step), 2.0 * step) for step in range(count)]).reshape(-1, 2)
    few = decimate(points).tolist()
    assert len(few) <= 2 * BUCKETS + 2
    assert few[:1] == points[:1].tolist()
    assert few[-1:] == points[-1:].tolist()
    assert all(step < later for (step, _), (later, _) in pairwise(few))
    assert all(value == 2 * step for step, value in few)


def test_a_single_outlier_of_a_long_run_stays_visible():
    points = np.array([(float(step), 1.0) for step in range(100_000)])
    points[54_321, 1], points[54_322, 1] = 9.0, -9.0
    few = decimate(points).tolist()
    assert [54_321.0, 9.0] in few
    assert [54_322.0, -9.0] in few


def test_a_chart_has_the_numbers_that_the_browser_draws_and_every_text_is_escaped():
    hostile = "<b id='planted'>&amp;\"</b>"
    points = np.array([[0.0, 1.23456789], [100.0, 2.0]])
    series = [Series(hostile, points, kind="raw"), Series(hostile, points)]
    shown = DisplayOptions(span=(0.0, 100.0), is_log=True)
    html = chart_html(hostile, hostile, series, [Mark(50, hostile, "best", 1.0)], shown, is_zoomed=True)
    assert "<b id" not in html
    assert html.count('class="key ') == 1  # none for the unsmoothed line
    assert "data-show-all" in html
    [found] = re.findall(r'data-points="([^"]*)"', html)
    data = json.loads(unescape(found))
    assert (data["span"], data["is_log"]) == ([0.0, 100.0], True)
    assert [each["css"] for each in data["series"]] == ["run-1 raw", "run-1 training"]
    assert (data["series"][1]["steps"], data["series"][1]["values"]) == ([0, 100], [1.2346, 2.0])
    assert data["marks"] == [{"step": 50, "text": hostile, "kind": "best", "value": 1.0}]
    for nothing in ([], [Series("training", points[:0])]):
        html = chart_html("Loss", "nats", nothing, [], shown)
        assert t("monitor.no_values") in html
        assert "data-points" not in html
