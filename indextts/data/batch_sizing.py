"""Device, batch size and parallelism of preprocessing, from the hardware or from flags."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path

import torch

from indextts.errors import UserError
from indextts.features.backend import CODES_PER_SECOND
from indextts.models.gpt.config import GPTConfig
from indextts.system.amounts import counted

logger = logging.getLogger(__name__)

GPU_MEMORY_SHARE = 0.4  # of the free memory: the allocator fragments it
HOST_MEMORY_SHARE = 0.5
MAX_BATCH_S = 160.0  # 8,000 feature vectors saturate any GPU
MIN_BATCH_S = 5.0
TYPICAL_CLIP_S = 15.0
MAX_READERS = 16
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Throughput:
    """Batch size and parallelism."""

    batch_s: float  # seconds of audio in a batch, including padding; 0 for one clip at a time
    num_readers: int
    num_threads: int  # the number of batches that a CPU computes in parallel


def choose_device(name: str) -> torch.device:
    """Return the device of `--device`; a UserError if it is a GPU and there is none."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        logger.info("Computing on %s (--device auto)", name)
    elif name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: no CUDA device found; use --device cpu")
    return torch.device(name)


def choose_precision(amp: bool, device: torch.device) -> torch.dtype:
    """Return the type of the encoders' matrix products."""
    if not amp:
        return torch.float32
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    logger.warning("--amp ignored: it requires a GPU with native bfloat16; the encoders use float32")
    return torch.float32


def choose_encoder_precision(precision: str, device: torch.device) -> str:
    """Return the precision of the speech encoder's float32 products."""
    if precision == "tf32" and not (
        device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    ):
        logger.warning(
            "--encoder-precision tf32 ignored: it requires a GPU of compute capability 8.0 or higher; the "
            "encoder uses float32"
        )
        return "float32"
    if precision == "split" and device.type != "cuda":
        logger.warning("--encoder-precision split is slower than float32 without a GPU")
    return precision


def choose_throughput(
    config: GPTConfig,
    device: torch.device,
    batch_seconds: float,
    num_workers: int,
    num_cores: int | None = None,
) -> Throughput:
    """Return the requested throughput, or one that suits the hardware; call it after loading the weights.

    Args:
        config: of the model, whose encoders need the most memory.
        batch_seconds, num_workers: the requested values; 0 to choose.
        num_cores: the number of cores to use; None for all that this process may use.
    """
    cores = len(os.sched_getaffinity(0)) if num_cores is None else max(1, num_cores)
    second_bytes = CODES_PER_SECOND * bytes_per_vector(config)
    if device.type == "cuda":
        free_bytes = torch.cuda.mem_get_info(device)[0]
        fitting_s = GPU_MEMORY_SHARE * free_bytes / second_bytes
        batch_s = batch_seconds or max(MIN_BATCH_S, min(MAX_BATCH_S, fitting_s))
        throughput = Throughput(batch_s, num_workers or min(MAX_READERS, cores), num_threads=1)
        where = f"{torch.cuda.get_device_name(device)} with {free_bytes / 1e9:.1f} GB free"
    else:
        free_bytes = available_bytes()
        at_once_s = HOST_MEMORY_SHARE * free_bytes / second_bytes
        num_threads = max(1, min(cores, int(at_once_s / max(batch_seconds, TYPICAL_CLIP_S))))
        # Reading a clip takes a hundredth of the time that a CPU needs to encode it.
        throughput = Throughput(batch_seconds, num_workers or 1 + cores // 16, num_threads)
        where = f"{num_threads} of {cores} cores with {free_bytes / 1e9:.1f} GB free"
    logger.info(
        "Encoding on %s: %s, %s",
        where,
        f"batches of up to {throughput.batch_s:.0f} s"
        if throughput.batch_s
        else "one clip at a time on each",
        counted(throughput.num_readers, "reader process", "reader processes"),
    )
    return throughput


def bytes_per_vector(config: GPTConfig) -> int:
    """Return the peak memory of the encoders per feature vector: 2.1 MB at the published size.

    The peak is after the first convolution of the conformer, which has half as many positions as vectors and,
    for each channel, half as many values as a vector. There are 4 float32 copies of them: the output of the
    convolution, that of the ReLU, the transposed input of the linear layer, and the convolution's workspace.
    """
    values = config.condition_module.output_size * ((config.feature_dim - 1) // 2)
    return 4 * FLOAT_BYTES * values // 2


def available_bytes(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory that this process can still allocate, without swap, within its container's limit."""
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    available = int(lines["MemAvailable"].split()[0]) * 1024
    try:
        limit = int((cgroup / "memory.max").read_text())  # "max" where there is none
        return min(available, max(0, limit - int((cgroup / "memory.current").read_text())))
    except (OSError, ValueError):
        return available
