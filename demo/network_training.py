"""Training of the networks of the built-in speech features, see demo/train_networks.py.

Axes: B clips, M codes (25 per second), N = 4 M frames, D width, Z size of a centroid, K codes, W size of the
teacher's states, P parameters of a frame, L labels of phones.

                        +-> heads: the teacher's state of each code, two phones of 20 ms
    frames -> encoder -> nearest centroid
                        +-> decoder, with the voice: parameters of a vocoder

The heads make a code say what is spoken: they are not part of the program. The centroids follow the encoder's
vectors as moving averages (van den Oord et al. 2017, "Neural Discrete Representation Learning"), and the
gradient passes them unchanged. The encoder trains without them at first. No centroid follows clips of the
kind APART: as for a voice that a user brings, there are only the codes of the other voices.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from indextts.features.builtin_networks import (
    CENTROID_SIZE,
    ENVELOPE_BANDS,
    FRAMES_PER_CODE,
    NUM_CODES,
    NUM_PARAMETERS,
    WIDTH,
    Decoder,
    Encoder,
)

TEACHER_SIZE = 128  # W
NUM_SHAPES = NUM_PARAMETERS - 2  # of the envelope and the noise
CROP_CODES = 48  # 1.9 s
BATCH = 32
LEARNING_RATE = 2e-3
WARM_UP_STEPS = 100
WITHOUT_CODES = 0.08  # share of the time
DECAY = 0.98  # of the moving averages
UNUSED = 0.02  # vectors per batch, below which a centroid moves to a random vector
LOSS_WEIGHTS = {
    **{"envelope": 1.0, "change": 0.5, "noise": 0.2, "voiced": 0.3, "pitch": 0.2},
    **{"teacher": 0.5, "phones": 1.2, "commitment": 0.25},
}
APART = "human"
CHANNEL, CURVE_POINTS, NOISE = 0.2, 8, 0.15  # deviations, in units of the normalised frames
HIDDEN_BANDS = 10
LOWEST_TOP = 70  # of the bands that a microphone records
SAVE_STEPS = 1000


@dataclass(frozen=True)
class Sample:
    """One clip.

    Args:
        kind: where it comes from.
        frames: (N, bands), as the encoder reads them.
        parameters: (N, P), scaled; the last two are 1 or 0, and the pitch as the decoder writes it.
        teacher: (M, W).
        phones: (2 M,), -1 where they are not known.
        voice: (V,).
        log_pitch: mean in nats, or NaN with less than 0.2 s of voiced speech.
    """

    kind: str
    frames: NDArray[np.float16]
    parameters: NDArray[np.float16]
    teacher: NDArray[np.float16]
    phones: NDArray[np.int64]
    voice: NDArray[np.float32]
    log_pitch: float

    def part(self, start: int, num_codes: int) -> list[NDArray[Any]]:
        frames = slice(FRAMES_PER_CODE * start, FRAMES_PER_CODE * (start + num_codes))
        phones = self.phones[2 * start : 2 * (start + num_codes)]
        teacher = self.teacher[start : start + num_codes]
        is_followed = np.full(num_codes, self.kind != APART)
        return [self.frames[frames], self.parameters[frames], teacher, phones, self.voice, is_followed]


class Heads(nn.Module):
    """Predict the teacher's state (B, M, W) and two phones (B, 2 M, L) of each centroid (B, M, Z)."""

    def __init__(self, num_phones: int) -> None:
        super().__init__()
        self.input = nn.Linear(CENTROID_SIZE, WIDTH)
        self.neighbours = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.teacher = nn.Linear(WIDTH, TEACHER_SIZE)
        self.phones = nn.Linear(WIDTH, 2 * num_phones)

    def forward(self, centroids: Tensor) -> tuple[Tensor, Tensor]:
        x = F.gelu(self.input(centroids))
        x = F.gelu(self.neighbours(x.transpose(1, 2)).transpose(1, 2))
        return self.teacher(x), self.phones(x).reshape(len(x), 2 * x.shape[1], -1)


