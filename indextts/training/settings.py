"""Settings that a start chooses: those of a new run for its machine and pairs, and the workers of any start.

The memory of a GPU is what is free when the trainer starts. All ranks choose from the same facts: the
smallest GPU and the fewest cores among them.

The default validation interval limits validation to 1/20 of the training cost. The cost is counted in
operations, not in time, so every machine chooses the same interval: a validation is a forward pass over its
pairs, which costs a third of a training step over as many positions. Validating the averaged weights doubles
the cost. The validations before the first and after the last step are not counted.
"""

import logging
import math
from dataclasses import replace

import numpy as np
import torch
import torch.distributed as dist

from indextts.commands.train import Train
from indextts.errors import RESUME_REFUSED, UserError
from indextts.models.gpt.config import config_with_text_tokens
from indextts.planning.hardware import GpuFacts, MachineFacts, find_host
from indextts.planning.pairs_size import PairsSize
from indextts.planning.proposal import StartFacts
from indextts.runs.directory import CheckpointMeta
from indextts.runs.restore import steps_of
from indextts.runs.schedule import EpochSize
from indextts.training.run import Inputs

logger = logging.getLogger(__name__)

MAX_VALIDATION_SHARE = 1 / 20
FORWARD_SHARE = 1 / 3  # of the cost of forward and backward


def with_automatic_settings(inputs: Inputs, base_size: int, meta: CheckpointMeta | None = None) -> Inputs:
    """Return the inputs with the settings of a new run that were not typed, chosen for its machine and data.

    A resume keeps the settings of its run; only the number of workers is chosen for this machine.

    Args:
        inputs: of a resume, with the command of the restore plan.
        meta: of the checkpoint that is resumed; None for a new run.

    Raises:
        UserError: with status 3 if the settings of a resume do not fit into the memory of this GPU.
    """
    command, world_size = inputs.command, inputs.ranks.world_size
    config = config_with_text_tokens(inputs.config, inputs.tokenizer.size)
    pairs = PairsSize(inputs.train_set.size, spread=float(np.std(inputs.train_set.lengths)))
    facts = StartFacts(command, machine_of(inputs), config, base_size, pairs, world_size)
    if meta is not None and (too_small := facts.too_small(meta.environment.get("device"))):
        raise UserError(f"Resume failed: {too_small}", RESUME_REFUSED)
    proposal = facts.propose()
    names = [name for name in proposal.fields if meta is None or name in Train.of_process]
    for fields, reason in proposal.by_reason():
        chosen = [name for name in fields if name in names]
        if chosen:
            logger.info("Automatic: %s: %s", " ".join(proposal.flags(chosen)), reason)
    command = command.model_copy(update={name: proposal.fields[name] for name in names})
    if meta is None:
        command = _with_val_interval(command, inputs.train_set.size, inputs.val_set.size, world_size)
    return replace(inputs, command=command)


def _with_val_interval(command: Train, train: EpochSize, validation: EpochSize, world_size: int) -> Train:
    """Return the command with the fewest steps between validations that keep to MAX_VALIDATION_SHARE.

    A typed interval, and a longer one, is kept.

    Args:
        train, validation: all pairs of each kind.
    """
    most_pairs = command.max_val_batches * world_size * command.validation_batch_size
    pairs = min(validation.num_samples, most_pairs or validation.num_samples)
    cost = (2 if command.ema_decay else 1) * FORWARD_SHARE * validation.scaled(pairs).num_positions
    num_steps = steps_of(command, train, world_size)
    interval = math.ceil(cost / MAX_VALIDATION_SHARE * num_steps / train.num_positions)
    if "val_interval" in command.model_fields_set or interval <= command.val_interval:
        return command
    logger.info(
        "Validating every %d steps instead of every %d, which limits validation to 1/%d of the training cost "
        "(override with --val-interval)",
        interval,
        command.val_interval,
        round(1 / MAX_VALIDATION_SHARE),
    )
    return command.model_copy(update={"val_interval": interval})


def machine_of(inputs: Inputs) -> MachineFacts:
    """Return the smallest share of this machine, or of the other machines, that a rank has."""
    own = _own_share(inputs)
    shares = inputs.ranks.all_gather(own) if dist.is_initialized() else [own]  # --plan joins no group
    gpus = [share.gpu for share in shares if share.gpu is not None]
    smallest = min(gpus, key=lambda gpu: gpu.memory_bytes, default=None)
    return replace(
        own,
        gpus=(smallest,) if smallest else (),
        num_cores=min(share.num_cores for share in shares),
        memory_bytes=min(share.memory_bytes for share in shares),
        has_native_bfloat16=all(share.has_native_bfloat16 for share in shares),
    )


def _own_share(inputs: Inputs) -> MachineFacts:
    """Return what this rank may use: free memory of its GPU, its share of the cores and the host memory."""
    host, ranks_here = find_host(), inputs.ranks.local_world_size
    gpus: tuple[GpuFacts, ...] = ()
    if inputs.device.type == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(inputs.device)
        name = torch.cuda.get_device_name(inputs.device)
        gpus = (GpuFacts(name, free_bytes, torch.cuda.get_device_capability(inputs.device)),)
    return replace(
        host,
        gpus=gpus,
        num_cores=max(1, host.num_cores // ranks_here),
        memory_bytes=host.memory_bytes // ranks_here,
    )
