"""What the processes of a training decide together, and the checks that they still do the same.

Before each step they tell each other how many tokens their shares have, whether somebody was asked to stop,
whether samples could not be read, and how the first one's saving goes: all decisions of the loop follow from
that, so that they are the same everywhere. One process alone agrees with itself.
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
class Agreed:
    """What holds for all processes before a step.

    Args:
        num_text, num_mel: tokens of the step, of all shares; 0 without a step.
        num_unreadable: samples of the step that cannot be read.
        must_stop: somebody was asked to.
        has_failed_save, wants_another_try: as `Saver`'s of the first process.
    """

    num_text: int
    num_mel: int
    num_unreadable: int
    must_stop: bool
    has_failed_save: bool
    wants_another_try: bool

    @property
    def num_tokens(self) -> int:
        return self.num_text + self.num_mel


def agree(ranks: Ranks, group: Sequence[MicroBatch] | None, stop: StopRequest, saver: Saver) -> Agreed:
    """Return what holds for all processes; a stop that one of them was asked for is asked of all.

    Args:
        group: own shares of the next step, None where there is none.
    """
    batches = [part.batch for part in group or () if part.batch is not None]
    sums = ranks.agree(
        [
            sum(batch.num_text for batch in batches),
            sum(batch.num_mel for batch in batches),
            sum(len(part.unreadable) for part in group or ()),
            stop.is_requested,
            saver.failures > 0,
            saver.wants_another_try,
        ]
    )
    num_text, num_mel, num_unreadable, num_stopping, has_failed_save, wants_another_try = sums
    if num_stopping:
        ask_all(ranks, stop)
    return Agreed(
        num_text, num_mel, num_unreadable, num_stopping > 0, has_failed_save > 0, wants_another_try > 0
    )


def ask_all(ranks: Ranks, stop: StopRequest) -> None:
    """Ask all processes to stop, by the signal that the first of those that were asked got."""
    number = next(number for number in ranks.gathered(stop.signal) if number is not None)
    stop.request(number)


def unreadable_of_all(ranks: Ranks, group: Sequence[MicroBatch]) -> list[Unreadable]:
    """Return the samples of the step that cannot be read, of all shares, in the order of the processes."""
    own = [sample for part in group for sample in part.unreadable]
    return [sample for part in ranks.gathered(own) for sample in part]


def require_same_start(this: Run) -> None:
    """Raise a UserError unless all processes begin with the same weights, pairs and settings."""
    inputs = this.inputs
    if inputs.ranks.is_alone:
        return
    settings = inputs.command.model_dump(mode="json", exclude=set(Train.of_process))
    facts = {
        "settings": str(settings),
        "training pairs": inputs.data_order,
        "validation pairs": inputs.validation_set,
        "tokenizer": inputs.tokenizer.vocabulary.fingerprint,
        "step to go on from": str(this.state.step),
        "schedule": str(asdict(this.schedule)),
        "arithmetic": " ".join(
            str(inputs.environment[name]) for name in ("arithmetic", "attention", "torch")
        ),
        "kind of device": inputs.device.type,
        "position": str([this.state.part, this.state.epoch, this.state.samples_done, this.state.saved_step]),
        "weights": fingerprint(this.trained),
    }
    name, rank = _first_difference(inputs.ranks, facts)
    if name:
        raise UserError(
            f"Process {rank} has other {name} than process 0: all of them need the same files under the same "
            "paths, as on a disk that all machines share, the same versions and the same kind of card "
            f"({log_name(rank)})"
        )


def require_same_weights(this: Run) -> None:
    """Raise a UserError unless what is trained is bit for bit the same in all processes."""
    ranks = this.inputs.ranks
    if ranks.is_alone:
        return
    name, rank = _first_difference(ranks, {"weights": fingerprint(this.trained)})
    if name:
        raise UserError(
            f"At step {this.state.step} process {rank} has other weights than process 0, so nothing is "
            "saved: all processes need cards of one kind and the same versions; the last checkpoint is "
            "untouched, go on with --resume auto",
            CHECK_FAILED,
        )


def fingerprint(trained: Trained) -> str:
    """Return a digest of the bits of all that is trained; reads the device once."""
    sums = [
        each.detach().contiguous().view(torch.int32).sum(dtype=torch.int64)
        for each in trained.parameters.values()
    ]
    return hashlib.sha256(repr(torch.stack(sums).tolist()).encode()).hexdigest()


def _first_difference(ranks: Ranks, facts: Mapping[str, str]) -> tuple[str, int]:
    """Return the first fact that some process has otherwise than process 0, and which process; "" if none."""
    everybody = ranks.gathered(dict(facts))
    for name in facts:
        for rank, other in enumerate(everybody):
            if other[name] != everybody[0][name]:
                return name, rank
    return "", 0