class Codebook(nn.Module):
    """K centroids: moving averages of the vectors that are nearest to each."""

    centroids: Tensor
    counts: Tensor
    sums: Tensor
    is_used: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centroids", torch.zeros(NUM_CODES, CENTROID_SIZE))
        self.register_buffer("counts", torch.ones(NUM_CODES))
        self.register_buffer("sums", torch.zeros(NUM_CODES, CENTROID_SIZE))
        self.register_buffer("is_used", torch.tensor(False))

    def start(self, vectors: Tensor) -> None:
        """Take random ones of the vectors (more than K, Z) as centroids."""
        self.centroids.copy_(vectors[torch.randperm(len(vectors))[:NUM_CODES]])
        self.sums.copy_(self.centroids)
        self.is_used.fill_(True)

    def forward(self, vectors: Tensor, is_followed: Tensor) -> tuple[Tensor, Tensor]:
        """Return the centroids of vectors (B, M, Z), and how far the vectors are from them.

        Args:
            is_followed: (B, M), true where a training moves centroids to the vectors.
        """
        if not self.is_used:
            return vectors, vectors.new_zeros(())
        flat = vectors.detach().flatten(0, 1)
        nearest = (self.centroids.square().sum(dim=1) / 2 - flat @ self.centroids.T).argmin(dim=1)
        if self.training:
            self._move(flat[is_followed.flatten()], nearest[is_followed.flatten()])
        found = self.centroids[nearest].reshape(vectors.shape)
        return vectors + (found - vectors).detach(), F.mse_loss(vectors, found)

    def _move(self, vectors: Tensor, nearest: Tensor) -> None:
        counts = torch.bincount(nearest, minlength=NUM_CODES)
        self.counts.lerp_(counts.float(), 1 - DECAY)
        self.sums.lerp_(torch.zeros_like(self.sums).index_add_(0, nearest, vectors), 1 - DECAY)
        is_dead = self.counts < UNUSED
        chosen = vectors[torch.randint(len(vectors), (int(is_dead.sum()),))]
        self.sums[is_dead], self.counts[is_dead] = chosen * 0.2, 0.2
        self.centroids.copy_(self.sums / self.counts[:, None])


