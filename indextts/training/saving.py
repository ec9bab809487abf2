"""Asynchronous saving: a copy of the state in host memory, written by a background thread.

    current state --HostCopy--> copy in host memory --thread--> room, model_step{N}.pth, .json, links, prune

The loop waits only for the copy, and for the previous save if that is still in progress. Weights that are
never trained are not copied, since their memory does not change.
"""

import errno
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from indextts.errors import DISK_FULL, DISK_FULL_ERRNOS, UserError
from indextts.models.checkpoint import write_checkpoint
from indextts.runs.directory import CheckpointMeta, checkpoint_path
from indextts.runs.owner import make_room, prune
from indextts.system.amounts import ordinal, shown_size
from indextts.system.files import free_bytes
from indextts.system.signals import StopRequest
from indextts.training.probe import Probe
from indextts.training.record import checkpoint_of
from indextts.training.run import Run

logger = logging.getLogger(__name__)

# A failed save is tried again after this time, twice as long after each further failure, up to the maximum.
RETRY_AFTER_S, MAX_RETRY_AFTER_S = 60.0, 600.0
# At the end of the run there is nothing else to do in between; then the user has this long to free space.
FINAL_RETRY_AFTER_S = 5.0
END_PATIENCE_S, STOP_PATIENCE_S = 600.0, 30.0
POLL_INTERVAL_S = 0.1
MIN_LOGGED_WAIT_S = 1.0
SPARE_BYTES = 16 << 20  # for meta files, log and metrics


class HostCopy:
    """Copies of tensors in host memory, allocated once; page-locked for tensors on a GPU."""

    def __init__(self) -> None:
        self._copies: dict[int, Tensor] = {}  # by the place of the tensor in the content

    def take(self, content: Mapping[str, Any], frozen_pointers: frozenset[int]) -> dict[str, Any]:
        """Return `content` with its tensors replaced by copies, which the next call overwrites.

        Args:
            frozen_pointers: data pointers of host tensors that never change; they are not copied.
        """
        # a tuple stays the same object: rebuilt, those that groups share would be written once for each
        leaves, structure = tree_flatten(dict(content), is_leaf=lambda value: isinstance(value, tuple))
        copied = [
            self._copy(leaf, place)
            if isinstance(leaf, Tensor) and leaf.data_ptr() not in frozen_pointers
            else leaf
            for place, leaf in enumerate(leaves)
        ]
        # the copies run beside the host; the next step changes the weights that they read
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        result: dict[str, Any] = tree_unflatten(copied, structure)
        return result

    def _copy(self, tensor: Tensor, place: int) -> Tensor:
        memory = self._copies.get(place)
        if memory is None or memory.shape != tensor.shape or memory.dtype != tensor.dtype:
            memory = self._copies[place] = _host_memory(tensor)
        # not blocking: thousands of tensors, each of which would wait for the device
        return memory.copy_(tensor.detach(), non_blocking=True)


class Saver:
    """Writer of the checkpoints of a run directory, one at a time; a failed save does not end the run.

    Args:
        failures: number of failed saves in a row.
        problem, remedy: what the last of them met, and what the user can do about it.
        lost_best: the last of them that had a best model so far, None if none had it.
        report: called with the step and the number of failed saves in a row.
    """

    def __init__(
        self, run_dir: Path, keep: int, report: Callable[[int, int], None] = lambda _step, _failures: None
    ) -> None:
        self.run_dir, self.keep, self.report = run_dir, keep, report
        self.failures, self.problem, self.remedy = 0, "", ""
        self.lost_best: CheckpointMeta | None = None
        self._copy = HostCopy()
        # one thread: saves, and what they delete, never overlap
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="save")
        self._writing: tuple[CheckpointMeta, Future[Path]] | None = None
        self._failed_at = 0.0

    @property
    def is_retry_due(self) -> bool:
        """True if the last save failed long enough ago to try again."""
        if not self.failures:
            return False
        # the exponent is limited, since a float overflows after a thousand failures
        delay_s = min(RETRY_AFTER_S * 2.0 ** min(self.failures - 1, 10), MAX_RETRY_AFTER_S)
        return time.monotonic() - self._failed_at > delay_s

    def prune(self, part: int) -> None:
        """Delete surplus checkpoints in the background; --keep-checkpoints may be lower than before."""
        self._thread.submit(self._prune, part)

    def start(
        self, content: Mapping[str, Any], meta: CheckpointMeta, frozen_pointers: frozenset[int]
    ) -> None:
        """Copy the state and start writing it, after the save before it."""
        self.wait()  # it reads the copies that this save overwrites
        copied = self._copy.take(content, frozen_pointers)
        self._writing = meta, self._thread.submit(self._write, copied, meta)

    def poll(self) -> None:
        """Log a save that failed meanwhile, without waiting."""
        if self._writing and self._writing[1].done():
            self.wait()

    def wait(self) -> None:
        """Wait until the save in progress is on disk, or has failed."""
        if self._writing is None:
            return
        meta, future = self._writing
        self._writing = None
        started = time.perf_counter()
        try:
            future.result()
        except OSError as error:  # the disk; any other error is a bug, and ends the run
            if meta.is_best or meta.is_best_heard:
                self.lost_best = meta
            self._note_failure(meta.step, error)
        else:
            self.failures = 0
        waited = time.perf_counter() - started
        if waited > MIN_LOGGED_WAIT_S:
            logger.info("Waited %.1f s for the previous save, of step %d", waited, meta.step)

    def close(self) -> None:
        """Wait for the thread, whether its save succeeds or not."""
        self._thread.shutdown(wait=True)

    def _note_failure(self, step: int, error: OSError) -> None:
        self.failures += 1
        self._failed_at = time.monotonic()
        self.problem = (
            f"Cannot write the checkpoint of step {step} to {self.run_dir} ({error.strerror or error})"
        )
        is_full = error.errno in DISK_FULL_ERRNOS
        self.remedy = "free disk space" if is_full else "check the drive and its connection"
        logger.warning(
            "%s; this is the %s failed save in a row: %s, the trainer retries",
            self.problem,
            ordinal(self.failures),
            self.remedy,
        )
        self.report(step, self.failures)

    def _write(self, content: Mapping[str, Any], meta: CheckpointMeta) -> Path:
        # asked before a byte is written: a disk that is full meanwhile stops the log and other programs too
        needed, free = num_bytes(content) + SPARE_BYTES, free_bytes(self.run_dir)
        if needed > free and make_room(self.run_dir, needed - free, self.keep, meta.part):
            free = free_bytes(self.run_dir)
        if needed > free:
            raise OSError(errno.ENOSPC, f"{shown_size(needed)} needed, {shown_size(free)} free")
        started = time.perf_counter()
        try:
            path = write_checkpoint(self.run_dir, content, meta)
        except OSError as error:  # a quota, which the free space of the disk does not show
            if error.errno not in DISK_FULL_ERRNOS:
                raise
            if not make_room(self.run_dir, num_bytes(content), self.keep, meta.part):
                raise
            path = write_checkpoint(self.run_dir, content, meta)
        logger.info(
            "Saved %s%s (%.1f s in the background)",
            path,
            ", the best model so far" * meta.is_best + ", the best by listening" * meta.is_best_heard,
            time.perf_counter() - started,
        )
        self._prune(meta.part)
        return path

    def _prune(self, part: int) -> None:
        try:
            removed = prune(self.run_dir, self.keep, part)
        except OSError as error:  # no checkpoint is harmed; the next save or start removes the rest
            logger.warning("Cannot remove old checkpoints: %s", error)
        else:
            if removed:
                logger.info("Removed %s", ", ".join(removed))


