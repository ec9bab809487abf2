"""Ways to do a training step, all on the parameters of one model, and how they are timed.

A `Variant` says how; a `Stepper` does it. The learning rate is 0: the parameters stay as they are, so that
all variants of a run compute the same losses on the same batches, while the optimizer does all of its work.
"""

import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.reference import MEL_WEIGHT, TEXT_WEIGHT, ReferenceTrainer
from benchmarks.workload import Sample, num_base_pieces, num_positions, packed_batch, padded_batch
from indextts.models.gpt.attention import AttentionBackend, choose_backend
from indextts.models.gpt.model import GPTBatch, UnifiedVoice
from indextts.models.gpt.packed import PackedBatch, packed_states
from indextts.training.loop import clip_and_step
from indextts.training.losses import packed_sums, token_losses
from indextts.training.optim import select_trained

NO_DECAY, DECAY = 0.0, 0.01


@dataclass(frozen=True)
class Variant:
    """How a step is done.

    Attributes:
        kind: `reference`, `padded` (our model on padded batches) or `packed`.
        checkpointing: recompute the blocks in the backward pass.
        chunked: the heads' losses in chunks; else from whole scores in float32.
        fused: the optimizer in one kernel; else torch's default form.
        backend: attention of a packed step; None for the fastest.
        attention_dropout: None for the model's own.
        compiled: the blocks compiled.
    """

    name: str
    kind: str
    dtype: torch.dtype
    checkpointing: bool = False
    chunked: bool = True
    fused: bool = True
    backend: str | None = None
    attention_dropout: float | None = None
    compiled: bool = False


@dataclass(frozen=True)
class Timing:
    """What was measured of a variant.

    Attributes:
        seconds: wall clock per pass over the batches, one number a pass.
        cpu_seconds: processor time of all threads, likewise.
        tokens: valid positions per pass.
        peak_bytes: most memory in use during a pass, on a GPU beyond nothing, on a CPU of the whole process.
        loss: weighted mean loss of the first batch's first pass.
    """

    seconds: list[float]
    cpu_seconds: list[float]
    tokens: int
    peak_bytes: int
    loss: float

    @property
    def tokens_per_second(self) -> float:
        """Of the fastest pass: whatever else runs on the machine only ever adds time."""
        return self.tokens / min(self.seconds)

    @property
    def tokens_per_cpu_second(self) -> float:
        return self.tokens / min(self.cpu_seconds)

    @property
    def spread(self) -> float:
        """Median pass over the fastest, minus 1."""
        return statistics.median(self.seconds) / min(self.seconds) - 1


