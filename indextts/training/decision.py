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

    Args:
        at_end: the run is at its end, by its length or because validation stopped improving.
    """

    validate: bool
    sample: bool
    save: bool
    stop: bool
    at_end: bool


def decide(state: TrainState, command: Train, signals: Signals, *, just_validated: bool = False) -> Decision:
    """Return what to do before the next step.

    Args:
        just_validated: the validation of this boundary has been done.
    """
    is_long_enough = state.epoch >= command.epochs or 0 < command.max_steps <= state.step
    at_end = is_long_enough or has_run_out_of_patience(state, command.patience)
    stop = at_end or signals.stop_requested
    interval = command.val_interval
    is_due = state.step % interval == 0 if interval else state.samples_done == 0  # 0: the end of each epoch
    validate = not signals.stop_requested and state.validated_step != state.step and (at_end or is_due)
    interval = command.sample_interval
    sample = (
        not signals.stop_requested
        and just_validated
        and state.validated_step == state.step
        and interval > 0
        # by interval and not by step: the step at which samples are due need not have a validation
        and (state.sampled_step < 0 or state.sampled_step // interval != state.step // interval)
    )
    # after a failure the clock decides: a short interval must not use up the tries before there is room
    at_interval = state.step % command.save_interval == 0 and not signals.save_failed
    is_due = stop or at_interval or signals.retry_save or state.part_is_unsaved
    is_unsaved = state.step > 0 and state.step != state.saved_step
    save = state.best_is_unsaved or (is_due and (is_unsaved or signals.save_failed))
    return Decision(validate, sample, save, stop, at_end)


def has_run_out_of_patience(state: TrainState, patience: int) -> bool:
    """Return whether `patience` validations in a row were no better than the best; 0 is endless."""
    return 0 < patience <= state.num_worse
