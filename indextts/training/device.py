"""Where a training runs, and in which arithmetic."""

import logging
from pathlib import Path

import torch

from indextts.errors import UserError
from indextts.training.distributed.torchrun import Place

logger = logging.getLogger(__name__)


def choose_device(allow_cpu: bool, place: Place = Place()) -> torch.device:  # noqa: B008 - frozen
    """Return the card if there is one, else the CPU; of several processes each gets a card of its own.

    Raises:
        UserError: the machine has an NVIDIA card on which CUDA does not work, and the CPU is not allowed:
            a training that quietly takes the CPU costs days; or it has fewer cards than processes.
    """
    if torch.cuda.is_available():
        device = torch.device("cuda") if place.size == 1 else _card_of(place)
        torch.set_float32_matmul_precision("high")  # TF32 for what is left in float32
        logger.info("Training on %s", torch.cuda.get_device_name(device))
        return device
    reason = why_cuda_fails(has_nvidia_card(), torch.version.cuda)
    if reason and not allow_cpu:
        raise UserError(f"{reason}; or train on the CPU with --allow-cpu")
    logger.info("Training on the CPU with %d threads", torch.get_num_threads())
    return torch.device("cpu")


def _card_of(place: Place) -> torch.device:
    num_cards = torch.cuda.device_count()
    if place.local_rank >= num_cards:
        raise UserError(
            f"{place.local_size} processes on this machine, but {num_cards} cards: start with "
            f"--nproc-per-node={num_cards}"
        )
    torch.cuda.set_device(place.local_rank)
    return torch.device("cuda", place.local_rank)


def has_nvidia_card(devices: Path = Path("/dev"), driver: Path = Path("/proc/driver/nvidia/gpus")) -> bool:
    """Return whether the system shows an NVIDIA card, whatever PyTorch thinks of it."""
    return any(devices.glob("nvidia[0-9]*")) or (driver.is_dir() and any(driver.iterdir()))


def why_cuda_fails(has_card: bool, cuda_of_torch: str | None) -> str | None:
    """Return why CUDA does not work, and the fix; None without a card.

    Args:
        cuda_of_torch: the CUDA version that PyTorch was built for, None for a CPU build.
    """
    if not has_card:
        return None
    if cuda_of_torch is None:
        return (
            f"There is an NVIDIA card, but this PyTorch ({torch.__version__}) was built without CUDA; "
            f"install its CUDA build: pip install --force-reinstall torch=={torch.__version__.split('+')[0]}"
        )
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        problem = str(error).splitlines()[0]
    else:
        problem = "CUDA finds no device; is it hidden by CUDA_VISIBLE_DEVICES?"
    return (
        f"There is an NVIDIA card, but CUDA {cuda_of_torch} of PyTorch {torch.__version__} does not work on "
        f"it: {problem}; update the driver (nvidia-smi shows its CUDA version), or install a PyTorch for it"
    )


def has_native_bfloat16(device: torch.device) -> bool:
    """Return whether the hardware computes bfloat16 itself; emulation is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported())


def arithmetic(amp: bool, device: torch.device) -> torch.dtype:
    """Return the type of the forward pass.

    With `--amp` bfloat16 where it is native; a card without it has float16, whose gradients are scaled; a
    processor without it trains in float32.
    """
    if not amp:
        return torch.float32
    if has_native_bfloat16(device):
        return torch.bfloat16
    if device.type == "cuda":
        logger.info("--amp: this card has no native bfloat16: it computes in float16, with scaled gradients")
        return torch.float16
    logger.warning("--amp: this processor has no native bfloat16, so the training runs in float32")
    return torch.float32
