"""Communication of the ranks around a step: a stop for all, and checks that their states are identical."""

import hashlib
import logging
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from indextts.errors import CHECK_FAILED, UserError
from indextts.system.amounts import counted
from indextts.system.signals import StopRequest
from indextts.training.batches import MicroBatch, Unreadable
from indextts.training.distributed.ranks import Ranks
from indextts.training.distributed.torchrun import log_name
from indextts.training.optim import TrainedParameters
from indextts.training.run import Run

logger = logging.getLogger(__name__)


def broadcast_stop(ranks: Ranks, stop: StopRequest) -> None:
    """Ask all ranks to stop, with the signal of the lowest rank that was asked."""
    number = next(number for number in ranks.all_gather(stop.signal) if number is not None)
    stop.request(number)


def gather_unreadable(ranks: Ranks, group: Sequence[MicroBatch]) -> list[Unreadable]:
    """Return the unreadable samples of the step on all ranks, ordered by rank."""
    own = [sample for part in group for sample in part.unreadable]
    return [sample for part in ranks.all_gather(own) for sample in part]


def log_ranks(ranks: Ranks, device: str, step_size: str) -> None:
    """Log how many ranks train, on which nodes and devices, and the size of a step."""
    if not ranks.is_distributed:
        return
    hosts_and_devices = ranks.all_gather((socket.gethostname(), device))
    devices = Counter(name for _, name in hosts_and_devices)
    logger.info(
        "%d ranks on %s (%s), %s per step%s",
        ranks.world_size,
        counted(len({host for host, _ in hosts_and_devices}), "node"),
        ", ".join(f"{count} x {name}" for name, count in devices.items()),
        step_size,
        f"; restart {ranks.num_restarts}" if ranks.num_restarts else "",
    )


def require_same_start(run: Run, settings: Mapping[str, Any]) -> None:
    """Raise a UserError unless all ranks start with the same weights, pairs and `settings`."""
    inputs = run.inputs
    if not inputs.ranks.is_distributed:
        return
    facts = {
        "settings": str(settings),
        "training pairs": inputs.data_order,
        "validation pairs": inputs.validation_set,
        "base checkpoint": run.base.digest,
        "tokenizer": inputs.tokenizer.vocabulary.fingerprint,
        "start step": str(run.state.step),
        "schedule": str(asdict(run.schedule)),
        "arithmetic": " ".join(
            str(inputs.environment[name]) for name in ("arithmetic", "attention", "torch")
        ),
        "device type": inputs.device.type,
        "position": str([run.state.part, run.state.epoch, run.state.samples_done, run.state.saved_step]),
        "weights": fingerprint(run.trained),
    }
    name, rank = _first_difference(inputs.ranks, facts)
    if name:
        raise UserError(
            f"Rank {rank} and rank 0 differ in: {name}. All ranks need the same files under the same paths "
            f"(for example on a shared disk), the same versions and the same GPU model ({log_name(rank)})"
        )


def require_same_weights(run: Run) -> None:
    """Raise a UserError unless the trained weights are bit-identical on all ranks."""
    ranks = run.inputs.ranks
    if not ranks.is_distributed:
        return
    name, rank = _first_difference(ranks, {"weights": fingerprint(run.trained)})
    if name:
        raise UserError(
            f"At step {run.state.step} the weights of rank {rank} and rank 0 differ, so no checkpoint is "
            "saved: all ranks need the same GPU model and the same versions; the last checkpoint is intact, "
            "resume with --resume auto",
            CHECK_FAILED,
        )


def fingerprint(trained: TrainedParameters) -> str:
    """Return a digest of the bits of all trained weights; reads the device once."""
    sums = [
        each.detach().contiguous().view(torch.int32).sum(dtype=torch.int64)
        for each in trained.parameters.values()
    ]
    return hashlib.sha256(repr(torch.stack(sums).tolist()).encode()).hexdigest()


def _first_difference(ranks: Ranks, facts: Mapping[str, str]) -> tuple[str, int]:
    """Return the first fact in which a rank differs from rank 0, and that rank; "" without differences."""
    facts_by_rank = ranks.all_gather(dict(facts))
    for name in facts:
        for rank, other in enumerate(facts_by_rank):
            if other[name] != facts_by_rank[0][name]:
                return name, rank
    return "", 0
