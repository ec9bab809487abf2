"""Facts that the ranks synchronise before each step, and checks that their states are identical.

Before each step every rank publishes the number of tokens in its shards, whether it was asked to stop,
whether it has unreadable samples, and the state of rank 0's saver. The loop decides from the sums alone, so
every rank decides the same. A single process needs no communication.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import torch

from indextts.commands.train import Train
from indextts.errors import CHECK_FAILED, UserError
from indextts.system.signals import StopRequest
from indextts.training.batches import MicroBatch, Unreadable
from indextts.training.distributed.ranks import Ranks
from indextts.training.distributed.torchrun import log_name
from indextts.training.optim import Trained
from indextts.training.run import Run
from indextts.training.saving import Saver


@dataclass(frozen=True)
class SyncedStep:
    """Facts about the next step, identical on all ranks.

    Args:
        num_text, num_mel: tokens of the step, summed over all ranks; 0 without a step.
        num_unreadable: unreadable samples of the step.
        must_stop: a rank was asked to stop.
        has_failed_save, is_retry_due: as in the `Saver` of rank 0.
    """

    num_text: int
    num_mel: int
    num_unreadable: int
    must_stop: bool
    has_failed_save: bool
    is_retry_due: bool

    @property
    def num_tokens(self) -> int:
        return self.num_text + self.num_mel


def sync_step(
    ranks: Ranks, group: Sequence[MicroBatch] | None, stop: StopRequest, saver: Saver
) -> SyncedStep:
    """Return the facts of the next step; a stop asked of any rank is passed on to all.

    Args:
        group: this rank's shards of the next step, None where there is none.
    """
    batches = [part.batch for part in group or () if part.batch is not None]
    sums = ranks.all_reduce_ints(
        [
            sum(batch.num_text for batch in batches),
            sum(batch.num_mel for batch in batches),
            sum(len(part.unreadable) for part in group or ()),
            stop.is_requested,
            saver.failures > 0,
            saver.is_retry_due,
        ]
    )
    num_text, num_mel, num_unreadable, num_stopping, num_failed_saves, num_retries = sums
    if num_stopping:
        broadcast_stop(ranks, stop)
    return SyncedStep(
        num_text, num_mel, num_unreadable, num_stopping > 0, num_failed_saves > 0, num_retries > 0
    )


def broadcast_stop(ranks: Ranks, stop: StopRequest) -> None:
    """Ask all ranks to stop, with the signal of the lowest rank that was asked."""
    number = next(number for number in ranks.all_gather(stop.signal) if number is not None)
    stop.request(number)


def gather_unreadable(ranks: Ranks, group: Sequence[MicroBatch]) -> list[Unreadable]:
    """Return the unreadable samples of the step on all ranks, ordered by rank."""
    own = [sample for part in group for sample in part.unreadable]
    return [sample for part in ranks.all_gather(own) for sample in part]


def require_same_start(run: Run) -> None:
    """Raise a UserError unless all ranks start with the same weights, pairs and settings."""
    inputs = run.inputs
    if not inputs.ranks.is_distributed:
        return
    settings = inputs.command.model_dump(mode="json", exclude=set(Train.of_process))
    facts = {
        "settings": str(settings),
        "training pairs": inputs.data_order,
        "validation pairs": inputs.validation_set,
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


def fingerprint(trained: Trained) -> str:
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
