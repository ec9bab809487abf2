"""Saving while the training goes on: a copy in host memory, written by a thread of its own.

    the state now --HostCopy--> the same in host memory --thread--> model_step{N}.pth, .json, links, prune

The loop waits for the copy alone, and for the save before if that one is not done. What is never trained is
not copied: its memory does not change.
"""

import errno
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from indextts.errors import DISK_FULL, UserError
from indextts.models.checkpoint import write_checkpoint
from indextts.runs.directory import CheckpointMeta
from indextts.runs.owner import prune

logger = logging.getLogger(__name__)

MOST_FAILURES = 3
RETRY_AFTER_S = 60.0  # a person needs some time to make room
FINAL_RETRY_AFTER_S = 2.0  # at the end of the run there is nothing else to do in between
WORTH_SAYING_S = 1.0
SPARE_BYTES = 16 << 20  # meta files, log and metrics want some room too

KeyPath = tuple[object, ...]  # of a tensor in the content: the keys that lead to it


class HostCopy:
    """A copy of tensors in host memory, allocated once, in page-locked memory where they are on a card."""

    def __init__(self) -> None:
        self._copies: dict[KeyPath, Tensor] = {}

    def take(self, content: Mapping[str, Any], unchanging: frozenset[int]) -> dict[str, Any]:
        """Return `content` with copies in place of its tensors; the next call writes over them.

        Args:
            content: nested dicts and lists of tensors and plain values.
            unchanging: data pointers of the host tensors that nobody writes to; they are not copied.
        """
        copied: dict[str, Any] = self._walk(dict(content), (), unchanging, self._copy)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return copied

    def reserve(self, content: Mapping[str, Any], unchanging: frozenset[int]) -> None:
        """Allocate the memory for `take`: page-locked gigabytes take the system seconds."""
        self._walk(dict(content), (), unchanging, self._memory_for)

    def _walk(
        self,
        value: Any,
        place: KeyPath,
        unchanging: frozenset[int],
        for_tensor: Callable[[Tensor, KeyPath], Tensor],
    ) -> Any:
        if isinstance(value, Tensor):
            return value if value.data_ptr() in unchanging else for_tensor(value, place)
        if isinstance(value, dict):
            items = value.items()
            return {key: self._walk(item, (*place, key), unchanging, for_tensor) for key, item in items}
        if isinstance(value, list):
            return [self._walk(v, (*place, i), unchanging, for_tensor) for i, v in enumerate(value)]
        return value

    def _copy(self, tensor: Tensor, place: KeyPath) -> Tensor:
        return self._memory_for(tensor, place).copy_(tensor.detach(), non_blocking=True)

    def _memory_for(self, tensor: Tensor, place: KeyPath) -> Tensor:
        memory = self._copies.get(place)
        if memory is None or memory.shape != tensor.shape or memory.dtype != tensor.dtype:
            memory = _host_memory(tensor)
            self._copies[place] = memory
        return memory


class Saver:
    """Writes the checkpoints of one run directory, one at a time; a full disk does not end the training.

    Args:
        failures: how many saves in a row failed.
        lost_best: step of the last of them that had the best model so far, None if none had it.
    """

    def __init__(self, run_dir: Path, keep: int) -> None:
        self.run_dir, self.keep = run_dir, keep
        self.failures = 0
        self.lost_best_step: int | None = None
        self._copy = HostCopy()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="save")
        self._reserving: Future[None] | None = None
        self._writing: tuple[CheckpointMeta, Future[Path]] | None = None
        self._failed_at = 0.0

    @property
    def is_retry_due(self) -> bool:
        """Whether the last save failed and a person has had time to make room."""
        return self.failures > 0 and time.monotonic() - self._failed_at > RETRY_AFTER_S

    def prepare(self, content: Mapping[str, Any], unchanging: frozenset[int]) -> None:
        """Allocate memory for the copies beside the first steps; only for a card, where that takes long."""
        if torch.cuda.is_available():
            self._reserving = self._thread.submit(self._copy.reserve, content, unchanging)

    def start(self, content: Mapping[str, Any], meta: CheckpointMeta, unchanging: frozenset[int]) -> None:
        """Copy the state and begin to write it.

        Raises:
            UserError: with status 4 if the save before it was the third in a row that failed.
        """
        self.wait()
        if self._reserving is not None:  # two threads must not allocate the same memory
            self._reserving.result()
        copied = self._copy.take(content, unchanging)
        self._writing = meta, self._thread.submit(self._write, copied, meta)

    def poll(self) -> None:
        """Say it if a save failed meanwhile; does not wait. Raises as `start`."""
        if self._writing and self._writing[1].done():
            self.wait()

    def wait(self) -> None:
        """Wait until what was begun is on the disk. Raises as `start`."""
        if self._writing is None:
            return
        meta, future = self._writing
        self._writing = None
        started = time.perf_counter()
        try:
            future.result()
        except OSError as error:
            if meta.is_best:
                self.lost_best_step = meta.step
            self._note_failure(meta.step, error)
        else:
            self.failures = 0
        waited = time.perf_counter() - started
        if waited > WORTH_SAYING_S:
            logger.info("Waited %.1f s for the save of step %d", waited, meta.step)

    def close(self) -> None:
        """Wait for the thread, whatever becomes of the save."""
        self._thread.shutdown(wait=True)

    def _note_failure(self, step: int, error: OSError) -> None:
        self.failures += 1
        self._failed_at = time.monotonic()
        reason = error.strerror or str(error)
        if self.failures >= MOST_FAILURES:
            raise UserError(
                f"The checkpoint of step {step} could not be written to {self.run_dir} ({reason}), for the "
                f"{self.failures}rd time in a row; the checkpoints before it are untouched: make room on the "
                "disk, and go on with --resume auto",
                DISK_FULL,
            ) from None
        logger.warning(
            "The checkpoint of step %d could not be written to %s (%s); the training goes on and tries "
            "again: make room on the disk now",
            step,
            self.run_dir,
            reason,
        )

    def _write(self, content: Mapping[str, Any], meta: CheckpointMeta) -> Path:
        needed, free = num_bytes(content) + SPARE_BYTES, _free_bytes(self.run_dir)
        if needed > free:
            raise OSError(errno.ENOSPC, f"it needs {needed / 1e9:.2f} GB, {free / 1e9:.2f} GB are free")
        started = time.perf_counter()
        path = write_checkpoint(self.run_dir, content, meta)
        logger.info(
            "Saved %s%s (%.1f s beside the training)",
            path,
            ", the best so far" if meta.is_best else "",
            time.perf_counter() - started,
        )
        try:
            removed = prune(self.run_dir, self.keep, meta.part)
        except OSError as error:  # the checkpoint is safe; what was left over is removed at the next start
            logger.warning("Old checkpoints could not be removed: %s", error)
        else:
            if removed:
                logger.info("Removed %s", ", ".join(removed))
        return path


def num_bytes(value: Any) -> int:
    """Return the bytes of all tensors in nested dicts and lists."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Mapping):
        return sum(num_bytes(item) for item in value.values())
    return sum(num_bytes(item) for item in value) if isinstance(value, list) else 0


def _host_memory(tensor: Tensor) -> Tensor:
    """Return memory for a copy of `tensor`, page-locked if it is on a card and the system allows as much."""
    try:
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
    except RuntimeError:
        return torch.empty(tensor.shape, dtype=tensor.dtype)


def _free_bytes(folder: Path) -> int:
    while not folder.exists():  # somebody moved it away; it is made again
        folder = folder.parent
    return shutil.disk_usage(folder).free
