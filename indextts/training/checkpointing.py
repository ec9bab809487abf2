"""Checkpoints of a run in progress: when they hold the best model, and how a failed save is made up for."""

import logging
import time

from indextts.runs.directory import checkpoint_path
from indextts.training.probe import Probe
from indextts.training.record import checkpoint_content, checkpoint_meta
from indextts.training.run import Run, TrainState
from indextts.training.saving import FINAL_RETRY_AFTER_S, Saver

logger = logging.getLogger(__name__)


def save_checkpoint(run: Run, probe: Probe, saver: Saver) -> None:
    """Start writing a checkpoint of this moment, after the save before it; only rank 0 writes.

    Raises:
        UserError: with status 4 if the save before it was the third in a row that failed.
    """
    started = time.perf_counter()
    state = run.state
    saver.wait()
    is_best = state.best_is_unsaved
    if saver.lost_best_step == state.step:  # the weights of the best model, tried again
        is_best, saver.lost_best_step = True, None
    forget_lost_best(state, saver)
    run.trained.check_views()
    state.serial += 1
    state.saved_step = state.step
    state.best_is_unsaved = state.part_is_unsaved = False
    name = checkpoint_path(saver.run_dir, state.step).name
    state.recent = [*(other for other in state.recent if other != name), name][-saver.keep :]
    if not run.inputs.ranks.is_main:
        return
    state.probe = probe.losses(run.model)
    meta = checkpoint_meta(run, is_best=is_best)
    saver.start(checkpoint_content(run, meta), meta, frozen_pointers(run))
    seconds = time.perf_counter() - started
    logger.info("Saving step %d; this blocked the training for %.2f s", state.step, seconds)


def forget_lost_best(state: TrainState, saver: Saver) -> None:
    """Wait for the save before; if that one lost the best model, restore the best loss before it."""
    saver.wait()
    if saver.lost_best_step is not None:
        state.best_mel_loss, saver.lost_best_step = state.previous_best_mel_loss, None


def finish_saving(run: Run, probe: Probe, saver: Saver) -> None:
    """Wait for the save in progress; retry while the disk refuses. Raises as `save_checkpoint`."""
    saver.wait()
    while saver.failures:
        time.sleep(FINAL_RETRY_AFTER_S)
        save_checkpoint(run, probe, saver)
        saver.wait()


def frozen_pointers(run: Run) -> frozenset[int]:
    """Return the data pointers of weights that are never trained."""
    return frozenset(p.data_ptr() for p in run.model.parameters() if not p.requires_grad)
