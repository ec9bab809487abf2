"""Validations and listenings of the loop, and what they say of the model: the best so far, and patience."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from indextts.runs.checkpoints import best_heard_score, best_validation_loss
from indextts.system.signals import StopRequest
from indextts.training.metrics import MetricsLog
from indextts.training.run import Run
from indextts.training.saving import Saver
from indextts.training.validate import Validation

if TYPE_CHECKING:
    from indextts.training.listening import Listener


def validate_now(run: Run, check: Callable[[], Validation | None], metrics: MetricsLog, saver: Saver) -> None:
    """Validate, write the numbers, and note in the state whether this is the best model so far.

    The untrained model (step 0) never counts as the best.

    Args:
        check: validates; a stop signal ends it without a result: the resumed run validates again.
    """
    state, ranks = run.state, run.inputs.ranks
    validation = check()
    if validation is not None and run.average is not None and run.average.num_updates:
        with run.average.swapped_in():
            averaged = check()
        validation = None if averaged is None else replace(validation, averaged=averaged.means)
    if validation is None:
        return
    means = validation.means
    metrics.validation(state.step, state.epoch_of_step, validation)
    state.validated_step, state.validation_mel_loss = state.step, means.mel_loss
    state.saved_step = -1  # a checkpoint of this step that is there already lacks the validation
    if state.step == 0:
        return
    saver.wait()  # only rank 0 has the folder and knows which saves failed
    known = run.inputs.validation_set
    is_best = ranks.is_main and means.mel_loss < best_validation_loss(saver.run_dir, known)
    state.best_is_unsaved = ranks.broadcast(is_best)
    is_better = means.mel_loss < state.best_mel_loss
    state.best_mel_loss = min(means.mel_loss, state.best_mel_loss)
    state.num_worse = 0 if is_better else state.num_worse + 1


def listen_now(
    run: Run, listener: "Listener | None", metrics: MetricsLog, saver: Saver, stop: StopRequest
) -> None:
    """Listen on rank 0, and note in the state of every rank whether this model speaks best so far."""
    state, ranks = run.state, run.inputs.ranks
    heard = ranks.broadcast(None if listener is None else listener.listen(run, metrics, stop))
    if heard is None:  # stopped, or too expensive by now: the next validation tries again
        return
    if heard.by != state.heard_by:  # other sentences, or another recognizer
        state.heard_by, state.best_heard = heard.by, math.inf
    state.listened_step, state.heard_score = state.step, heard.score
    state.saved_step = -1  # a checkpoint of this step that is there already lacks the listening
    if heard.score is None:
        return
    saver.wait()
    is_best = ranks.is_main and heard.score < best_heard_score(saver.run_dir, state.heard_by)
    state.best_heard_is_unsaved = ranks.broadcast(is_best)
    if heard.score < state.best_heard:
        state.best_heard, state.num_worse = heard.score, 0