class Stepper:
    """Does the steps of one variant on batches of its kind."""

    def __init__(self, variant: Variant, model: UnifiedVoice, groups: Sequence[Sequence[Sample]]) -> None:
        self.variant, self.model, self.config = variant, model, model.config
        self.device = next(model.parameters()).device
        self.num_base = num_base_pieces(model.config)
        self.backend = choose_backend(self.device, variant.dtype, variant.backend)
        self.tokens = sum(num_positions(sample, model.config) for group in groups for sample in group)
        pin = self.device.type == "cuda"
        self.reference: ReferenceTrainer | None = None
        self.packed: list[PackedBatch] = []
        self.padded: list[GPTBatch] = []
        if variant.kind == "packed":
            batches = [packed_batch(group, model.config) for group in groups]
            self.packed = [batch.pin_memory() for batch in batches] if pin else batches
        else:
            self.padded = [padded_batch(group) for group in groups]
        if variant.kind == "reference":
            self.reference = ReferenceTrainer(
                model,
                num_frozen=self.num_base,
                dtype=variant.dtype,
                learning_rate=0.0,
                checkpointing=variant.checkpointing,
                attention_dropout=variant.attention_dropout,
            )
            self.optimizer = self.reference.optimizer
        else:
            self.trained = select_trained(model, self.num_base)
            named = self.trained.parameters
            groups_of_parameters = [
                {"params": [p for p in named.values() if p.dim() >= 2], "weight_decay": DECAY},
                {"params": [p for p in named.values() if p.dim() < 2], "weight_decay": NO_DECAY},
            ]
            self.optimizer = torch.optim.AdamW(
                groups_of_parameters, lr=0.0, fused=True if variant.fused else None
            )

    @property
    def num_batches(self) -> int:
        return len(self.packed or self.padded)

    def step(self, index: int) -> Tensor | float:
        """One step on batch `index`; the loss, still on the device unless the variant reads it."""
        if self.reference is not None:
            losses = self.reference.step(self.padded[index])
            return TEXT_WEIGHT * losses.text_loss + MEL_WEIGHT * losses.mel_loss
        self.model.gpt.recompute = self.variant.checkpointing
        dtype = self.variant.dtype
        with torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32):
            loss = self._loss(index)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.variant.fused:
            clip_and_step(self.trained, self.optimizer, 0.0, max_norm=1.0, loss=loss)
        else:
            self.trained.collect_gradients()
            torch.nn.utils.clip_grad_norm_(self.trained.parameters.values(), 1.0)
            self.optimizer.step()
            self.trained.clear_gradients()
        return loss.detach()

    def _loss(self, index: int) -> Tensor:
        if self.variant.kind == "padded":
            sums = token_losses(self.model(self.padded[index].to(self.device))).sums(self.num_base)
            return (
                TEXT_WEIGHT * sums.text_nats / sums.text_tokens + MEL_WEIGHT * sums.mel_nats / sums.mel_tokens
            )
        batch = self.packed[index].to(self.device)
        if not self.variant.chunked:
            return whole_scores_loss(self.model, batch, self.backend)
        sums = packed_sums(self.model, batch, self.backend, self.num_base)
        return TEXT_WEIGHT * sums.text_nats / batch.num_text + MEL_WEIGHT * sums.mel_nats / batch.num_mel

    def run_pass(self) -> float:
        """All batches once; the loss of the first."""
        first = self.step(0)
        for index in range(1, self.num_batches):
            self.step(index)
        wait(self.device)
        return float(first)


def whole_scores_loss(model: UnifiedVoice, batch: PackedBatch, backend: AttentionBackend) -> Tensor:
    """The loss of a packed batch from scores of all positions at once, and the hits that go with it."""
    text_states, mel_states = packed_states(model, batch, backend)
    text_loss = F.cross_entropy(model.text_head(text_states).float(), batch.text_targets)
    mel_scores = model.mel_head(mel_states).float()
    _hits = (mel_scores.detach().argmax(dim=1) == batch.mel_targets).sum()
    return TEXT_WEIGHT * text_loss + MEL_WEIGHT * F.cross_entropy(mel_scores, batch.mel_targets)


def interleave(steppers: Sequence[Stepper], passes: int) -> list[Timing]:
    """Time all variants in turn, pass after pass, so that a change of the machine's pace meets them all."""
    timings = [Timing([], [], stepper.tokens, 0, 0.0) for stepper in steppers]
    for number in range(passes + 1):
        for index, stepper in enumerate(steppers):
            clear_gradients(stepper.model)
            torch.manual_seed(number)
            reset_peak(stepper.device)
            started, cpu_started = time.perf_counter(), time.process_time()
            loss = stepper.run_pass()
            seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
            if number == 0:  # the optimizer's state is made, kernels are chosen and loaded
                timings[index] = Timing([], [], stepper.tokens, 0, loss)
                continue
            old = timings[index]
            peak = max(old.peak_bytes, peak_bytes(stepper.device))
            timings[index] = Timing(
                [*old.seconds, seconds], [*old.cpu_seconds, cpu_seconds], old.tokens, peak, old.loss
            )
    return timings


def clear_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = None
    gc.collect()


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def reset_peak(device: torch.device) -> None:
    """Begin to watch the memory anew; on a CPU where the kernel lets a process do that."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    file = Path("/proc/self/clear_refs")
    if file.exists():
        file.write_text("5")


def peak_bytes(device: torch.device) -> int:
    """Most memory in use since `reset_peak`."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
