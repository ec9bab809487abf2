"""A resume on a GPU that is too small for the settings that the run holds, found before the first step."""

from indextts.commands.terminal import with_typed
from indextts.commands.train import Train
from indextts.models.gpt.config import GPTConfig
from indextts.planning.estimate import memory_of
from indextts.planning.hardware import MachineFacts
from indextts.planning.memory import CONTEXT_BYTES, ModelSize
from indextts.planning.pairs_size import PairsSize
from indextts.planning.proposal import propose
from indextts.system.amounts import shown_gib
from indextts.system.messages import Message

GPU_TOO_SMALL = "planning.gpu_too_small"
NO_GPU_SETTINGS = "planning.no_settings_fit"
DECIDING = frozenset({"batch_size", "batch_tokens", "grad_accumulation", "grad_checkpointing"})


def gpu_too_small(
    command: Train,
    machine: MachineFacts,
    config: GPTConfig,
    size: ModelSize,
    pairs: PairsSize,
    num_processes: int,
    *,
    device_before: str | None,
) -> Message | None:
    """Return a message with settings that fit if the GPU is too small for those of a run; else None.

    A typed setting that decides about memory is the user's choice: the trainer splits a batch that does not
    fit.

    Args:
        command: as the restore plan has it: `model_fields_set` are the typed fields.
        machine: the share of one rank.
        config: with the vocabulary size of the run's tokenizer.
        device_before: the device of the checkpoint; on the same one, the run is known to fit.
    """
    gpu = machine.gpu
    if gpu is None or gpu.name == device_before or command.model_fields_set & DECIDING:
        return None
    needed = memory_of(command, machine, config, size, pairs).peak + CONTEXT_BYTES
    if needed <= gpu.memory_bytes:
        return None
    batch = command.batch_tokens / pairs.mean if command.batch_tokens else command.batch_size
    step_pairs = max(1, round(num_processes * command.grad_accumulation * batch))
    free = with_typed(command.model_copy(update={"step_pairs": step_pairs}), Train.automatic - DECIDING)
    smaller = propose(free, machine, config, size, pairs, num_processes)
    values = {"needed": shown_gib(needed), "there": shown_gib(gpu.memory_bytes), "gpu": gpu.name}
    if not smaller.fits:
        return Message(NO_GPU_SETTINGS, values)
    return Message(GPU_TOO_SMALL, {**values, "flags": " ".join(smaller.flags())})
