"""Decisions of the training loop between two steps (validate, listen, save, stop), and what comes of them.

`decide` is a pure function of the run's state, its command and the signals that all ranks share, so every
rank decides the same. The loop acts on it; a validation or a listening notes the best model and the patience:

    signals --decide--> validate? --decide--> listen? --decide--> save? stop? --> the next step
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from indextts.commands.train import Train
from indextts.runs.checkpoints import best_heard_score, best_validation_loss
from indextts.system.signals import StopRequest
from indextts.training.metrics import MetricsLog
from indextts.training.run import Run, TrainState
from indextts.training.saving import Saver
from indextts.training.validate import Validation

if TYPE_CHECKING:
    from indextts.training.listening import Listener


@dataclass(frozen=True)
class Signals:
    """Events outside the step, the same on every rank."""

    stop_requested: bool = False  # a rank received a stop signal
    save_failed: bool = False  # the last save could not be written
    retry_save: bool = False  # it failed long enough ago for another try


@dataclass(frozen=True)
class Decision:
    """Actions at one step boundary, in this order.

    After a validation or a listening the loop decides again: its result changes the rest.
    """

    validate: bool
    listen: bool
    save: bool
    stop: bool
    at_end: bool  # the run is at its end, by its length or because validation stopped improving


def decide(state: TrainState, command: Train, signals: Signals) -> Decision:
    """Return what to do before the next step."""
    is_long_enough = state.epoch >= command.epochs or 0 < command.max_steps <= state.step
    at_end = is_long_enough or has_run_out_of_patience(state, command.patience)
    stop = at_end or signals.stop_requested
    interval = command.val_interval
    is_due = state.step % interval == 0 if interval else state.samples_done == 0  # 0: the end of each epoch
    validate = not signals.stop_requested and state.validated_step != state.step and (at_end or is_due)
    interval = command.listen_interval
    listen = (
        not signals.stop_requested
        and interval > 0
        and state.validated_step == state.step > state.listened_step
        # by interval and not by step: the step at which a listening is due need not have a validation. A run
        # that listens is heard at its end too: only if the ear agrees does it end for lack of patience
        and (state.listened_step // interval < state.step // interval or (at_end and state.listened_step > 0))
    )
    # after a failure the clock decides: a short interval must not use up the tries before there is room
    at_interval = state.step % command.save_interval == 0 and not signals.save_failed
    is_due = stop or at_interval or signals.retry_save or state.part_is_unsaved
    is_unsaved = state.step > 0 and state.step != state.saved_step
    is_best = state.best_is_unsaved or state.best_heard_is_unsaved
    save = is_best or (is_due and (is_unsaved or signals.save_failed))
    return Decision(validate, listen, save, stop, at_end)


def has_run_out_of_patience(state: TrainState, patience: int) -> bool:
    """Return whether `patience` validations in a row were no better in loss or speech; 0 is endless."""
    return 0 < patience <= state.num_worse


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