def save_checkpoint(run: Run, probe: Probe, saver: Saver) -> None:
    """Start writing a checkpoint of this moment, after the save before it; only rank 0 writes."""
    started = time.perf_counter()
    state = run.state
    saver.wait()
    lost, saver.lost_best = saver.lost_best, None
    if lost is not None and lost.step == state.step:  # its weights, tried again
        state.best_is_unsaved |= lost.is_best
        state.best_heard_is_unsaved |= lost.is_best_heard
    is_best, is_best_heard = state.best_is_unsaved, state.best_heard_is_unsaved
    run.trained.check_views()  # a checkpoint whose optimizer is apart from its model would look valid
    # counted on all ranks and before the write: a failed save's number is used up, so numbers only grow
    state.serial += 1
    state.saved_step = state.step
    state.best_is_unsaved = state.best_heard_is_unsaved = state.part_is_unsaved = False
    name = checkpoint_path(saver.run_dir, state.step).name
    state.recent = [*(other for other in state.recent if other != name), name][-saver.keep :]
    if not run.inputs.ranks.is_main:
        return
    state.probe = probe.losses(run.model)  # with the weights of this save, for the check after a resume
    content = checkpoint_of(run, is_best=is_best, is_best_heard=is_best_heard)
    saver.start(*content, frozen_pointers(run))
    seconds = time.perf_counter() - started
    logger.info("Saving step %d; this blocked the training for %.2f s", state.step, seconds)


def finish_saving(run: Run, probe: Probe, saver: Saver, stop: StopRequest) -> None:
    """Wait for the save in progress; retry while the disk refuses.

    Raises:
        UserError: with status 4 if it refuses for END_PATIENCE_S, for STOP_PATIENCE_S after a stop signal, or
            until a second signal.
    """
    saver.wait()
    # after a stop signal somebody waits for the end, at the end of a run nobody may be there to free space
    deadline, is_stopping = time.monotonic() + END_PATIENCE_S, False
    retry_at = time.monotonic() + FINAL_RETRY_AFTER_S
    while saver.failures:
        if stop.is_requested and not is_stopping:
            is_stopping, deadline = True, min(deadline, time.monotonic() + STOP_PATIENCE_S)
        if time.monotonic() > deadline or stop.count > 1:
            raise UserError(
                f"{saver.problem}; earlier checkpoints are valid: {saver.remedy}, then resume with "
                "--resume auto",
                DISK_FULL,
            )
        if time.monotonic() < retry_at:
            time.sleep(POLL_INTERVAL_S)
            continue
        save_checkpoint(run, probe, saver)
        saver.wait()
        retry_at = time.monotonic() + FINAL_RETRY_AFTER_S


def frozen_pointers(run: Run) -> frozenset[int]:
    """Return the data pointers of weights that are never trained."""
    return frozenset(p.data_ptr() for p in run.model.parameters() if not p.requires_grad)


def num_bytes(value: Any) -> int:
    """Return the size of all tensors in nested dicts and lists, in bytes."""
    return sum(leaf.numel() * leaf.element_size() for leaf in tree_leaves(value) if isinstance(leaf, Tensor))


def _host_memory(tensor: Tensor) -> Tensor:
    """Return memory for a copy of `tensor`, page-locked if it is on a GPU and the system allows it."""
    try:
        # copies into other memory would be staged by the driver, and block the host
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
    except RuntimeError:
        return torch.empty(tensor.shape, dtype=tensor.dtype)
