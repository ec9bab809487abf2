"""The emotion of an utterance: from a second recording, or from eight weights.

Axes: D width of the GPT, T speech features, F their width, E rows of the two tables, S width of the style.

    recording:  emo_vec = vec(speaker) + alpha * (vec(recording) - vec(speaker))
    weights:    emo_vec = sum_i e_i row_i + (1 - sum_i e_i) * vec(recording, or the speaker's)

`vec` is `UnifiedVoice.emotion`. Without a second recording, it reads the speaker's own, with alpha 1. row_i
is the row of emotion i's group in feat2.pt whose counterpart in feat1.pt has the highest cosine similarity to
the speaker's style.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from indextts.errors import UserError
from indextts.models.checkpoint import read_tensor
from indextts.models.gpt.config import load_config
from indextts.models.gpt.model import UnifiedVoice
from indextts.speech.synthesis.config import load_acoustic_config
from indextts.system.amounts import counted

EMOTIONS = ("happy", "angry", "sad", "afraid", "disgusted", "melancholic", "surprised", "calm")
ADVICE = "use feat1.pt, feat2.pt and the config.yaml of IndexTeam/IndexTTS-2"


@dataclass(frozen=True)
class EmotionTable:
    """The published examples of emotions.

    Attributes:
        styles: (E, S), float32, of the speakers.
        vectors: (E, D), float32.
        group_sizes: rows of each of the EMOTIONS, in order.
    """

    styles: Tensor
    vectors: Tensor
    group_sizes: tuple[int, ...]

    def nearest_rows(self, style: Tensor) -> Tensor:
        """Return for each emotion the vector of the speaker nearest to `style` (1, S): (8, D)."""
        similarity = F.cosine_similarity(style.to(self.styles), self.styles)  # (E,)
        starts = itertools.accumulate(self.group_sizes, initial=0)
        chosen = [
            start + int(similarity[start : start + size].argmax())
            for start, size in zip(starts, self.group_sizes, strict=False)
        ]
        return self.vectors[chosen]

    def blend(self, weights: Sequence[float], style: Tensor, emo_vec: Tensor, alpha: float = 1.0) -> Tensor:
        """Blend the emotion of a recording with the published examples: (1, D).

        Args:
            weights: one per emotion, in the order of EMOTIONS.
            style: (1, S), of the speaker.
            emo_vec: (1, D), the emotion of the recording.
            alpha: from 0 to 1, factor of the weights; as in the published code, products keep four decimals.

        Raises:
            UserError: `weights` are not eight non-negative numbers with a sum of at most 1.
        """
        check_weights(weights)
        alpha = min(max(alpha, 0.0), 1.0)
        if alpha != 1.0:
            weights = [int(weight * alpha * 10_000) / 10_000 for weight in weights]
        factors = torch.tensor(weights, dtype=torch.float32)[:, None]  # (8, 1)
        vector = (factors * self.nearest_rows(style)).sum(dim=0, keepdim=True).to(emo_vec.device)  # (1, D)
        return vector + (1 - sum(weights)) * emo_vec


def load_emotions(folder: Path) -> EmotionTable:
    """Return the published tables: feat1.pt and feat2.pt of `folder`, grouped by emo_num of its config.yaml.

    Raises:
        UserError: a file cannot be read, or the three files do not fit together.
    """
    path = folder / "config.yaml"
    config = load_acoustic_config(path)
    sizes = config.emo_num
    if len(sizes) != len(EMOTIONS):
        raise UserError(
            f"{path}: emo_num has {counted(len(sizes), 'group')} for {len(EMOTIONS)} emotions; {ADVICE}"
        )
    styles = _read_table(folder / "feat1.pt", sum(sizes), config.s2mel.style_encoder.dim)
    vectors = _read_table(folder / "feat2.pt", sum(sizes), load_config(path).model_dim)
    return EmotionTable(styles, vectors, sizes)


def _read_table(path: Path, num_rows: int, width: int) -> Tensor:
    table = read_tensor(path).float().clone()
    if table.shape != (num_rows, width) or not table.isfinite().all():
        raise UserError(
            f"{path}: expected a table of shape {(num_rows, width)} with finite numbers, found "
            f"{tuple(table.shape)}; {ADVICE}"
        )
    return table


def check_weights(weights: Sequence[float]) -> None:
    """Raise a UserError unless these are eight weights from 0 to 1 with a sum of at most 1."""
    names = ", ".join(EMOTIONS)
    if len(weights) != len(EMOTIONS):
        raise UserError(f"{counted(len(weights), 'emotion weight')} given, pass {len(EMOTIONS)}: {names}")
    if not all(0 <= weight <= 1 for weight in weights) or sum(weights) > 1 + 1e-6:
        raise UserError(
            f"the emotion weights are {', '.join(f'{weight:g}' for weight in weights)}; each must be from 0 "
            f"to 1, and their sum at most 1: {names}"
        )


@torch.no_grad()
def mix_emotion(gpt: UnifiedVoice, speaker: Tensor, recording: Tensor, alpha: float = 1.0) -> Tensor:
    """Interpolate between the emotion of the voice and that of a second recording: (1, D).

    Args:
        speaker: (T, F), speech features of the voice.
        recording: (T', F), speech features of the emotion recording.
        alpha: 0 for the emotion of the voice, 1 for that of the recording.
    """
    own, other = gpt.emotion(speaker[None]), gpt.emotion(recording[None])
    return own + alpha * (other - own)
