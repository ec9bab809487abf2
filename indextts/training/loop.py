"""THE LOOP, whole: load -> plan the restore -> train: batch, losses, step, log, validate, save, stop.

Its parts are the other files of `indextts.training`; what happens in which order is here.
"""

import logging
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from indextts.commands.train import Train
from indextts.errors import OUT_OF_MEMORY, UserError
from indextts.models.out_of_memory import is_out_of_memory
from indextts.runs.directory import checkpoint_path
from indextts.system.signals import StopRequest
from indextts.training.batches import MicroBatch, Unreadable, group_batches, is_too_many, load_batches
from indextts.training.distributed.ranks import SINGLE_PROCESS, STOPPED_BEFORE_LOADING, Ranks
from indextts.training.distributed.sharding import ImbalanceMeter, Sharding, all_reduce_losses, load_shards
from indextts.training.distributed.sync import (
    broadcast_stop,
    gather_unreadable,
    require_same_start,
    require_same_weights,
    sync_step,
)
from indextts.training.metrics import MetricsLog, SpeedMeter, StartupTimes, TrainRates
from indextts.training.optim import SkippedSteps, update
from indextts.training.order import BatchPlan, mix
from indextts.training.probe import Probe, compare
from indextts.training.record import TextRowFacts, checkpoint_content, checkpoint_meta, write_run_files
from indextts.training.run import Run, TrainState, load_inputs
from indextts.training.saving import FINAL_RETRY_AFTER_S, Saver
from indextts.training.start import resume, start_from_base
from indextts.training.step import accumulate, accumulate_share
from indextts.training.validate import ValidationSettings, validate

logger = logging.getLogger(__name__)


def train(
    command: Train, checkpoint: Future[Path | None] | None, stop: StopRequest, ranks: Ranks = SINGLE_PROCESS
) -> int:
    """Run the training to its end, or to a signal; return the exit status.

    Args:
        checkpoint: where to go on from, None for the base; verified while this was imported. Only the first
            process knows it.
        ranks: the processes that train together.

    Raises:
        UserError: what the user can fix.
    """
    times = StartupTimes("imports")
    inputs = load_inputs(command, ranks)
    # the cards connect here, with all of their memory free, and not in the middle of the first step
    ranks.all_reduce(torch.zeros(1, device=inputs.device))
    times.mark("pairs and tokenizer")
    logger.info("%d pairs to train on, %d to validate on", len(inputs.train_set), len(inputs.val_set))
    found = ranks.broadcast(None if checkpoint is None else checkpoint.result())
    times.mark("waiting for the checkpoint's digest")
    if ranks.any_rank(stop.is_requested):
        broadcast_stop(ranks, stop)
        return say_how_it_ended(None, stop)
    if found is None:
        logger.info("Starting from the base checkpoint %s", command.base_checkpoint)
        run = start_from_base(inputs)
    else:
        run = resume(inputs, found)
    times.mark("weights and optimizer")
    logger.info("From step %d to step %d", run.state.step, run.schedule.total_steps)
    require_same_start(run)
    say_who_trains(run)
    if ranks.is_main:
        write_run_files(run)
    metrics = MetricsLog(
        command.output_dir if ranks.is_main else None,
        part=run.state.part,
        step=run.state.step,
        epoch=run.state.epoch,
        total_steps=run.schedule.total_steps,
    )
    with closing(metrics), closing(Saver(command.output_dir, run.inputs.command.keep_checkpoints)) as saver:
        if ranks.is_main:
            saver.prepare(checkpoint_content(run, checkpoint_meta(run, is_best=False)), unchanging(run))
        try:
            take_steps(run, metrics, saver, stop, times)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise UserError(  # a step splits its batch; a validation's or an update's memory is what it is
                f"Out of memory outside of the micro-batches ({str(error).splitlines()[0]}): use --amp, a "
                "smaller --val-batch-size, or a device with more memory; the last checkpoint is untouched, "
                "go on with --resume auto",
                OUT_OF_MEMORY,
            ) from None
    if is_out_of_patience(run.inputs.command, run.state) and stop.signal is None:
        num_worse = run.state.num_worse
        logger.info("The run is over: %d validations in a row were not better (--patience)", num_worse)
    return say_how_it_ended(run.state.step, stop)


