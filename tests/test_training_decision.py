"""Tests of indextts/training/decision.py: the table of decisions between two steps."""

from dataclasses import replace

import pytest

from indextts.commands.train import Train
from indextts.training.decision import Signals, decide
from indextts.training.run import TrainState

# validates every 10 steps, saves every 20, listens every 30; 5 epochs or 100 steps; gives up after 2 worse
COMMAND = Train(
    train_manifest=["t"],
    val_manifest=["v"],
    tokenizer="m",
    epochs=5,
    max_steps=100,
    val_interval=10,
    save_interval=20,
    listen_interval=30,
    patience=2,
)
STOP, FAILED, RETRY = Signals(stop_requested=True), Signals(save_failed=True), Signals(retry_save=True)
FAILED_RETRY = Signals(save_failed=True, retry_save=True)


def at(step: int, **changes: object) -> TrainState:
    """Return a run in the middle of its first epoch that validated and saved when it was due."""
    state = TrainState(step=step, samples_done=3 * step, validated_step=step // 10 * 10, saved_step=0)
    return replace(state, **changes)


@pytest.mark.parametrize(
    ("state", "signals", "expected"),
    [
        (at(7), Signals(), ""),
        (at(10, validated_step=0), Signals(), "validate"),
        (at(10), Signals(), ""),
        (at(20), Signals(), "save"),
        (at(20, saved_step=20), Signals(), ""),
        (at(20, validated_step=10), Signals(), "validate save"),
        (at(0, validated_step=-1), Signals(), "validate"),
        # a stop saves what is not saved yet, and never validates or listens
        (at(7), STOP, "save stop"),
        (at(7, saved_step=7), STOP, "stop"),
        (at(0, validated_step=-1), STOP, "stop"),
        (at(10, validated_step=0), STOP, "save stop"),
        # the end of the run, by steps and by epochs: one last validation
        (at(100, validated_step=90), Signals(), "validate save stop"),
        (at(100, saved_step=100, listened_step=100), Signals(), "stop"),
        (at(7, epoch=5, samples_done=0, validated_step=0), Signals(), "validate save stop"),
        # patience
        (at(10, num_worse=1), Signals(), ""),
        (at(10, num_worse=2), Signals(), "save stop"),
        # the best model and the first checkpoint of a part wait for no interval
        (at(10, best_is_unsaved=True), Signals(), "save"),
        (at(10, best_heard_is_unsaved=True), Signals(), "save"),
        # a run that listens asks the ear before it stops early, and listens once more at its end
        (at(50, num_worse=2, listened_step=30), Signals(), "listen save stop"),
        (at(50, num_worse=2, listened_step=50), Signals(), "save stop"),
        (at(100, saved_step=100, listened_step=90), Signals(), "listen stop"),
        (at(7, saved_step=-1, part_is_unsaved=True), Signals(), "save"),
        # after a failed save the clock decides, not the interval
        (at(20), FAILED, ""),
        (at(7), RETRY, "save"),
        (at(7, saved_step=7), FAILED_RETRY, "save"),
        (at(7, saved_step=7), FAILED, ""),
        (at(7, saved_step=7), Signals(stop_requested=True, save_failed=True), "save stop"),
    ],
)
def test_each_state_has_its_decision(state: TrainState, signals: Signals, expected: str):
    decided = vars(decide(state, COMMAND, signals)).items()
    assert " ".join(name for name, is_so in decided if is_so and name != "at_end") == expected


@pytest.mark.parametrize(
    ("state", "signals", "listens"),
    [
        (at(20), Signals(), False),
        (at(30), Signals(), True),
        (at(30, listened_step=30), Signals(), False),
        (at(40, listened_step=30), Signals(), False),
        (at(40, listened_step=20), Signals(), True),  # step 30 had no validation, or no time to listen
        (at(0, validated_step=0), Signals(), False),
        (at(30), STOP, False),
        (at(30, validated_step=20), Signals(), False),  # the validation was interrupted
    ],
)
def test_the_first_validation_of_each_interval_is_listened_to(
    state: TrainState, signals: Signals, listens: bool
):
    assert decide(state, COMMAND, signals).listen == listens


def test_validation_interval_zero_means_the_end_of_each_epoch():
    command = COMMAND.model_copy(update={"val_interval": 0})
    assert not decide(at(10, validated_step=0), command, Signals()).validate
    assert decide(at(10, samples_done=0, epoch=1, validated_step=0), command, Signals()).validate


def test_the_last_step_of_an_epoch_moves_the_position_to_the_next():
    state = TrainState()
    state.advance(2, 6, samples_per_epoch=10)
    assert (state.step, state.epoch, state.batch_idx, state.samples_done) == (1, 0, 2, 6)
    state.advance(1, 4, samples_per_epoch=10)
    assert (state.step, state.epoch, state.batch_idx, state.samples_done) == (2, 1, 0, 0)
