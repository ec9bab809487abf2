"""Decisions of the training loop between two steps: validate, listen, save, stop.

`decide` is a pure function of the run's state, its command and the signals that all ranks share, so every
rank decides the same. The loop acts on it:

    signals --decide--> validate? --decide--> listen? --decide--> save? stop? --> the next step
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

    After a validation or a listening the loop decides again: its result changes the rest.

    Args:
        at_end: the run is at its end, by its length or because validation stopped improving.
    """

    validate: bool
    listen: bool
    save: bool
    stop: bool
    at_end: bool


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