def take_steps(run: Run, metrics: MetricsLog, saver: Saver, stop: StopRequest, times: StartupTimes) -> None:
    """Train, validate and save, step after step, to the end or to a signal."""
    inputs, state, command, ranks = run.inputs, run.state, run.inputs.command, run.inputs.ranks
    probe = Probe(inputs)
    if state.probe is not None and ranks.is_main:
        compare(state.probe, probe.losses(run.model), run.saved_environment, inputs.environment)
        times.mark("fixed samples")
    times.log(state.step + 1)
    samples = None
    if command.sample_interval and ranks.is_main:
        from indextts.training.samples import SampleSynthesizer  # what speaks takes seconds to import

        samples = SampleSynthesizer(inputs)
    rows = TextRowFacts(run) if ranks.is_main else None
    if rows is not None:
        metrics.facts(state.step, state.epoch_of_step, rows.read())
    skipped = SkippedSteps(state.num_skipped, should_log=ranks.is_main)
    unreadable: set[str] = set()
    groups = endless_groups(run)
    run.model.train()
    run.model.gpt.recompute = command.grad_checkpointing
    if command.compile:
        run.model.gpt.compile_blocks()
    pace, balance = SpeedMeter(inputs.device), ImbalanceMeter()
    # a part that goes on from an older checkpoint, or from one of another folder, is worth one of its own
    is_unsaved_part = state.step > 0 and state.saved_step < 0

    while True:
        is_over = is_done(command, state)
        group = None if is_over else pace.next_group(groups)
        if state.step % command.save_interval == 0:
            saver.wait()  # the next save would have to
        else:
            saver.poll()
        if saver.lost_best_step is not None:
            forget_lost_best(state, saver)
        synced = sync_step(ranks, group, stop, saver)
        is_last = is_over or synced.must_stop
        is_best = False
        if is_last or skipped.is_due or state.step % command.save_interval == 0:
            skipped.check()
        if state.validated_step != state.step and (is_over or validation_is_due(command, state.step, run)):
            with pace.paused():
                is_best = validate_now(run, metrics, saver, stop)
                if rows is not None:
                    metrics.facts(state.step, state.epoch_of_step, rows.read())
                if samples is not None and state.validated_step == state.step:
                    samples.synthesize_if_due(run, metrics, stop)
            if state.validated_step == state.step:
                state.saved_step = -1  # what was saved of this step does not know it
            is_over = is_done(command, state)
            if group is None and not is_over:  # it was over for want of a better validation than this one
                group = pace.next_group(groups)
            synced = sync_step(ranks, group, stop, saver)
            is_last = is_over or synced.must_stop
        # behind a failure the clock decides: a short interval shall not use up the tries before room is made
        is_at_interval = state.step % command.save_interval == 0 and not synced.has_failed_save
        is_due = is_last or is_at_interval or synced.is_retry_due or is_unsaved_part
        if is_best or (is_due and (0 < state.step != state.saved_step or synced.has_failed_save)):
            state.num_skipped = skipped.total
            with pace.paused():
                require_same_weights(run)
                gather_window(run)
                save(run, probe, saver, is_best=is_best)
            is_unsaved_part = False
        if is_last:
            finish_saving(run, probe, saver)
            if samples is not None:
                samples.finish(metrics, stop)
            break

        assert group is not None
        if synced.num_unreadable:
            found = gather_unreadable(ranks, group)
            note_unreadable(found, unreadable, len(inputs.train_set), should_log=ranks.is_main)
        if not ranks.is_distributed:
            sums, loss = accumulate(run, group)
        else:
            sums, loss = accumulate_share(run, group, synced.num_text, synced.num_mel)
        learning_rate = run.schedule.learning_rate(state.step + 1)
        state.step += 1
        if sums is not None and loss is not None:
            done = update(
                run.trained,
                run.optimizer,
                learning_rate,
                command.grad_clip,
                loss,
                run.scaler,
                mix(command.seed, "moments", state.step),
            )
            pace.mark_submitted()
            skipped.note(state.step, tuple(id for part in group for id in part.ids), done.is_bad)
            if run.average is not None:
                run.average.update(done.is_bad)
            sums = sums.unless(done.is_bad)
            state.window = sums if state.window is None else state.window + sums
            pace.add(synced.num_tokens)
            if ranks.is_distributed:
                balance.add(np.sum([part.rank_costs for part in group], axis=0).tolist())
        state.batch_idx += len(group)
        state.samples_done += sum(len(part.ids) for part in group)
        if state.samples_done == len(inputs.train_set):
            state.epoch, state.samples_done, state.batch_idx = state.epoch + 1, 0, 0
        if state.step % command.log_interval == 0 and sums is not None:
            gather_window(run)
            log_window(run, metrics, learning_rate, float(done.norm), pace, skipped.total, balance)


