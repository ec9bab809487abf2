"""Speaker vectors of recordings, by CAM++ of the published files, and groups of similar ones.

Axes: S samples, N vectors or groups, V width of a vector, G groups.

Torch is imported only when a vector is computed, and scikit-learn only when vectors are grouped.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indextts.data.progress import Progress
from indextts.data.stored_results import StoredResults
from indextts.features.audio import RecordingError, load_audio
from indextts.system.process_pool import map_in_threads
from indextts.system.processes import num_cores

SAMPLE_RATE_HZ = 16_000
BLOCK_SIZE = 4_000  # vectors that are compared at a time

Vector = NDArray[np.float32]  # (V,)
Vectors = NDArray[np.float32]  # (N, V)
Labels = NDArray[np.int64]
VectorOfClip = Mapping[str, Vector]  # by the id of the clip, of those with a voice to be heard

# From mono speech (S,) at SAMPLE_RATE_HZ to the vector of its speaker (V,), of length 1; None for too little
# speech. Several threads call it.
VoiceEncoder = Callable[[NDArray[np.float32]], Vector | None]
LoadEncoder = Callable[[Path], VoiceEncoder]


def load_campplus_encoder(path: Path) -> VoiceEncoder:
    """Return CAM++ with the weights in a campplus_cn_common.bin, on the CPU.

    Raises:
        UserError: the file cannot be read or has other tensors.
    """
    import torch  # takes seconds, and most imports do without it

    from indextts.features.campplus import CAMPPlusConfig, load_campplus, style_vector

    torch.set_num_threads(1)  # clips run in parallel, which is faster than parallel operations
    network = load_campplus(path, CAMPPlusConfig().embedding_size, torch.device("cpu"))

    def encode(samples: NDArray[np.float32]) -> Vector | None:
        vector = style_vector(network, samples)
        return None if vector is None else (vector / vector.norm()).numpy()

    return encode


def add_results(
    results: StoredResults,
    audio: Mapping[str, Path],
    load_encoder: Callable[[], VoiceEncoder],
    result_of: Callable[[VoiceEncoder, NDArray[np.float32]], Any],
    num_workers: int = 0,
) -> None:
    """Add a result for each recording that has none; null for one that cannot be read.

    Args:
        audio: the recordings, by the key of their result.
        result_of: computes the result from the samples (S,).
    """
    missing = {key: path for key, path in audio.items() if key not in results.known}
    if not missing:
        return
    progress = Progress("Listening to the voices", len(missing))
    encode = load_encoder()

    def listen(path: Path) -> Any:
        try:
            return result_of(encode, load_audio(path, SAMPLE_RATE_HZ))
        except RecordingError:
            return None  # the check of the data names the problem

    found = map_in_threads(listen, list(missing.values()), num_workers or num_cores())
    for key, result in zip(missing, found, strict=True):
        results.add(key, result)
        progress.advance()


def nearest_groups(
    rows: Vectors, groups: Mapping[str, str], vectors: VectorOfClip, threshold: float
) -> list[str | None]:
    """Return the nearest group of each row of vectors, None if it is farther than the threshold.

    Args:
        rows: (N, S).
        groups: of clips, by the ids of the clips.
    """
    names, means = means_of_groups(groups, vectors)
    if not names:
        return [None] * len(rows)
    found: list[str | None] = []
    for start in range(0, len(rows), BLOCK_SIZE):
        likeness = rows[start : start + BLOCK_SIZE] @ means.T  # (block, G)
        is_near = 1 - likeness.max(axis=1) <= threshold
        numbers = likeness.argmax(axis=1)
        found += [names[number] if near else None for number, near in zip(numbers, is_near, strict=True)]
    return found


def means_of_groups(groups: Mapping[str, str], vectors: VectorOfClip) -> tuple[list[str], Vectors]:
    """Return the groups with a vector, and their mean vectors: (G, S)."""
    ids = [id for id in groups if id in vectors]
    names, labels = np.unique([groups[id] for id in ids], return_inverse=True)
    return names.tolist(), group_means(stacked(ids, vectors), labels)


def stacked(ids: Sequence[str], vectors: VectorOfClip) -> Vectors:
    """Return the vectors of clips: (N, S)."""
    return np.stack([vectors[id] for id in ids]) if ids else np.zeros((0, 0), np.float32)


def cluster(vectors: Vectors, threshold: float) -> Labels:
    """Return the number of each vector's group, from 0 in descending size, then by first vectors: (N,).

    Args:
        vectors: (N, S), of length 1.
        threshold: largest mean distance of groups that are merged, below 1.
    """
    from sklearn.cluster import AgglomerativeClustering  # takes a second, and most imports do without it

    if len(vectors) < 2:  # scikit-learn refuses these
        return np.zeros(len(vectors), np.int64)
    clustering = AgglomerativeClustering(
        n_clusters=None, metric="cosine", linkage="average", distance_threshold=threshold
    )
    _, first, labels, sizes = np.unique(
        clustering.fit_predict(vectors), return_index=True, return_inverse=True, return_counts=True
    )
    return np.argsort(np.lexsort((first, -sizes)))[labels]


def group_means(vectors: Vectors, labels: Labels) -> Vectors:
    """Return the mean vector of each group: (G, S); no number below G is unused."""
    counts = np.bincount(labels)
    means: Vectors = np.zeros((len(counts), vectors.shape[1]), np.float32)
    np.add.at(means, labels, vectors)
    means /= counts[:, None]
    return means
