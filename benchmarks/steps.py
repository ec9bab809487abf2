"""Variants of a training step on the parameters of one model, and their timing.

A `Variant` describes a step; a `Stepper` executes it. The learning rate is 0: the parameters do not change,
so all variants of a run compute the same losses on the same batches while the optimizer does all its work.
"""

import gc
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.frame import Took, interleaved, peak_bytes, reset_peak, timed
from benchmarks.reference import MEL_WEIGHT, TEXT_WEIGHT, ReferenceTrainer
from benchmarks.workload import Sample, num_base_pieces, num_positions, packed_batch, padded_batch
from indextts.models.gpt.attention import AttentionBackend, choose_backend
from indextts.models.gpt.model import GPTBatch, UnifiedVoice
from indextts.models.gpt.packed import PackedBatch, packed_states
from indextts.training.loop import clip_and_step
from indextts.training.losses import packed_sums, padded_sums
from indextts.training.optim import select_trained

NO_DECAY, DECAY = 0.0, 0.01


@dataclass(frozen=True)
class Variant:
    """Settings of a step.

    Attributes:
        kind: `reference`, `padded` (our model on padded batches) or `packed`.
        checkpointing: recompute the blocks in the backward pass.
        chunked: compute the losses in chunks; otherwise from all logits at once in float32.
        fused: use the fused optimizer kernel; otherwise torch's default implementation.
        clips_apart: clip the gradients in a pass of its own, before the fused optimizer.
        backend: attention of a packed step; None for the fastest.
        attention_dropout: None for the model's own.
    """

    name: str
    kind: str
    dtype: torch.dtype
    checkpointing: bool = False
    chunked: bool = True
    fused: bool = True
    clips_apart: bool = False
    backend: AttentionBackend | None = None
    attention_dropout: float | None = None


@dataclass
class Timing:
    """Measurements of a variant.

    Attributes:
        tokens: valid positions per pass.
        took: time of each pass.
        peak_bytes: peak memory during a pass: allocated on a GPU, resident of the process on a CPU.
        loss: weighted mean loss of the first batch in the warm-up pass.
    """

    tokens: int
    took: list[Took] = field(default_factory=list)
    peak_bytes: int = 0
    loss: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Speed of the fastest pass: other programs on the machine only ever add time."""
        return self.tokens / self.fastest_s

    @property
    def tokens_per_cpu_second(self) -> float:
        return self.tokens / min(took.cpu_s for took in self.took)

    @property
    def fastest_s(self) -> float:
        return min(took.wall_s for took in self.took)

    @property
    def spread(self) -> float:
        """Median pass over the fastest, minus 1."""
        return statistics.median(took.wall_s for took in self.took) / self.fastest_s - 1


class Stepper:
    """Executes the steps of one variant on batches of its kind."""

    def __init__(self, variant: Variant, model: UnifiedVoice, groups: Sequence[Sequence[Sample]]) -> None:
        self.variant, self.model, self.config = variant, model, model.config
        self.device = next(model.parameters()).device
        self.num_base = num_base_pieces(model.config)
        self.backend = variant.backend or choose_backend(self.device, variant.dtype)
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
                {
                    "params": [p for p in named.values() if (p.dim() >= 2) == is_matrix],
                    "weight_decay": decay,
                    "is_new": False,
                    "lr_scale": 1.0,
                }
                for is_matrix, decay in ((True, DECAY), (False, NO_DECAY))
            ]
            self.optimizer = torch.optim.AdamW(
                groups_of_parameters, lr=0.0, fused=True if variant.fused else None
            )

    @property
    def attention(self) -> str:
        """Name of the attention, and its dropout."""
        is_packed = self.variant.kind == "packed"
        dropout = self.variant.attention_dropout
        if dropout is None:
            dropout = self.config.dropout if self.backend.has_dropout or not is_packed else 0.0
        return f"{self.backend.name if is_packed else 'SDPA'}, dropout {dropout:g}"

    @property
    def num_batches(self) -> int:
        return len(self.packed or self.padded)

    def step(self, index: int) -> Tensor | float:
        """Execute a step on batch `index`; return the loss, on the device unless the variant reads it."""
        if self.reference is not None:
            text_loss, mel_loss, _ = self.reference.step(self.padded[index])
            return TEXT_WEIGHT * text_loss + MEL_WEIGHT * mel_loss
        self.model.gpt.recompute = self.variant.checkpointing
        dtype = self.variant.dtype
        with torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32):
            loss = self._loss(index)
        loss.backward()  # type: ignore[no-untyped-call]
        if self.variant.fused and not self.variant.clips_apart:
            clip_and_step(self.trained, self.optimizer, 0.0, max_norm=1.0, loss=loss)
        else:
            self.trained.collect_gradients()
            torch.nn.utils.clip_grad_norm_(self.trained.parameters.values(), 1.0)
            self.optimizer.step()
            self.trained.clear_gradients()
        return loss.detach()

    def _loss(self, index: int) -> Tensor:
        if self.variant.kind == "padded":
            sums = padded_sums(self.model(self.padded[index].to(self.device)), self.num_base)
            return (
                TEXT_WEIGHT * sums.text_nats / sums.text_tokens + MEL_WEIGHT * sums.mel_nats / sums.mel_tokens
            )
        batch = self.packed[index].to(self.device)
        if not self.variant.chunked:
            return all_logits_loss(self.model, batch, self.backend)
        sums = packed_sums(self.model, batch, self.backend, self.num_base)
        return TEXT_WEIGHT * sums.text_nats / batch.num_text + MEL_WEIGHT * sums.mel_nats / batch.num_mel

    def run_pass(self) -> float:
        """Execute a step on every batch; return the loss of the first."""
        first = self.step(0)
        for index in range(1, self.num_batches):
            self.step(index)
        return float(first)


def all_logits_loss(model: UnifiedVoice, batch: PackedBatch, backend: AttentionBackend) -> Tensor:
    """Return the loss of a packed batch from the logits of all positions at once; count top-1 hits too."""
    text_states, mel_states = packed_states(model, batch, backend)
    text_loss = F.cross_entropy(model.text_head(text_states).float(), batch.text_targets)
    mel_logits = model.mel_head(mel_states).float()
    _hits = (mel_logits.detach().argmax(dim=1) == batch.mel_targets).sum()
    return TEXT_WEIGHT * text_loss + MEL_WEIGHT * F.cross_entropy(mel_logits, batch.mel_targets)


def time_variants(steppers: Sequence[Stepper], passes: int) -> list[Timing]:
    """Time all variants, pass after pass in turn, after a warm-up pass of each."""
    timings = [Timing(stepper.tokens) for stepper in steppers]

    def measure(stepper: Stepper, timing: Timing) -> Callable[[int], None]:
        def one_pass(number: int) -> None:
            device = str(stepper.device)
            clear_gradients(stepper.model)
            torch.manual_seed(number)
            reset_peak(device)
            loss, took = timed(stepper.run_pass, device)
            if number == 0:  # creates the optimizer state; chooses and loads kernels
                timing.loss = loss
            else:
                timing.took.append(took)
                timing.peak_bytes = max(timing.peak_bytes, peak_bytes(device))

        return one_pass

    cases = {
        stepper.variant.name: measure(stepper, timing)
        for stepper, timing in zip(steppers, timings, strict=True)
    }
    interleaved(cases, passes + 1)
    return timings


def clear_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = None
    gc.collect()