def is_done(command: Train, state: TrainState) -> bool:
    """Return whether the run has come to its end: by its length, or since it learns no more."""
    is_long_enough = state.epoch >= command.epochs or 0 < command.max_steps <= state.step
    return is_long_enough or is_out_of_patience(command, state)


def is_out_of_patience(command: Train, state: TrainState) -> bool:
    """Return whether the run is over since it learns no more."""
    return 0 < command.patience <= state.num_worse


def endless_groups(run: Run) -> Iterator[list[MicroBatch]]:
    """Yield the micro-batches of one step after another, from where the run stands, epoch after epoch."""
    inputs, state = run.inputs, run.state
    command, train_set = inputs.command, inputs.train_set
    plan = BatchPlan(
        train_set.lengths,
        command.seed,
        inputs.ranks.world_size * command.batch_size,
        inputs.ranks.world_size * command.batch_tokens,
        state.epoch,
        state.samples_done,
    )
    if not inputs.ranks.is_distributed:
        batches = load_batches(train_set, plan, command.num_workers, inputs.collate)
    else:
        sharding = Sharding.of(train_set, inputs.config.model_dim, inputs.ranks)
        batches = load_shards(train_set, plan, sharding, command.num_workers, inputs.collate)
    yield from group_batches(batches, plan.epoch_end_flags(), command.grad_accumulation)


def note_unreadable(
    found: Sequence[Unreadable], known: set[str], num_samples: int, *, should_log: bool
) -> None:
    """Say once of each sample that it cannot be read; of several processes one says it.

    Raises:
        UserError: they are too many.
    """
    for sample in found:
        if sample.id in known:
            continue
        known.add(sample.id)
        if should_log:
            logger.warning("Skipped %s (%d so far): %s", sample.id, len(known), sample.reason)
    if is_too_many(len(known), num_samples):
        raise UserError(
            f"{len(known)} of {num_samples} samples cannot be read, as {min(known)}; the last "
            "checkpoint is untouched: preprocess again (check_amharic_data.py names what is damaged), and go "
            "on with --resume auto"
        )


def gather_window(run: Run) -> None:
    """Leave the losses of all processes since the last [Train] line with the first one."""
    state, ranks = run.state, run.inputs.ranks
    if ranks.is_distributed:
        whole = all_reduce_losses(state.window, ranks, run.inputs.device)
        state.window = whole if ranks.is_main else None


def log_window(
    run: Run,
    metrics: MetricsLog,
    learning_rate: float,
    grad_norm: float,
    pace: SpeedMeter,
    num_skipped: int,
    balance: ImbalanceMeter,
) -> None:
    """Write the means since the last [Train] line and begin a new window."""
    state = run.state
    if not run.inputs.ranks.is_main:
        return
    assert state.window is not None
    means, state.window = state.window.means(), None
    if means is None:
        logger.warning("No [Train] line at step %d: every step since the last was skipped", state.step)
        return
    state.last_losses = asdict(means)
    metrics.train(
        state.step,
        state.epoch_of_step,
        means,
        TrainRates(
            lr=learning_rate,
            grad_norm=grad_norm,
            speed=pace.read(),
            num_skipped=num_skipped,
            imbalance=balance.read() if run.inputs.ranks.is_distributed else None,
        ),
    )


def validation_is_due(command: Train, step: int, run: Run) -> bool:
    if command.val_interval == 0:
        return run.state.samples_done == 0
    return step % command.val_interval == 0


