"""How much preprocessing does at once: chosen from the hardware, said, or as the user asks."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from indextts.errors import UserError
from indextts.features.backend import CODES_PER_SECOND
from indextts.models.gpt.config import GPTConfig

logger = logging.getLogger(__name__)

SHARE_OF_CARD = 0.4  # of what is free: the blocks of an allocator never fit perfectly
SHARE_OF_HOST = 0.5
MOST_BATCH_S = 160.0  # 8,000 feature vectors at once: the products are large enough for any card
LEAST_BATCH_S = 5.0
TYPICAL_CLIP_S = 15.0
MOST_READERS = 16
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Throughput:
    """How much is done at once.

    Args:
        batch_s: seconds of audio in a batch, with its padding; 0 for one clip at a time.
        num_readers: processes that read recordings.
        num_threads: batches that a CPU computes beside each other.
    """

    batch_s: float
    num_readers: int
    num_threads: int


def choose_device(name: str) -> torch.device:
    """Return the device that `--device` names.

    Raises:
        UserError: it asks for a card, and there is none.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        logger.info("Computing on %s (--device auto)", name)
    elif name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: no CUDA device was found, give --device cpu")
    return torch.device(name)


def choose_arithmetic(amp: bool, device: torch.device) -> torch.dtype:
    """Return the type of the encoders' products."""
    if not amp:
        return torch.float32
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    logger.warning("--amp: only for a card with native bfloat16; the encoders compute in float32")
    return torch.float32


def choose_throughput(
    config: GPTConfig,
    device: torch.device,
    batch_seconds: float,
    num_workers: int,
    num_cores: int | None = None,
) -> Throughput:
    """Return what the user asks for, or what suits the hardware; call it when the weights are on the device.

    Args:
        config: of the model whose encoders run, which need the most memory.
        device: where they run.
        batch_seconds, num_workers: as asked for; 0 to choose.
        num_cores: that may be used; all that this process may run on if it is None.
    """
    cores = len(os.sched_getaffinity(0)) if num_cores is None else max(1, num_cores)
    second_bytes = CODES_PER_SECOND * bytes_per_vector(config)
    if device.type == "cuda":
        free_bytes = torch.cuda.mem_get_info(device)[0]
        fitting_s = SHARE_OF_CARD * free_bytes / second_bytes
        batch_s = batch_seconds or max(LEAST_BATCH_S, min(MOST_BATCH_S, fitting_s))
        throughput = Throughput(batch_s, num_workers or min(MOST_READERS, cores), num_threads=1)
        where = f"{torch.cuda.get_device_name(device)} with {free_bytes / 1e9:.1f} GB free"
    else:
        free_bytes = available_bytes()
        at_once_s = SHARE_OF_HOST * free_bytes / second_bytes
        num_threads = max(1, min(cores, int(at_once_s / max(batch_seconds, TYPICAL_CLIP_S))))
        # reading a clip takes a hundredth of what a CPU needs to encode it
        throughput = Throughput(batch_seconds, num_workers or 1 + cores // 16, num_threads)
        where = f"{num_threads} of {cores} cores with {free_bytes / 1e9:.1f} GB free"
    logger.info(
        "Encoding on %s: %s, read by %d processes",
        where,
        f"batches of up to {throughput.batch_s:.0f} s"
        if throughput.batch_s
        else "one clip at a time on each",
        throughput.num_readers,
    )
    return throughput


def bytes_per_vector(config: GPTConfig) -> int:
    """Return what a feature vector takes where the encoders need the most: 2.1 MB at the published size.

    That is behind the first convolution of the conformer: half as many positions as vectors, with half as
    many values as a vector has for each channel. Their float32 values are there 4 times: as they are, after
    the ReLU, transposed for the linear layer, and as what the convolution works with.
    """
    values = config.condition_module.output_size * ((config.feature_dim - 1) // 2)
    return 4 * FLOAT_BYTES * values // 2


def available_bytes(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory that this process may still take, without swap and within its container's limit."""
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    available = int(lines["MemAvailable"].split()[0]) * 1024
    try:
        limit = int((cgroup / "memory.max").read_text())  # "max" where there is none
        return min(available, max(0, limit - int((cgroup / "memory.current").read_text())))
    except (OSError, ValueError):
        return available
