"""Voices of clips, so that a pair is of one: labels of channels and books hide several people. No torch here.

Features for IndexTTS-2.5 contain a style vector for each clip, of CAM++ or of the built-in backend; those for
IndexTTS-2.0 contain none. Axes: N clips, V width of a vector.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from indextts.commands.bases import BASES
from indextts.data.feature_store import FeatureStore
from indextts.data.manifest import Utterance
from indextts.data.speaker_vectors import VectorOfClip, Vectors

logger = logging.getLogger(__name__)

# CAM++: of a published fine-tuning, where a third of the pairs of a label fell out; not measured here.
# Built-in: the mean spectrum, which knows the room too; measured in benchmarks/results/voices_of_pairs.md.
CAMPPLUS_LIMIT, BUILTIN_LIMIT = 0.5, 0.94


@dataclass(frozen=True)
class Voices:
    """Vectors of length 1 by features key, and the cosine below which two clips are not paired.

    Without vectors, all clips are near each other.
    """

    vectors: VectorOfClip
    limit: float

    def rows(self, clips: Sequence[Utterance]) -> Vectors:
        """Return the vectors of one or more clips, 0 for a clip that is not in its store: (N, V)."""
        none = np.zeros_like(next(iter(self.vectors.values()), np.zeros(1, np.float32)))
        return np.stack([self.vectors.get(clip.features_key or "", none) for clip in clips])


ANY_VOICE = Voices({}, -1.0)


def read_voices(utterances: Iterable[Utterance], limit: float | None = None) -> dict[Path, Voices]:
    """Return the voices by feature store; a store without vectors is absent, which is logged.

    Args:
        limit: None for that of the vectors; 0 for no limit, and no voices.

    Raises:
        UserError: a store is corrupt.
    """
    found = {}
    for path in sorted({u.features for u in utterances if u.features is not None and limit != 0}):
        store = FeatureStore.open(path) if path.is_file() else None  # the training reports a missing one
        if store is None or not BASES[store.info.base].reads_style:
            logger.info("%s contains no voice vectors, so the voices of pairs are not compared", path)
            continue
        own_limit = BUILTIN_LIMIT if store.info.backend == "builtin" else CAMPPLUS_LIMIT
        found[path] = Voices(store.styles(), own_limit if limit is None else limit)
    return found


def groups_of(rows: Vectors, limit: float) -> list[int]:
    """Return a group for each row: those near the first row, then near the first that is not, ...: (N,).

    The work is linear in the rows and in the groups, not quadratic in the rows.
    """
    groups, rest = [0] * len(rows), np.arange(len(rows))
    while len(rest):
        is_near = rows[rest] @ rows[rest[0]] >= limit
        is_near[0] = True
        for place in rest[is_near].tolist():
            groups[place] = int(rest[0])
        rest = rest[~is_near]
    return groups