def validate_now(run: Run, metrics: MetricsLog, saver: Saver, stop: StopRequest) -> bool:
    """Validate and write the numbers; return whether this is the best so far, the untrained model apart."""
    state, inputs = run.state, run.inputs
    check = partial(
        validate,
        run.model,
        inputs.val_set,
        ValidationSettings(
            collate=inputs.collate,
            backend=inputs.attention,
            dtype=inputs.dtype,
            batch_size=inputs.command.val_batch_size or 2 * inputs.command.batch_size,
            max_batches=inputs.command.max_val_batches,
            first_new_token=run.base_size,
        ),
        should_stop=lambda: stop.is_requested,
        trained_speakers={pair.speaker for pair in inputs.train_set.pairs},
        ranks=inputs.ranks,
    )
    validation = check()
    if validation is not None and run.average is not None and run.average.num_updates:
        with run.average.swapped_in():
            averaged = check()
        validation = None if averaged is None else replace(validation, averaged=averaged.means)
    if validation is None:  # stopped in between; it is done again after the resume
        return False
    means = validation.means
    metrics.validation(state.step, state.epoch_of_step, validation)
    state.validated_step = state.step
    # the first process alone knows what could not be saved, and so what the best so far is
    is_best = inputs.ranks.broadcast(state.step > 0 and means.mel_loss < state.best_mel_loss)
    state.num_worse = 0 if is_best or not state.step else state.num_worse + 1
    if is_best:
        forget_lost_best(state, saver)
        state.previous_best_mel_loss, state.best_mel_loss = state.best_mel_loss, means.mel_loss
    return is_best


def forget_lost_best(state: TrainState, saver: Saver) -> None:
    """Wait for the save before; where it was to hold the best so far and failed, the one before counts."""
    saver.wait()
    if saver.lost_best_step is not None:
        state.best_mel_loss, saver.lost_best_step = state.previous_best_mel_loss, None


def save(run: Run, probe: Probe, saver: Saver, *, is_best: bool) -> None:
    """Begin to write a checkpoint of this moment, after the save before; the first process alone does."""
    started = time.perf_counter()
    state = run.state
    saver.wait()
    if saver.lost_best_step == state.step:  # the very weights of the best, tried again
        is_best, saver.lost_best_step = True, None
    forget_lost_best(state, saver)
    run.trained.check_views()
    state.serial += 1
    state.saved_step = state.step
    name = checkpoint_path(saver.run_dir, state.step).name
    state.recent = [*(other for other in state.recent if other != name), name][-saver.keep :]
    if not run.inputs.ranks.is_main:
        return
    state.probe = probe.losses(run.model)
    meta = checkpoint_meta(run, is_best=is_best)
    saver.start(checkpoint_content(run, meta), meta, unchanging(run))
    seconds = time.perf_counter() - started
    logger.info("Saving step %d; the training was held up for %.2f s", state.step, seconds)


def unchanging(run: Run) -> frozenset[int]:
    """Return where the weights lie that are never trained."""
    return frozenset(p.data_ptr() for p in run.model.parameters() if not p.requires_grad)


def finish_saving(run: Run, probe: Probe, saver: Saver) -> None:
    """Wait for what is being written; try again while the disk refuses. Raises as `Saver.start`."""
    saver.wait()
    while saver.failures:
        time.sleep(FINAL_RETRY_AFTER_S)
        save(run, probe, saver, is_best=False)
        saver.wait()


def say_who_trains(run: Run) -> None:
    """Write the log line of several processes: how many, where, and what a step takes."""
    inputs, command, ranks = run.inputs, run.inputs.command, run.inputs.ranks
    if not ranks.is_distributed:
        return
    places = ranks.all_gather((socket.gethostname(), str(inputs.environment["device"])))
    devices = Counter(device for _, device in places)
    num_batches = ranks.world_size * command.grad_accumulation
    samples = f"up to {num_batches * command.batch_tokens} positions"
    if not command.batch_tokens:
        samples = f"{num_batches * command.batch_size} samples"
    logger.info(
        "%d processes on %d nodes (%s), %s a step%s",
        ranks.world_size,
        len({host for host, _ in places}),
        ", ".join(f"{count} x {device}" for device, count in devices.items()),
        samples,
        f"; restart {ranks.info.num_restarts}" if ranks.info.num_restarts else "",
    )


def say_how_it_ended(step: int | None, stop: StopRequest) -> int:
    """Write the last log line; return the exit status.

    Args:
        step: the last that was done, None where nothing was loaded yet.
    """
    if stop.signal is None:
        logger.info("Training complete.")
        return 0
    if step is None:
        logger.info(STOPPED_BEFORE_LOADING)
    else:
        logger.info("Stopped at step %d; go on with --resume auto", step)
    return 128 + stop.signal
