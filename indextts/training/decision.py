"""Decisions of the training loop between two steps: validate, sample, save, stop.

`decide` is a pure function of the run's state, its command and the signals that all ranks share, so every
rank decides the same. The loop acts on it:

    signals --decide--> validate? --decide--> sample? save? stop? --> the next step
"""

from dataclasses import dataclass

from indextts.commands.train import Train
from indextts.training.run import TrainState


@dataclass(frozen=True)
class Signals:
    """Events outside the step, the same on every rank.

    Args:
        stop_requested: a rank received a stop signal.
        save_failed: the last save could not be written.
        retry_save: it failed long enough ago for another try.
    """

    stop_requested: bool = False
    save_failed: bool = False
    retry_save: bool = False


@dataclass(frozen=True)
class Decision:
    """Actions at one step boundary, in this order.

    After a validation the loop decides again: a better or worse loss changes the rest.
    """

    validate: bool
    sample: bool
    save: bool
    stop: bool


def decide(state: TrainState, command: Train, signals: Signals, *, just_validated: bool = False) -> Decision:
    """Return what to do before the next step.

    Args:
        just_validated: the validation of this boundary has been done.
    """
    at_end = is_done(state, command)
    stop = at_end or signals.stop_requested
    validate = (
        not signals.stop_requested
        and state.validated_step != state.step
        and (at_end or validation_is_due(state, command))
    )
    interval = command.sample_interval
    sample = (
        not signals.stop_requested
        and just_validated
        and state.validated_step == state.step
        and interval > 0
        and (state.sampled_step < 0 or state.sampled_step // interval != state.step // interval)
    )
    # after a failure the clock decides: a short interval must not use up the tries before there is room
    at_interval = state.step % command.save_interval == 0 and not signals.save_failed
    is_due = stop or at_interval or signals.retry_save or state.part_is_unsaved
    is_unsaved = state.step > 0 and state.step != state.saved_step
    save = state.best_is_unsaved or (is_due and (is_unsaved or signals.save_failed))
    return Decision(validate, sample, save, stop)


def is_done(state: TrainState, command: Train) -> bool:
    """Return whether the run is at its end: by its length, or because validation stopped improving."""
    is_long_enough = state.epoch >= command.epochs or 0 < command.max_steps <= state.step
    return is_long_enough or is_out_of_patience(state, command)


def is_complete(state: TrainState, command: Train) -> bool:
    """Return whether nothing is left to do: the run is at its end and has been validated there."""
    return is_done(state, command) and state.validated_step == state.step


def is_out_of_patience(state: TrainState, command: Train) -> bool:
    """Return whether --patience validations in a row were no better than the best."""
    return 0 < command.patience <= state.num_worse


def validation_is_due(state: TrainState, command: Train) -> bool:
    """Return whether a validation belongs to this step; interval 0 means the end of each epoch."""
    if command.val_interval == 0:
        return state.samples_done == 0
    return state.step % command.val_interval == 0