class Networks(nn.Module):
    """All that is trained."""

    def __init__(self, num_phones: int) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()
        self.heads, self.codebook = Heads(num_phones), Codebook()

    def losses(self, batch: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the losses, with the names of LOSS_WEIGHTS, and the share of phones that are right."""
        frames, parameters, teacher, phones, voice, is_followed = batch
        centroids, commitment = self.codebook(self.encoder(frames), is_followed)
        states, guesses = self.heads(centroids)
        found = self.decoder(centroids, voice)
        error = (found - parameters).abs()
        is_voiced, is_known = parameters[..., -2], phones >= 0
        guesses, phones = guesses[is_known], phones[is_known]
        envelopes = (found - parameters)[..., :ENVELOPE_BANDS]
        return {
            "envelope": error[..., :ENVELOPE_BANDS].mean(),
            "change": envelopes.diff(dim=1).abs().mean(),
            "noise": error[..., ENVELOPE_BANDS:NUM_SHAPES].mean(),
            "voiced": F.binary_cross_entropy_with_logits(found[..., -2], is_voiced),
            "pitch": (error[..., -1] * is_voiced).sum() / is_voiced.sum().clamp_min(1),
            "teacher": F.mse_loss(states, teacher) / teacher.var(),
            "phones": F.cross_entropy(guesses, phones) if len(phones) else guesses.sum(),
            "commitment": commitment,
            "right": (guesses.argmax(dim=-1) == phones).float().mean(),
        }


def train(
    networks: Networks,
    samples: Sequence[Sample],
    minutes: float,
    seed: int,
    save: Callable[[int], None],
    step: int = 0,
) -> None:
    """Train for some minutes with a learning rate that falls as a cosine.

    Args:
        save: called with the step every SAVE_STEPS and at the end.
        step: of the networks, which is not 0 if they were trained before.
    """
    rng = np.random.default_rng(seed)
    long = [sample for sample in samples if len(sample.teacher) >= CROP_CODES]
    lengths = np.array([len(sample.teacher) for sample in long], np.float64)

    def batch() -> list[Tensor]:
        chosen = [long[number] for number in rng.choice(len(long), BATCH, p=lengths / lengths.sum())]
        starts = [int(rng.integers(0, len(sample.teacher) - CROP_CODES + 1)) for sample in chosen]
        return tensors([sample.part(start, CROP_CODES) for sample, start in zip(chosen, starts, strict=True)])

    weights = [parameter for parameter in networks.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(weights, LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
    first, begin, shown = step, time.monotonic(), []
    networks.train()
    while (share := (time.monotonic() - begin) / 60 / minutes) < 1:
        if not networks.codebook.is_used and share > WITHOUT_CODES:
            with torch.no_grad():
                vectors = [networks.encoder(batch()[0]).flatten(0, 1) for _ in range(12)]
            networks.codebook.start(torch.cat(vectors))
        warm = min(1.0, (step - first + 1) / WARM_UP_STEPS)
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * warm * (0.51 + 0.49 * math.cos(math.pi * share))
        frames, *targets = batch()
        losses = networks.losses([roughened(frames, rng), *targets])
        loss = torch.stack([weight * losses[name] for name, weight in LOSS_WEIGHTS.items()]).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        step += 1
        shown.append({name: float(value.detach()) for name, value in losses.items()})
        if step % 200 == 0:
            print(f"step {step} {100 * share:.0f} % {described(shown)}", flush=True)
            shown = []
        if step % SAVE_STEPS == 0:
            save(step)
    save(step)


def roughened(frames: Tensor, rng: np.random.Generator) -> Tensor:
    """Return frames (B, N, bands) as of other microphones, with noise and without some bands."""
    size, _, num_bands = frames.shape
    curves = torch.from_numpy(rng.normal(0, CHANNEL, (size, 1, CURVE_POINTS)).astype(np.float32))
    channel = F.interpolate(curves, num_bands, mode="linear", align_corners=True)
    noise = torch.from_numpy(rng.normal(0, NOISE, frames.shape).astype(np.float32))
    first = torch.from_numpy(rng.integers(-HIDDEN_BANDS, num_bands, (size, 1, 1)))
    top = torch.from_numpy(rng.integers(LOWEST_TOP, 3 * num_bands, (size, 1, 1)))
    bands = torch.arange(num_bands)
    is_hidden = (bands >= first) & (bands < first + HIDDEN_BANDS) | (bands >= top)
    return (frames + channel + noise).masked_fill(is_hidden, 0.0)


def tensors(parts: Sequence[Sequence[NDArray[Any]]]) -> list[Tensor]:
    found = [torch.from_numpy(np.stack(arrays)) for arrays in zip(*parts, strict=True)]
    return [each.float() if each.is_floating_point() else each for each in found]


def described(losses: Sequence[Mapping[str, float]]) -> str:
    """Return the mean of each loss, over the clips that have it."""
    means = {name: np.array([each[name] for each in losses]) for name in losses[0]}
    return " ".join(f"{name}={np.nanmean(m):.3f}" for name, m in means.items() if not np.isnan(m).all())


@torch.no_grad()
def validate(networks: Networks, samples: Sequence[Sample]) -> None:
    """Print the losses of complete clips, for each kind."""
    networks.eval()
    for kind in sorted({sample.kind for sample in samples}):
        parts = [sample.part(0, len(sample.teacher)) for sample in samples if sample.kind == kind]
        losses = [networks.losses(tensors([part])) for part in parts]
        found = [{name: float(value) for name, value in each.items()} for each in losses]
        print(f"validation {kind} {len(found)} clips {described(found)}", flush=True)
