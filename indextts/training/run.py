"""Objects of a run: its inputs, its state, its model and optimizer; its device and data type.

command --load_inputs--> Inputs --start.py or resume.py--> Run, with its TrainState
"""

import logging
import platform
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from indextts.commands.train import Train
from indextts.data.feature_store import common_codebook
from indextts.data.pair_index import BuildStoppedError, PairIndex, load_index
from indextts.errors import UserError
from indextts.models.gpt.attention import AttentionBackend, choose_backend, with_flash_attention_3
from indextts.models.gpt.config import GPTConfig, load_config_of
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.lora import LoraSettings
from indextts.runs.directory import FileIdentity
from indextts.runs.restore_facts import Codebook
from indextts.runs.schedule import Schedule
from indextts.system.amounts import counted
from indextts.text.bases import for_language, load_tokenizer
from indextts.text.tokenizer import Tokenizer
from indextts.training.averaging import WeightAverage
from indextts.training.batches import (
    Collate,
    PairDataset,
    check_disjoint,
    collate_for,
    open_stores,
    usable_pairs,
)
from indextts.training.distributed.ranks import SINGLE_PROCESS, Ranks
from indextts.training.distributed.torchrun import RankInfo
from indextts.training.losses import LossSums
from indextts.training.optim import TrainedParameters
from indextts.training.order import validation_order

logger = logging.getLogger(__name__)


@dataclass
class TrainState:
    """Everything that changes between two steps, besides the model and its optimizer.

    Args:
        epoch, samples_done: position in the data; `samples_done` counts in the order of the epoch.
        batch_idx: micro-steps done in this epoch, for the log.
        validated_step, saved_step: last step with a validation or a save; -1 before the first.
        best_mel_loss: lowest validation loss on the way to this step; --patience counts from it. Whether a
            model is the best of the folder is decided from its checkpoints.
        window: losses of this rank since the last [Train] line.
        recent: names of the last checkpoints, newest last.
        num_worse: number of validations since that of `best_mel_loss`, or since better speech was heard.
        listened_step: last step at which the speech was judged; 0 before the first.
        heard_score, heard_by: result of `listened_step`, None where it failed, and whose ear it was.
        best_heard: lowest score by this ear on the way to this step.
        num_skipped: number of steps skipped because loss or gradient was not finite.
        num_skipped_in_a_row: of these, those since the last step that counted.
        unreadable: ids of the samples that could not be read when they were last due.
        grad_norm: of the last step before clipping; on the device until a save.
        position_limit: maximum number of positions of a micro-batch on this rank; 0 unless memory ran out.
        limited_at: step after which it did.
        limits_of_ranks: both of these numbers for each rank, at the last save.
        probe: result of `Probe.losses` at the last save, None if its samples were unreadable.
        first_rows: values of the new text rows at the start of the part, by table; see `TextRowFacts`.
        languages: of the training texts of this run so far; the model has a trained row for each of them.
        best_is_unsaved: the last validation found the best model, and no checkpoint holds it yet.
        part_is_unsaved: the run started a new part that has no checkpoint yet.
    """

    step: int = 0
    epoch: int = 0
    samples_done: int = 0
    batch_idx: int = 0
    serial: int = 0
    part: int = 1
    validated_step: int = -1
    saved_step: int = -1
    validation_mel_loss: float | None = None
    best_mel_loss: float = float("inf")
    window: LossSums | None = None
    last_losses: dict[str, float | None] | None = None
    recent: list[str] = field(default_factory=list)
    num_skipped: int = 0
    num_worse: int = 0
    num_skipped_in_a_row: int = 0
    unreadable: set[str] = field(default_factory=set)
    grad_norm: Tensor | float = float("nan")
    position_limit: int = 0
    limited_at: int = 0
    limits_of_ranks: list[list[int]] = field(default_factory=list)
    probe: dict[str, float | str] | None = None
    languages: set[str] = field(default_factory=set)
    first_rows: dict[str, Tensor] | None = None
    best_is_unsaved: bool = False
    part_is_unsaved: bool = False
    listened_step: int = 0
    heard_score: float | None = None
    heard_by: str = ""
    best_heard: float = float("inf")
    best_heard_is_unsaved: bool = False

    def advance(self, num_micro_batches: int, num_samples: int, samples_per_epoch: int) -> None:
        """Count one step; after the last sample of an epoch the position is the start of the next."""
        self.step += 1
        self.batch_idx += num_micro_batches
        self.samples_done += num_samples
        if self.samples_done == samples_per_epoch:
            self.epoch, self.samples_done, self.batch_idx = self.epoch + 1, 0, 0

    @property
    def epoch_of_step(self) -> int:
        """Epoch of the last step, even if that step completed the epoch."""
        return self.epoch if self.samples_done or not self.step else max(self.epoch - 1, 0)


