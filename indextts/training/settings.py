"""Settings that a start chooses: those of a new run for its machine and pairs, and the workers of any start.

The memory of a GPU is what is free when the trainer starts. All ranks choose from the same facts: the
smallest GPU and the fewest cores among them.
"""

import logging
from dataclasses import replace

import numpy as np
import torch
import torch.distributed as dist

from indextts.commands.train import Train
from indextts.errors import RESUME_REFUSED, UserError
from indextts.models.gpt.config import GPTConfig, config_with_text_tokens
from indextts.planning.hardware import GpuFacts, MachineFacts, find_host
from indextts.planning.held_settings import gpu_too_small
from indextts.planning.memory import ModelSize, model_size
from indextts.planning.pairs_size import PairsSize
from indextts.planning.proposal import Proposal, propose
from indextts.runs.directory import CheckpointMeta
from indextts.runs.schedule import with_val_interval
from indextts.training.run import Inputs

logger = logging.getLogger(__name__)


def with_chosen_settings(inputs: Inputs, base_size: int) -> Inputs:
    """Return the inputs of a new run, with unset settings chosen for its machine and data.

    Args:
        base_size: vocabulary size of the base tokenizer.
    """
    proposal = _propose(inputs, base_size)
    _log(proposal, list(proposal.fields))
    command = with_val_interval(
        proposal.applied_to(inputs.command),
        inputs.train_set.size,
        inputs.val_set.size,
        inputs.ranks.world_size,
    )
    return replace(inputs, command=command)


def with_held_settings(inputs: Inputs, meta: CheckpointMeta, base_size: int) -> Inputs:
    """Return the inputs of a resume with workers for this machine; all other settings are those of its run.

    Args:
        inputs: with the command of the restore plan.

    Raises:
        UserError: with status 3 if the settings do not fit into the memory of this GPU.
    """
    config = config_with_text_tokens(inputs.config, inputs.tokenizer.size)
    too_small = gpu_too_small(
        inputs.command,
        machine_of(inputs),
        config,
        _size(inputs, config, base_size),
        pairs_size(inputs),
        inputs.ranks.world_size,
        device_before=meta.environment.get("device"),
    )
    if too_small:
        raise UserError(f"Resume failed: {too_small}", RESUME_REFUSED)
    proposal = _propose(inputs, base_size)
    workers = {name: value for name, value in proposal.fields.items() if name in Train.of_process}
    _log(proposal, list(workers))
    return replace(inputs, command=inputs.command.model_copy(update=workers))


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
        can_compile=all(share.can_compile for share in shares),
    )


def pairs_size(inputs: Inputs) -> PairsSize:
    """Return the size of an epoch over the training pairs."""
    return PairsSize(inputs.train_set.size, spread=float(np.std(inputs.train_set.lengths)))


def _own_share(inputs: Inputs) -> MachineFacts:
    """Return what this rank may use: free memory of its GPU, its share of the cores and the host memory."""
    host, ranks_here = find_host(), inputs.ranks.info.local_world_size
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


def _propose(inputs: Inputs, base_size: int) -> Proposal:
    config = config_with_text_tokens(inputs.config, inputs.tokenizer.size)
    size = _size(inputs, config, base_size)
    machine, pairs = machine_of(inputs), pairs_size(inputs)
    return propose(inputs.command, machine, config, size, pairs, inputs.ranks.world_size)


def _size(inputs: Inputs, config: GPTConfig, base_size: int) -> ModelSize:
    command = inputs.command
    return model_size(
        config, base_size=base_size, lora_rank=command.lora_rank, lora_targets=command.lora_targets
    )


def _log(proposal: Proposal, names: list[str]) -> None:
    for fields, reason in proposal.by_reason():
        chosen = [name for name in fields if name in names]
        if chosen:
            logger.info("Automatic: %s: %s", " ".join(proposal.flags(chosen)), reason)
