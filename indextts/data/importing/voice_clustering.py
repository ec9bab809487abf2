"""Agglomerative clustering of speaker vectors with average linkage on the cosine distance.

Axes: N vectors or groups, S width of a vector, G groups.

scikit-learn needs the matrix of all distances, 40 GB for 100,000 clips. So BLOCK_SIZE vectors are clustered
at a time, and each group of a block joins the nearest group of the blocks before it. The mean distance of all
pairs of two groups is 1 minus the product of their mean vectors, so no other matrix is needed.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

BLOCK_SIZE = 4_000
_MAX_PRODUCTS = 2**26  # at a time, 256 MiB

Vector = NDArray[np.float32]  # (S,)
Vectors = NDArray[np.float32]  # (N, S)
Labels = NDArray[np.int64]


def cluster(vectors: Vectors, threshold: float) -> Labels:
    """Return the number of each vector's group, from 0 in descending size: (N,).

    Args:
        vectors: (N, S), of length 1.
        threshold: largest mean distance of groups that are merged, below 1.
    """
    labels = np.zeros(len(vectors), np.int64)
    means = np.zeros((0, vectors.shape[1]), np.float32)  # (G, S)
    for start in range(0, len(vectors), BLOCK_SIZE):
        end = start + BLOCK_SIZE
        in_block = _cluster_block(vectors[start:end], threshold)
        groups, distances = nearest(group_means(vectors[start:end], in_block), means)
        is_new = distances > threshold
        groups[is_new] = len(means) + np.arange(np.count_nonzero(is_new))
        labels[start:end] = groups[in_block]
        means = group_means(vectors[:end], labels[:end])
    by_size = np.argsort(-np.bincount(labels), kind="stable")
    return np.argsort(by_size)[labels]


def _cluster_block(vectors: Vectors, threshold: float) -> Labels:
    """Return the number of the group of each vector, in the order of their first vectors: (N,)."""
    from sklearn.cluster import AgglomerativeClustering  # takes a second, and most imports do without it

    if len(vectors) < 2:  # scikit-learn refuses these
        return np.zeros(len(vectors), np.int64)
    clustering = AgglomerativeClustering(
        n_clusters=None, metric="cosine", linkage="average", distance_threshold=threshold
    )
    _, first, labels = np.unique(clustering.fit_predict(vectors), return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[labels]


def group_means(vectors: Vectors, labels: Labels) -> Vectors:
    """Return the mean vector of each group: (G, S); no number below G is unused."""
    counts = np.bincount(labels)
    means: Vectors = np.zeros((len(counts), vectors.shape[1]), np.float32)
    np.add.at(means, labels, vectors)
    means /= counts[:, None]
    return means


def nearest(
    vectors: Vectors, means: Vectors, excluded: Sequence[int] | None = None
) -> tuple[Labels, NDArray[np.float32]]:
    """Return the nearest group of each vector and its distance: (N,) each; -1 and infinity without groups.

    Args:
        vectors: (N, S), vectors or means of groups.
        means: (G, S).
        excluded: of each vector, the group that it cannot have.
    """
    found = np.full(len(vectors), -1, np.int64)
    distances = np.full(len(vectors), np.inf, np.float32)
    num_rows = max(1, _MAX_PRODUCTS // max(1, len(means)))
    for start in range(0, len(vectors) if len(means) else 0, num_rows):
        block = slice(start, start + num_rows)
        likeness = vectors[block] @ means.T  # (block, G)
        if excluded is not None:
            likeness[np.arange(len(likeness)), excluded[block]] = -np.inf
        found[block] = likeness.argmax(axis=1)
        distances[block] = 1 - likeness.max(axis=1)
    return found, distances