@dataclass(frozen=True)
class Inputs:
    """Inputs of a run: everything that is read before the weights."""

    command: Train
    config: GPTConfig
    tokenizer: Tokenizer
    train_set: PairDataset
    val_set: PairDataset
    manifests: list[FileIdentity]  # the pairs files, first train, then val
    device: torch.device
    ranks: Ranks = SINGLE_PROCESS
    codebook: Codebook | None = None  # of all features; None if it is unknown

    @cached_property
    def dtype(self) -> torch.dtype:
        """Data type of the forward pass."""
        return autocast_dtype(self.command.amp, self.device)

    @property
    def is_packed(self) -> bool:
        """True if batches are packed, False if they are padded as in the published trainer."""
        return self.command.padding == "none"

    @cached_property
    def collate(self) -> Collate:
        """Function that builds batches."""
        return collate_for(self.config, self.tokenizer.language_row, is_packed=self.is_packed)

    @cached_property
    def attention(self) -> AttentionBackend:
        """Attention of packed batches."""
        backend = choose_backend(self.device, self.dtype)
        return with_flash_attention_3(backend) if self.is_packed else backend

    @cached_property
    def data_order(self) -> str:
        """Digest of the data order: a position in an epoch is valid for one digest only."""
        return self.train_set.digest(self.command.seed)

    @cached_property
    def validation_set(self) -> str:
        """Digest of the pairs that a validation uses: the best loss so far is valid for one digest only."""
        batch_size = self.ranks.world_size * self.command.validation_batch_size
        used = validation_order(len(self.val_set), batch_size, self.command.max_val_batches)
        return self.val_set.subset(sorted(used)).digest(0)

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Facts besides the settings that affect the last bits of a result."""
        is_cuda = self.device.type == "cuda"
        processor = {} if is_cuda else {"processor": _processor()}
        return {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": torch.cuda.get_device_name(self.device) if is_cuda else "cpu",
            "arithmetic": str(self.dtype).removeprefix("torch."),
            "attention": self.attention.name if self.is_packed else "padded",
            "threads": torch.get_num_threads(),
            "processes": self.ranks.world_size,
            **processor,
        }


@cache
def _processor() -> str:
    """Return the name of the processor and the instructions that PyTorch uses: both choose its kernels."""
    with suppress(OSError, IndexError):
        names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        return f"{names[0]}, {torch.backends.cpu.get_cpu_capability()}"
    return torch.backends.cpu.get_cpu_capability()


@dataclass(frozen=True)
class Run:
    """A run that is ready for its next step."""

    inputs: Inputs
    model: UnifiedVoice
    trained: TrainedParameters
    optimizer: torch.optim.AdamW
    scaler: torch.amp.GradScaler  # gradient scaler for float16; disabled for other types
    average: WeightAverage | None  # average of the weights; None without --ema-decay
    state: TrainState
    schedule: Schedule
    base_size: int
    base: FileIdentity  # the base checkpoint, whose frozen weights are part of the run
    encoders: str  # `encoders_identity` of the model; they are never trained
    lora: LoraSettings | None  # settings of the adapters; None where all weights are trained
    saved_environment: dict[str, Any]  # environment of the resumed checkpoint; empty for a new run


def load_inputs(
    command: Train, ranks: Ranks = SINGLE_PROCESS, should_stop: Callable[[], bool] = lambda: False
) -> Inputs:
    """Read everything but the weights.

    Args:
        should_stop: asked while pairs are indexed, which can take minutes.

    Raises:
        UserError: a file is unusable, or CUDA does not work on a GPU of this machine.
        BuildStoppedError: `should_stop` became true on a rank; raised on all of them.
    """
    device = choose_device(command.allow_cpu, ranks)
    tokenizer = load_tokenizer(command.tokenizer)
    config = load_config_of(command.config, tokenizer)
    if tokenizer.normalizer_warning:
        logger.warning(tokenizer.normalizer_warning)
    own = tokenizer.options.language  # as "", so that losses of a language are of one kind
    train_files, val_files = (
        [replace(file, language="") if file.language == own else file for file in files]
        for files in (command.train_files, command.val_files)
    )
    load = partial(load_index, folder=command.output_dir, may_write=not command.plan, should_stop=should_stop)
    files = (*command.train_files, *command.val_files)
    indexes = _on_first_ranks(
        lambda: [load(file.path, for_language(tokenizer, file.language)) for file in files],
        ranks,
        should_stop,
    )
    num_train = len(train_files)
    stores = open_stores(indexes, config)
    codebook = common_codebook({path: store.info for path, store in stores.items()})
    train_set = usable_pairs(indexes[:num_train], stores, config, train_files)
    val_set = usable_pairs(indexes[num_train:], stores, config, val_files)
    if (mix := train_set.mix) is not None:
        for file, size, count in zip(train_files, mix.sizes, mix.counts, strict=True):
            taken = counted(count, "pair")
            logger.info("%s: an epoch takes %s of %d, %.3g passes", file.name, taken, size, count / size)
    check_disjoint(train_set, val_set)
    manifests = [index.manifest for index in indexes]
    return Inputs(command, config, tokenizer, train_set, val_set, manifests, device, ranks, codebook)


def _on_first_ranks(
    load: Callable[[], list[PairIndex]], ranks: Ranks, should_stop: Callable[[], bool]
) -> list[PairIndex]:
    """Return the indexes of all manifests; rank 0 loads first, and so builds those that are not fresh.

    The first rank of a machine that does not share the disk builds its own.
    """
    indexes: list[PairIndex] = []
    for is_turn in (ranks.is_main, ranks.local_rank == 0, True):
        if is_turn and not indexes:
            with suppress(BuildStoppedError):  # raised below, on all ranks
                indexes = load()
        if ranks.any_rank(should_stop()):
            raise BuildStoppedError
    return indexes


def choose_device(allow_cpu: bool, info: RankInfo = RankInfo()) -> torch.device:  # noqa: B008 - frozen
    """Return the GPU if there is one, else the CPU; each rank gets a GPU of its own.

    Raises:
        UserError: CUDA does not work on an NVIDIA GPU of this machine, and the CPU is not allowed (training
            on the CPU by accident would cost days); or the machine has fewer GPUs than ranks.
    """
    if torch.cuda.is_available():
        device = torch.device("cuda") if info.world_size == 1 else _gpu_of(info)
        torch.set_float32_matmul_precision("high")  # TF32 for products that remain in float32
        logger.info("Training on %s", torch.cuda.get_device_name(device))
        return device
    reason = why_cuda_fails(has_nvidia_gpu(), torch.version.cuda)
    if reason and not allow_cpu:
        raise UserError(f"{reason}; or train on the CPU with --allow-cpu")
    logger.info("Training on the CPU with %d threads", torch.get_num_threads())
    return torch.device("cpu")


def _gpu_of(info: RankInfo) -> torch.device:
    num_gpus = torch.cuda.device_count()
    if info.local_rank >= num_gpus:
        raise UserError(
            f"{info.local_world_size} ranks on this machine, but {counted(num_gpus, 'GPU')}: start with "
            f"--nproc-per-node={num_gpus}"
        )
    torch.cuda.set_device(info.local_rank)
    return torch.device("cuda", info.local_rank)


def has_nvidia_gpu(devices: Path = Path("/dev"), driver: Path = Path("/proc/driver/nvidia/gpus")) -> bool:
    """Return whether the system has an NVIDIA GPU, even one that PyTorch cannot use."""
    return any(devices.glob("nvidia[0-9]*")) or (driver.is_dir() and any(driver.iterdir()))


def why_cuda_fails(has_gpu: bool, cuda_of_torch: str | None) -> str | None:
    """Return the reason why CUDA does not work, and the fix; None without a GPU.

    Args:
        cuda_of_torch: the CUDA version that PyTorch was built for, None for a CPU build.
    """
    if not has_gpu:
        return None
    if cuda_of_torch is None:
        return (
            f"This machine has an NVIDIA GPU, but PyTorch {torch.__version__} was built without CUDA; "
            f"install its CUDA build: pip install --force-reinstall torch=={torch.__version__.split('+')[0]}"
        )
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        problem = str(error).splitlines()[0]
    else:
        problem = "CUDA finds no device; check CUDA_VISIBLE_DEVICES"
    return (
        f"This machine has an NVIDIA GPU, but CUDA {cuda_of_torch} of PyTorch {torch.__version__} does not "
        f"work on it: {problem}; update the driver (nvidia-smi shows its CUDA version), or install a PyTorch "
        "for the installed driver"
    )


def has_native_bfloat16(device: torch.device) -> bool:
    """Return whether the hardware supports bfloat16; emulation is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # ATEN_CPU_CAPABILITY may keep PyTorch from the instructions that the processor has
    uses_avx512 = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return uses_avx512 and bool(torch.cpu._is_avx512_bf16_supported())


def autocast_dtype(amp: bool, device: torch.device) -> torch.dtype:
    """Return the data type of the forward pass.

    With --amp it is bfloat16 if the hardware supports it, else float16 with scaled gradients on a GPU and
    float32 on a CPU.
    """
    if not amp:
        return torch.float32
    if has_native_bfloat16(device):
        return torch.bfloat16
    if device.type == "cuda":
        logger.info("--amp: this GPU does not support bfloat16; using float16 with scaled gradients")
        return torch.float16
    logger.warning("--amp: this CPU does not support bfloat16; training in float32")
    return torch.float32
