"""The training loop: load, restore, then step after step until the end or a signal.

One iteration of `train_steps`:

    decide -> validate? listen? save? stop? -> next group of micro-batches -> train_step

    train_step: `forward_backward` -> sum of gradients over ranks -> `clip_and_step`

`decide` is in decision.py; memory fallback and the sum over ranks are in gradients.py; start.py sets up a run
from the base, resume.py from a checkpoint; groups.py loads the micro-batches of each step.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from indextts.commands.train import Train
from indextts.data.pair_index import BuildStoppedError
from indextts.errors import OUT_OF_MEMORY, UserError
from indextts.models.out_of_memory import is_out_of_memory
from indextts.system.signals import StopRequest
from indextts.training.batches import Batch, MicroBatch, perturbed
from indextts.training.compiling import compile_blocks
from indextts.training.decision import Signals, decide, has_run_out_of_patience, listen_now, validate_now
from indextts.training.distributed.ranks import SINGLE_PROCESS, STOPPED_BEFORE_LOADING, Ranks
from indextts.training.distributed.sharding import all_reduce_losses
from indextts.training.distributed.sync import (
    broadcast_stop,
    gather_unreadable,
    log_ranks,
    require_same_start,
    require_same_weights,
)
from indextts.training.gradients import TokenCounts, all_reduce_gradients, in_parts_that_fit
from indextts.training.groups import count_tokens, endless_groups, note_unreadable
from indextts.training.loading import StoppedWhileLoadingError
from indextts.training.losses import LossSums, batch_sums
from indextts.training.metrics import MetricsLog, SpeedMeter, StartupTimes
from indextts.training.optim import Bfloat16StateAdamW, SkippedSteps, TrainedParameters, scale_rates, step_at
from indextts.training.order import derive_seed
from indextts.training.probe import Probe, compare
from indextts.training.record import TextRowFacts, write_run_files
from indextts.training.resume import resume
from indextts.training.run import Run, TrainState, load_inputs
from indextts.training.saving import Saver, finish_saving, save_checkpoint
from indextts.training.start import start_from_base
from indextts.training.tracking import start_tracker
from indextts.training.validate import ValidationSettings, validate

logger = logging.getLogger(__name__)

CLIP_EPS = 1e-6  # of torch.nn.utils.clip_grad_norm_


def train(
    command: Train, checkpoint: Future[Path | None] | None, stop: StopRequest, ranks: Ranks = SINGLE_PROCESS
) -> int:
    """Run the training to its end, or to a signal; return the exit status.

    Args:
        checkpoint: the checkpoint to resume, None for the base; verified while this module was imported. Only
            rank 0 knows it.

    Raises:
        UserError: something that the user can fix.
    """
    times = StartupTimes("imports")
    try:
        inputs = load_inputs(command, ranks, lambda: stop.is_requested)
    except BuildStoppedError:
        broadcast_stop(ranks, stop)
        return log_stop(None, stop)
    # NCCL connects here, with all of the GPU's memory free, and not in the middle of the first step
    ranks.all_reduce(torch.zeros(1, device=inputs.device))
    times.mark("pairs and tokenizer")
    logger.info("%d pairs to train on, %d to validate on", len(inputs.train_set), len(inputs.val_set))
    # rank 0 decides: another rank could see another newest file on a shared disk
    found = ranks.broadcast(None if checkpoint is None else checkpoint.result())
    times.mark("waiting for the checkpoint's digest")
    if ranks.any_rank(stop.is_requested):
        broadcast_stop(ranks, stop)
        return log_stop(None, stop)
    if found is None:
        logger.info("Starting from the base checkpoint %s", command.base_checkpoint)
        run = start_from_base(inputs)
    else:
        run = resume(inputs, found)
    times.mark("weights and optimizer")
    state, command = run.state, run.inputs.command  # a resume fills in the checkpoint's settings
    logger.info("Training from step %d to step %d", state.step, run.schedule.total_steps)
    settings = command.model_dump(mode="json", exclude=set(Train.of_process))
    require_same_start(run, settings)
    num_batches = ranks.world_size * command.grad_accumulation
    log_ranks(
        ranks,
        inputs.environment["device"],
        f"up to {num_batches * command.batch_tokens} positions"
        if command.batch_tokens
        else f"{num_batches * command.batch_size} samples",
    )
    if ranks.is_main:
        write_run_files(run)
    tracker = None
    if ranks.is_main:
        tracker = start_tracker(command.tracker, command.output_dir, state.part, settings)
    metrics = MetricsLog(
        command.output_dir if ranks.is_main else None,
        part=state.part,
        step=state.step,
        epoch=state.epoch,
        total_steps=run.schedule.total_steps,
        tracker=tracker,
        language=inputs.tokenizer.options.language,
    )
    saver = Saver(
        command.output_dir,
        command.keep_checkpoints,
        lambda step, failures: metrics.failed_save(step, state.epoch, failures),
    )
    groups = endless_groups(run, stop)
    # closed in reverse: the data workers first, then the last save is written, then its metrics
    with closing(metrics), closing(saver), closing(groups):
        if ranks.is_main:
            saver.prune(state.part)  # --keep-checkpoints may be lower than in the process before
        try:
            is_complete = train_steps(run, groups, metrics, saver, stop, times)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise UserError(  # a step splits its batch; the memory of a validation or an update is fixed
                f"Out of memory in a validation or the update ({str(error).splitlines()[0]}): use "
                "--amp, a smaller --val-batch-size, or a GPU with more memory; the last checkpoint is valid, "
                "resume with --resume auto",
                OUT_OF_MEMORY,
            ) from None
    if not is_complete:
        return log_stop(state.step, stop)
    if has_run_out_of_patience(state, command.patience):
        logger.info("Stopping early: no improvement in the last %d validations (--patience)", state.num_worse)
    logger.info("Training complete.")
    return 0


def train_steps(
    run: Run,
    groups: Iterator[list[MicroBatch]],
    metrics: MetricsLog,
    saver: Saver,
    stop: StopRequest,
    times: StartupTimes,
) -> bool:
    """Train, validate and save, step after step, to the end or to a signal.

    Returns:
        True if the run is at its end and validated there, False if a signal stopped it.
    """
    inputs, state, command, ranks = run.inputs, run.state, run.inputs.command, run.inputs.ranks
    probe = Probe(inputs)
    if state.probe is not None and ranks.is_main:
        compare(state.probe, probe.losses(run.model), run.saved_environment, inputs.environment)
        times.mark("fixed samples")
    run.model.train()  # after the probe, which has no dropout
    run.model.gpt.recompute = command.grad_checkpointing
    if command.compile:
        compile_blocks(run, command.batch_tokens, partial(forward_backward, run))
        times.mark("compilation")
    times.log(state.step + 1)
    listener = None
    # not for a run that ends before: synthesis takes seconds to import
    if ranks.is_main and 0 < command.listen_interval <= run.schedule.total_steps:
        from indextts.training.listening import Listener

        try:
            listener = Listener(inputs)
        except UserError as error:
            if command.listen_asr:
                raise
            logger.warning("Nothing is listened to: %s", error)
        times.mark("sentences to listen to")
    text_row_facts = TextRowFacts(run) if ranks.is_main else None
    if text_row_facts is not None:
        metrics.facts(state.step, state.epoch_of_step, text_row_facts.read())
    val_settings = ValidationSettings(
        inputs, command.validation_batch_size, command.max_val_batches, run.base_size
    )
    check = partial(
        validate,
        run.model,
        inputs.val_set,
        val_settings,
        should_stop=lambda: stop.is_requested,
        trained_speakers=inputs.train_set.pairs.speaker_names,
        ranks=ranks,
    )
    skipped = SkippedSteps(state.num_skipped, state.num_skipped_in_a_row, should_log=ranks.is_main)
    speed = SpeedMeter(inputs.device)
    # a part that starts from an older checkpoint, or from one of another folder, needs one of its own
    state.part_is_unsaved = state.step > 0 and state.saved_step < 0

    signals = partial(gather_signals, state, ranks, saver, stop, speed, command.save_interval)

    while True:
        decision = decide(state, command, signals())
        # before anything is written: ten skipped steps in a row end the run without a save
        if skipped.is_due or decision.validate or decision.save or decision.stop:
            skipped.check()
        if decision.validate:
            with speed.paused():
                validate_now(run, check, metrics, saver)
                if text_row_facts is not None:
                    metrics.facts(state.step, state.epoch_of_step, text_row_facts.read())
            # again, with the new loss: it may be the best, which is saved at once, or exhaust the patience
            decision = decide(state, command, signals())
        if decision.listen:
            with speed.paused():
                listen_now(run, listener, metrics, saver, stop)
            # what was heard may be the best; and a stop signal ends a listening: this boundary is the one to
            # stop at
            decision = decide(state, command, signals())
        if decision.stop and decision.at_end:
            # the steps since the last [Train] line; after a signal they stay in the checkpoint's window
            reduce_window(run)
            log_window(run, metrics, speed, skipped.total)
        if decision.save:
            state.num_skipped, state.num_skipped_in_a_row = skipped.total, skipped.in_a_row
            with speed.paused():
                require_same_weights(run)
                reduce_window(run)
                state.limits_of_ranks = ranks.all_gather([state.position_limit, state.limited_at])
                save_checkpoint(run, probe, saver)
        if decision.stop:
            finish_saving(run, probe, saver, stop)
            # a signal during the last validation leaves it undone, so that the resumed run validates
            return decision.at_end and state.validated_step == state.step

        try:
            group = speed.next_group(groups)
        except StoppedWhileLoadingError:
            group = None
        # before the forward pass: each part of the step is divided by the tokens of the whole step
        counts = count_tokens(group, ranks)
        if group is None or counts is None:
            continue
        tokens, num_unreadable = counts
        if num_unreadable or state.unreadable:
            note_unreadable(gather_unreadable(ranks, group) if num_unreadable else [], group, run)
        is_skipped = train_step(run, group, tokens)
        # a step without a readable sample counts too: schedule and position stay functions of the data order
        state.advance(len(group), sum(len(part.ids) for part in group), inputs.train_set.size.num_samples)
        if is_skipped is None:
            continue
        speed.mark_submitted()
        loads = np.sum([part.rank_costs for part in group], axis=0).tolist() if ranks.is_distributed else ()
        speed.add(tokens.num_text + tokens.num_mel, loads)
        skipped.note(state.step, tuple(id for part in group for id in part.ids), is_skipped)
        if state.step % command.log_interval == 0:
            reduce_window(run)
            log_window(run, metrics, speed, skipped.total)


def train_step(run: Run, group: Sequence[MicroBatch], tokens: TokenCounts) -> Tensor | None:
    """Update the weights once, from all micro-batches of a group, and add the losses to the log window.

    Args:
        group: this rank's share of the step.
        tokens: of the step, on all ranks: the loss is the mean over them.

    Returns:
        1.0 where loss or gradient is not finite, so that nothing changed, else 0.0; on the device. None if no
        rank could read a sample of the group: nothing changes then.
    """
    sums, loss = accumulate(run, group, tokens)
    if sums is None or loss is None:
        return None
    state, command, step = run.state, run.inputs.command, run.state.step + 1
    # not a random state that a checkpoint would have to hold: a function of the seed and the step
    if isinstance(run.optimizer, Bfloat16StateAdamW):
        run.optimizer.rounding_seed = derive_seed(command.seed, "moments", step)
    scale_rates(run.optimizer, command.new_row_lr_scale, is_frozen=step <= command.freeze_body_steps)
    learning_rate = run.schedule.learning_rate(step)
    norm, is_skipped = clip_and_step(
        run.trained, run.optimizer, learning_rate, command.grad_clip, loss, run.scaler
    )
    if run.average is not None:
        run.average.update(is_skipped)
    sums = sums.unless(is_skipped)  # one NaN would make the mean of the whole window NaN
    state.window = sums if state.window is None else state.window + sums
    state.grad_norm = norm
    return is_skipped


def accumulate(
    run: Run, group: Sequence[MicroBatch], tokens: TokenCounts
) -> tuple[LossSums, Tensor] | tuple[None, None]:
    """Leave the gradients of the step's loss in the parameters, the same on every rank.

    Returns:
        The sums over this rank's samples and the loss of the step, or (None, None) if no rank could read a
        sample.

    Raises:
        UserError: with status 7 if a single sample does not fit into memory.
    """
    if not tokens.num_mel:
        return None, None
    batches = [part.batch for part in group if part.batch is not None]
    device = run.inputs.device
    if batches:
        sums, loss = in_parts_that_fit(run, batches, partial(forward_backward, run, tokens))
    else:  # this rank's share is empty, or none of it can be read
        sums, loss = LossSums.nothing(device), torch.zeros((), device=device)
        run.scaler.scale(loss)  # creates the scale, which the update needs
    if run.inputs.ranks.is_distributed:
        # reduced in place; `sums` stays this rank's own, and is summed once for many steps, for the log
        loss = loss.clone()
        all_reduce_gradients(run, loss)
    return sums, loss


def forward_backward(run: Run, tokens: TokenCounts, parts: Sequence[Batch]) -> tuple[LossSums, Tensor]:
    """Compute losses and gradients of micro-batches, one after another; gradients add up in the parameters.

    Each token of the step weighs the same, in whichever part it is.
    """
    inputs, command = run.inputs, run.inputs.command
    total_sums, total_loss = LossSums.nothing(inputs.device), torch.zeros((), device=inputs.device)
    for micro_step, part in enumerate(parts):
        # dropout and noise are functions of the step, so that a resumed run draws the same
        torch.manual_seed(
            derive_seed(command.seed, "dropout", run.state.step, micro_step, *inputs.ranks.seed_parts)
        )
        batch = perturbed(part.to(inputs.device), command.style_noise, command.emotion_dropout)
        with torch.autocast(inputs.device.type, inputs.dtype, enabled=inputs.dtype != torch.float32):
            sums = batch_sums(run.model, batch, inputs.attention, run.base_size)
        # divided by the tokens of the step, not of the part: a mean of means would weigh short parts more,
        # and a step split after a lack of memory would have another gradient
        text_loss, mel_loss = sums.text_nats / tokens.num_text, sums.mel_nats / tokens.num_mel
        loss = command.text_loss_weight * text_loss + command.mel_loss_weight * mel_loss
        run.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        # detached: the graph of a part must not outlive its backward pass
        total_sums, total_loss = total_sums + sums.detach(), total_loss + loss.detach()
    return total_sums, total_loss


class Update(NamedTuple):
    """Outcome of an optimizer step, 0-dimensional tensors on the device.

    `norm` is that of the gradient before clipping; `is_skipped` is 1.0 where the step was skipped, else 0.0.
    """

    norm: Tensor
    is_skipped: Tensor


def clip_and_step(
    trained: TrainedParameters,
    optimizer: torch.optim.AdamW,
    learning_rate: float,
    max_norm: float,
    loss: Tensor,
    scaler: torch.amp.GradScaler | None = None,
) -> Update:
    """Clip the gradients and do one optimizer step; where loss or gradient is not finite nothing changes.

    The fused kernels skip such a step on the device (`found_inf`, made for gradient scalers), so that the
    host never waits for the device to report it. They also divide the gradients (`grad_scale`), so that
    clipping takes no pass of its own.

    Args:
        scaler: the one that scaled the gradients; its scale shrinks where they are not finite.
    """
    trained.collect_gradients()
    if scaler is not None:
        scaler.unscale_(optimizer)  # first, since the limit is for the true norm
    norm = torch.nn.utils.get_total_norm(trained.gradients())
    is_skipped = 1.0 - (norm.isfinite() & loss.isfinite()).float()
    # `clip_grad_norm_` multiplies by max_norm / (norm + eps) where that is below 1; the kernel divides
    divisor = ((norm + CLIP_EPS) / max_norm).clamp(min=1.0)
    optimizer.grad_scale, optimizer.found_inf = divisor, is_skipped  # type: ignore[attr-defined]
    step_at(optimizer, trained, learning_rate)  # not `scaler.step`, which would overwrite both
    if scaler is not None and scaler.is_enabled():
        scaler.update()
    trained.clear_gradients()  # to None: the next backward pass writes instead of adding to zeros
    return Update(norm, is_skipped)


def gather_signals(
    state: TrainState, ranks: Ranks, saver: Saver, stop: StopRequest, speed: SpeedMeter, save_interval: int
) -> Signals:
    """Return what happened on any rank since the last step; a stop on one of them becomes a stop on all."""
    if state.step % save_interval == 0:
        with speed.paused():
            saver.wait()  # the save that may follow would wait for the one before it anyway
    else:
        saver.poll()
    stopping, failed, retry = ranks.all_reduce_ints(
        [stop.is_requested, saver.failures > 0, saver.is_retry_due]
    )
    if stopping:
        broadcast_stop(ranks, stop)
    return Signals(stopping > 0, failed > 0, retry > 0)


def reduce_window(run: Run) -> None:
    """Sum the losses since the last [Train] line over all ranks, on rank 0."""
    state, ranks = run.state, run.inputs.ranks
    if ranks.is_distributed:
        whole = all_reduce_losses(state.window, ranks, run.inputs.device)
        state.window = whole if ranks.is_main else None


def log_window(run: Run, metrics: MetricsLog, speed: SpeedMeter, num_skipped: int) -> None:
    """Write the means since the last [Train] line, if there were steps, and begin a new window."""
    state = run.state
    if not run.inputs.ranks.is_main or state.window is None:
        return
    means, state.window = state.window.means(), None
    if means is None:
        logger.warning("No [Train] line at step %d: every step since the last one was skipped", state.step)
        return
    state.last_losses = asdict(means)
    norm = float(state.grad_norm)
    numbers = {
        "lr": run.schedule.learning_rate(state.step),
        "grad_norm": norm if math.isfinite(norm) else None,  # not finite: a skipped step
        **speed.read(),
        "num_skipped": num_skipped,
    }
    metrics.train(state.step, state.epoch_of_step, means, numbers)


def log_stop(step: int | None, stop: StopRequest) -> int:
    """Write the last log line of a stopped run; return the exit status.

    Args:
        step: the last step that was done, None where nothing was loaded yet.
    """
    assert stop.signal is not None
    if step is None:
        logger.info(STOPPED_BEFORE_LOADING)
    else:
        logger.info("Stopped at step %d; resume with --resume auto", step)
    return 128 + stop.signal
