"""Phones of recordings, from their texts, for demo/train_networks.py.

espeak-ng gives the phones of a text, and a head on Whisper's states the time of each. The head learns from
the synthetic clips, where the times are known, and from the recordings without times (Graves et al. 2006,
"Connectionist Temporal Classification"); a pause is the blank.

Axes: B clips, T positions of 20 ms, H size of a state, L labels of phones, of which 0 is a pause.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from indextts.features.recognizers.forced_alignment import MAX_COST, align_letters

STEPS = 1000
SYNTHETIC_BATCH, RECORDING_BATCH = 16, 8
CROP = 100  # positions
LEARNING_RATE = 1e-3
WIDTH = 256
LONGEST_GAP = 8  # positions: CTC finds phones shorter than they are, and a pause is longer
MIN_SCORE = -3.0  # nats per phone; a text that is not spoken has less

States = NDArray[np.float16]  # (T, H)
Labels = NDArray[np.int64]


class Head(nn.Module):
    """Map states (B, T, H) to logarithmic probabilities (B, T, L)."""

    def __init__(self, size: int, num_phones: int) -> None:
        super().__init__()
        self.neighbours = nn.Conv1d(size, WIDTH, 3, padding=1)
        self.output = nn.Linear(WIDTH, num_phones)

    def forward(self, states: Tensor) -> Tensor:
        x = F.gelu(self.neighbours(states.transpose(1, 2)).transpose(1, 2))
        found: Tensor = self.output(x).log_softmax(dim=-1)
        return found


def aligned_phones(
    synthetic: Sequence[tuple[States, Labels]],
    recordings: Sequence[tuple[States, Labels]],
    num_phones: int,
    seed: int,
    steps: int = STEPS,
) -> list[Labels]:
    """Return the phone of each position of the recordings: (T,) each.

    Args:
        synthetic: states and phones (T,), -1 where they are not known.
        recordings: states and the phones (N,) that are spoken, in their order.
    """
    torch.manual_seed(seed)
    head = Head(synthetic[0][0].shape[1], num_phones)
    fit(head, synthetic, recordings, np.random.default_rng(seed), steps)
    return [labels_of(head, states, spoken) for states, spoken in recordings]


def fit(
    head: Head,
    synthetic: Sequence[tuple[States, Labels]],
    recordings: Sequence[tuple[States, Labels]],
    rng: np.random.Generator,
    steps: int,
) -> None:
    long = [clip for clip in synthetic if len(clip[1]) >= CROP]
    optimizer = torch.optim.AdamW(head.parameters(), LEARNING_RATE)
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1.02 - step / steps)
        chosen = [long[number] for number in rng.integers(0, len(long), SYNTHETIC_BATCH)]
        starts = [int(rng.integers(0, len(labels) - CROP + 1)) for _, labels in chosen]
        crops = [slice(start, start + CROP) for start in starts]
        found = head(padded([states[crop] for (states, _), crop in zip(chosen, crops, strict=True)]))
        labels = torch.from_numpy(
            np.stack([known[crop] for (_, known), crop in zip(chosen, crops, strict=True)])
        )
        known_loss = F.nll_loss(found.flatten(0, 1), labels.flatten(), ignore_index=-1)
        chosen = [recordings[number] for number in rng.integers(0, len(recordings), RECORDING_BATCH)]
        found = head(padded([states for states, _ in chosen]))
        text_loss = F.ctc_loss(
            found.transpose(0, 1),
            torch.from_numpy(np.concatenate([spoken for _, spoken in chosen])),
            torch.tensor([len(states) for states, _ in chosen]),
            torch.tensor([len(spoken) for _, spoken in chosen]),
            zero_infinity=True,
        )
        optimizer.zero_grad()
        (known_loss + text_loss).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"alignment step {step} known={known_loss:.3f} text={text_loss:.3f}", flush=True)


def padded(arrays: Sequence[NDArray[Any]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.from_numpy(array).float() for array in arrays], batch_first=True)


@torch.no_grad()
def labels_of(head: Head, states: States, spoken: Labels) -> Labels:
    """Return the phone of each position; -1 if the text is not spoken there."""
    found = head(torch.from_numpy(states).float()[None])[0]
    costs = (found.max(dim=-1, keepdim=True).values - found).clamp_max(MAX_COST).numpy()
    place = align_letters(costs, spoken) if len(spoken) else None
    if place is None or place.score < MIN_SCORE:
        return np.full(len(states), -1)
    labels = np.zeros(len(states), np.int64)
    for first, last, number in zip(*spread(place.first, place.last), spoken, strict=True):
        labels[first : last + 1] = number
    return labels


def spread(first: Labels, last: Labels) -> tuple[Labels, Labels]:
    """Return the first and the last position of each phone, which share the short gaps between them."""
    gaps = first[1:] - last[:-1] - 1
    gaps[gaps > LONGEST_GAP] = 0
    last = last + np.append((gaps + 1) // 2, 0)
    return first - np.insert(gaps // 2, 0, 0), last
