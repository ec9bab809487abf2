"""Checks of the losses: a plateau, a rising validation loss, a forgotten language, a jump at a resume."""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from indextts.runs.health.observed import Finding, Observed, found

Curve = Sequence[tuple[int, float]]

MIN_PLATEAU = 300  # steps, or a tenth of the run if that is more
MIN_LINES = 10
MAX_WINDOWS = 40
LEARNING_SHARE = 0.2  # of the peak rate; below it, in warm-up and at the end, a loss need not fall
SMALL_FALL = 0.005  # of the loss, over the window
CLEAR_FALL = 0.02  # upper bound of the fall, with the noise added
STANDARD_ERRORS = 3  # with many windows, two would give false alarms
REAL_GAIN = 0.002  # of the best validation, which always has the same pairs and so no noise

RISE = 0.01  # of the best validation
NUM_RISEN = 3  # validations in a row

FORGOTTEN = 0.05  # of the loss of a language at the start
OF_LANGUAGE = "mel_loss_"

JUMP = 0.05  # of the loss
NUM_AROUND = 5  # lines before and after a resume


def plateau(run: Observed) -> Finding | None:
    """Return a finding if the training losses do not fall, for the longest possible window.

    The check fits a straight line to a window that ends with the newest line. The window is flat if the line
    falls by less than SMALL_FALL, and by less than CLEAR_FALL with the noise added, and if no validation in
    it is clearly better than the best one before.
    """
    curve = _while_learning(run, run.curve("train", "mel_loss"))
    total_steps = run.schedule.total_steps if run.schedule else 0
    shortest = max(MIN_PLATEAU, total_steps // 10)
    validations = run.curve("val", "mel_loss")
    for first in _window_starts(curve, shortest):
        window = curve[first:]
        if not _is_flat(window) or _has_gained(validations, since=window[0][0]):
            continue
        text = [point for point in run.curve("train", "text_loss") if point[0] >= window[0][0]]
        text = text[: len(window)]
        is_all_flat = len(text) >= MIN_LINES and _is_flat(text)
        before, after = _ends_of_line(window)
        text_before, text_after = _ends_of_line(text) if len(text) > 1 else (math.nan, math.nan)
        return found(
            "plateau",
            "problem" if is_all_flat else "warning",
            "health.plateau" if is_all_flat else "health.plateau_of_speech",
            steps=window[-1][0] - window[0][0],
            first=window[0][0],
            last=window[-1][0],
            before=before,
            after=after,
            num_lines=len(window),
            text_before=text_before,
            text_after=text_after,
        )
    return None


def validation_rising(run: Observed) -> Finding | None:
    """Return a finding if the last validations are all worse than the best one by more than RISE."""
    curve = [point for point in run.curve("val", "mel_loss") if point[0] > 0]
    if not curve:
        return None
    best = min(range(len(curve)), key=lambda index: curve[index][1])
    last = curve[best + 1 :][-NUM_RISEN:]
    lowest = curve[best][1]
    if len(last) < NUM_RISEN or min(value for _, value in last) <= lowest * (1 + RISE):
        return None
    now, best_step, step = float(np.mean([value for _, value in last])), curve[best][0], last[-1][0]
    return found(
        "validation_rising", "warning", best=lowest, best_step=best_step, number=NUM_RISEN, now=now, step=step
    )


def language_forgotten(run: Observed) -> Finding | None:
    """Return a finding for the language whose validation loss rose most over its value at the start.

    The language that is learned falls far below its start, so the check needs not know which one it is.
    """
    lines = run.of_kind("val")
    codes = {
        name.removeprefix(OF_LANGUAGE) for line in lines for name in line if name.startswith(OF_LANGUAGE)
    }
    curves = {code: run.curve("val", OF_LANGUAGE + code) for code in sorted(codes)}
    rises = {code: curve[-1][1] / curve[0][1] - 1 for code, curve in curves.items() if curve}
    code = max(rises, key=lambda code: rises[code], default="")
    if not code or rises[code] <= FORGOTTEN:
        return None
    (first_step, first), (step, now) = curves[code][0], curves[code][-1]
    rise = {"first_step": first_step, "before": first, "step": step, "now": now}
    return found("language_forgotten", "warning", language=code, percent=100 * rises[code], **rise)


def jump_at_resume(run: Observed) -> Finding | None:
    """Return a finding for the last resume at which a training loss jumped and has not recovered."""
    steps = sorted({line["step"] for line in run.of_kind("start") if line["step"] > 0}, reverse=True)
    for step in steps:
        for loss in ("mel_loss", "text_loss"):
            finding = _jump(run.curve("train", loss), step, loss)
            if finding is not None:
                return finding
    return None


def _jump(curve: Curve, step: int, loss: str) -> Finding | None:
    earlier = [value for at, value in curve if at <= step]
    later = [value for at, value in curve if at > step]
    before, after = earlier[-NUM_AROUND:], later[:NUM_AROUND]
    if len(before) < 3 or len(after) < 2:
        return None
    level, now = float(np.mean(before)), float(np.mean(after))
    noise = _noise(earlier[-4 * NUM_AROUND :])
    threshold = 3 * noise * math.sqrt(1 / len(before) + 1 / len(after))
    if now - level <= max(JUMP * level, threshold) or float(np.mean(later[-NUM_AROUND:])) <= level:
        return None
    return found("resume_jump", "warning", step=step, loss=loss, before=level, after=now, noise=noise)


def _while_learning(run: Observed, curve: Curve) -> Curve:
    """Return the points at which the learning rate was high enough for a loss to fall."""
    if run.schedule is None:
        return curve
    least = LEARNING_SHARE * run.schedule.peak
    return [(step, value) for step, value in curve if run.schedule.learning_rate(step) >= least]


def _window_starts(curve: Curve, shortest: int) -> list[int]:
    """Return the possible first indices of a plateau that lasts to the end, at most about MAX_WINDOWS."""
    last = len(curve) - MIN_LINES
    possible = [i for i in range(max(0, last + 1)) if curve[-1][0] - curve[i][0] >= shortest]
    return possible[:: max(1, math.ceil(len(possible) / MAX_WINDOWS))]


def _is_flat(curve: Curve) -> bool:
    steps, values = np.array(curve, dtype=float).T  # (N,), (N,)
    before, after = _ends_of_line(curve)
    line = before + (after - before) * (steps - steps[0]) / (steps[-1] - steps[0])
    scatter = math.sqrt(float(((values - line) ** 2).sum()) / (len(curve) - 2))
    # standard error of the slope, times the length of the window
    error = scatter * (steps[-1] - steps[0]) / math.sqrt(float(((steps - steps.mean()) ** 2).sum()))
    fall, mean = before - after, float(values.mean())
    # a short fall at the start of a long window belongs to the time before it
    initial_fall = float(values[:NUM_AROUND].mean() - values[NUM_AROUND:].mean())
    if initial_fall > SMALL_FALL * mean + STANDARD_ERRORS * scatter / math.sqrt(NUM_AROUND):
        return False
    return fall < SMALL_FALL * mean and fall + STANDARD_ERRORS * error < CLEAR_FALL * mean


def _ends_of_line(curve: Curve) -> tuple[float, float]:
    """Return the first and last value of the straight line fitted to the points."""
    steps, values = np.array(curve, dtype=float).T
    centred = steps - steps.mean()
    slope = float((centred * values).sum() / (centred**2).sum())
    mean = float(values.mean())
    return mean + slope * float(centred[0]), mean + slope * float(centred[-1])


def _has_gained(validations: Curve, since: int) -> bool:
    before = [value for step, value in validations if step <= since]
    later = [value for step, value in validations if step > since]
    return bool(later) and min(later) < min(before or later[:1]) * (1 - REAL_GAIN)


def _noise(values: Sequence[float]) -> float:
    """Return the standard deviation from line to line, independent of the trend."""
    differences = [later - earlier for earlier, later in pairwise(values)]
    return float(np.std(differences)) / math.sqrt(2)
