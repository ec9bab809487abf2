import math
import random
from itertools import pairwise

import pytest

from indextts.webui.language import t
from indextts.webui.monitor.charts import (
    AS_LOGGED,
    MAX_POINTS,
    ComparedRun,
    DisplayOptions,
    curves,
    decimate,
    for_plot,
    part_of,
    resumes,
    smoothed,
)
from tests.metrics_lines import point, start


def drawn(frame, name: str) -> list[list[float]]:
    """Return step and value of each point of a series."""
    return frame[frame["series"] == name][["step", "value"]].values.tolist()


def test_without_lines_the_frame_is_empty_with_the_right_types():
    frame = curves([], "text_loss")
    assert frame.empty
    assert [str(dtype) for dtype in frame.dtypes] == ["float64", "float64", "str"]


def test_curves_are_named_and_have_no_gaps():
    lines = [point(0, 3.0, kind="val"), point(1, 2.0), point(2, None), point(3, math.nan), point(4, 1.0)]
    assert curves(lines, "text_loss").values.tolist() == [
        [1.0, 2.0, "training"],
        [4.0, 1.0, "training"],
        [0.0, 3.0, "validation"],
    ]


def test_the_newest_part_is_drawn_and_another_part_or_run_beside_it():
    lines = [point(1, 5.0), point(2, 4.0), point(1, 3.0, part=2)]
    assert curves(lines, "mel_loss").values.tolist() == [[1.0, 3.0, "training"]]
    compared = [ComparedRun("part 1", part_of(lines, 1)), ComparedRun("other", [point(7, 9.0, kind="val")])]
    assert curves(lines, "mel_loss", compared=compared).values.tolist() == [
        [1.0, 3.0, "training"],
        [1.0, 5.0, "training, part 1"],
        [2.0, 4.0, "training, part 1"],
        [7.0, 9.0, "validation, other"],
    ]


def test_a_constant_curve_is_its_own_running_mean_from_the_first_point_on():
    points = [(float(step), 4.0) for step in range(1, 50)]
    for (_, value), (_, mean) in zip(points, smoothed(points, 0.98), strict=True):
        assert mean == pytest.approx(value)


def test_the_running_mean_weighs_each_point_by_its_age():
    assert smoothed([(1.0, 1.0), (2.0, 2.0), (3.0, 4.0)], 0.5) == [
        (1.0, 1.0),
        (2.0, pytest.approx((0.5 * 1 + 2) / 1.5)),
        (3.0, pytest.approx((0.25 * 1 + 0.5 * 2 + 4) / 1.75)),
    ]


def test_smoothing_keeps_the_logged_curve_and_does_not_change_validations():
    generator = random.Random(0)
    lines = [start(0)]
    for step in range(1, 500):
        lines.append(point(step, 4.0 + generator.gauss(0, 0.5)))
        if step % 50 == 0:
            lines.append(point(step, 4.0 + generator.gauss(0, 0.5), kind="val"))
    plain, smooth = (
        curves(lines, "mel_loss"),
        curves(lines, "mel_loss", display=DisplayOptions(smoothing=0.95)),
    )
    name = "training"
    assert drawn(smooth, t(AS_LOGGED)) == drawn(plain, name)
    assert drawn(smooth, "validation") == drawn(plain, "validation")
    late = [value for _, value in drawn(smooth, name)][100:]
    assert max(late) - min(late) < 0.6  # of raw values that lie 3 apart
    assert abs(sum(late) / len(late) - 4.0) < 0.05


def test_the_learning_rate_is_drawn_as_it_is():
    lines = [point(step) | {"lr": float(step)} for step in range(1, 100)]
    frame = curves(lines, "lr", display=DisplayOptions(smoothing=0.9))
    assert drawn(frame, "training") == [[float(step), float(step)] for step in range(1, 100)]
    assert set(frame["series"]) == {"training"}


def test_only_the_steps_of_the_range_are_drawn_smoothed_over_those_before_too():
    lines = [point(step, 10.0 if step <= 50 else 1.0) for step in range(1, 101)]
    frame = curves(lines, "mel_loss", display=DisplayOptions(smoothing=0.9, first=51, last=60))
    steps = [step for step, _ in drawn(frame, "training")]
    assert steps == [float(step) for step in range(51, 61)]
    assert drawn(frame, "training")[0][1] > 5


def test_a_narrow_range_of_a_long_run_shows_every_line_again():
    lines = [point(step, float(step)) for step in range(1, 15_001)]
    assert len(curves(lines, "mel_loss")) == MAX_POINTS
    few = curves(lines, "mel_loss", display=DisplayOptions(first=7_000, last=7_400))
    assert [value for _, value in drawn(few, "training")] == [float(s) for s in range(7_000, 7_401)]


def test_the_logarithm_is_drawn_of_positive_values():
    lines = [point(1, 100.0), point(2, 0.0), point(3, 0.01)]
    frame = curves(lines, "mel_loss", display=DisplayOptions(is_log=True))
    assert drawn(frame, "training") == [[1.0, 2.0], [3.0, pytest.approx(-2.0)]]


def test_a_day_of_many_runs_is_drawn_with_few_points():
    lines = [point(step, 1.0) for step in range(1, 20_001)]
    compared = [ComparedRun(str(number), lines) for number in range(3)]
    frame = curves(lines, "mel_loss", display=DisplayOptions(smoothing=0.9), compared=compared)
    assert frame.groupby("series").size().to_list() == [MAX_POINTS] * 5


def test_points_after_the_step_of_a_resume_are_not_drawn_until_repeated():
    lines = [start(0), point(10), point(20), point(30, 9.0), start(20), point(25)]
    assert curves(lines, "text_loss")["step"].tolist() == [10.0, 20.0, 25.0]
    assert resumes(lines) == [20]
    assert resumes([*lines, start(10)]) == [10]
    assert resumes([*lines, start(0, part=2)]) == []
    assert resumes([]) == []


@pytest.mark.parametrize("count", [0, 1, 2, MAX_POINTS, MAX_POINTS + 1, 1_999, 100_000])
def test_decimation_keeps_both_ends_and_at_most_the_maximum_number_of_points(count: int):
    points = [(float(step), 2.0 * step) for step in range(count)]
    few = decimate(points)
    assert len(few) == min(count, MAX_POINTS)
    assert few[:1] == points[:1]
    assert few[-1:] == points[-1:]
    assert all(step < later for (step, _), (later, _) in pairwise(few))
    assert all(value == pytest.approx(2 * step) for step, value in few)


def test_a_plot_names_its_series_and_marks_resumes_with_gaps_between():
    frame = for_plot(curves([point(1, 1.0), point(2, 4.0)], "text_loss"), ["training"], [2])
    assert frame["step"].tolist()[1:] == [1.0, 2.0, 2.0, 2.0, 2.0]
    assert frame["value"].tolist()[1:-1] == [1.0, 4.0, 1.0, 4.0]
    assert math.isnan(frame["value"].iloc[0])
    assert math.isnan(frame["value"].iloc[-1])
    assert frame["series"].unique().tolist() == ["training", "resumed"]
