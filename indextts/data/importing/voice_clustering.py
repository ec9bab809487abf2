"""Agglomerative clustering of speaker vectors with average linkage on the cosine distance.

Axes: N vectors or groups, S width of a vector, G groups.

The mean distance of all pairs of two groups is 1 minus the product of their mean vectors, which are shorter
than 1. So a group is its mean and its size, and no matrix of distances is needed: memory grows with N, and
40 GB for 100,000 clips become 77 MB. scikit-learn needs the matrix, and cannot continue with groups of
different sizes.

More than BLOCK_SIZE vectors are clustered in blocks first, then the groups of all blocks together.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

BLOCK_SIZE = 4_000
_MAX_PRODUCTS = 2**26  # at a time, 256 MiB
_TIE = 1e-6  # more than float32 rounds a product of unit vectors

Vectors = NDArray[np.float32]
Labels = NDArray[np.int64]


def cluster(vectors: Vectors, threshold: float) -> Labels:
    """Return the number of each vector's group, from 0 in descending size: (N,).

    Args:
        vectors: (N, S), of length 1.
        threshold: largest mean distance of groups that are merged, below 1.
    """
    with threadpool_limits(1):  # beside busy programs, the threads of such short products mostly wait
        return _cluster_in_blocks(vectors, threshold)


def group_means(vectors: Vectors, labels: Labels) -> tuple[Vectors, Labels]:
    """Return the mean vector of each group, (G, S), and its size, (G,); no number below G is unused."""
    counts = np.bincount(labels)
    means: Vectors = np.zeros((len(counts), vectors.shape[1]), np.float32)
    np.add.at(means, labels, vectors)
    means /= counts[:, None]
    return means, counts


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


def _cluster_in_blocks(vectors: Vectors, threshold: float) -> Labels:
    parts: list[Labels] = []
    means, counts = [np.zeros((0, vectors.shape[1]), np.float32)], [np.zeros(0, np.int64)]
    num_groups = 0
    for start in range(0, len(vectors), BLOCK_SIZE):
        block = vectors[start : start + BLOCK_SIZE]
        labels = _merge(block, np.ones(len(block), np.int64), threshold)
        block_means, block_counts = group_means(block, labels)
        parts.append(labels + num_groups)
        num_groups += len(block_counts)
        means.append(block_means)
        counts.append(block_counts)
    if not parts:
        return np.zeros(0, np.int64)
    labels = np.concatenate(parts)
    if len(parts) > 1:
        labels = _merge(np.concatenate(means), np.concatenate(counts), threshold)[labels]
    by_size = np.argsort(-np.bincount(labels), kind="stable")
    return np.argsort(by_size)[labels]


def _merge(vectors: Vectors, sizes: Labels, threshold: float) -> Labels:
    """Return the number of the group of each row, in the order of their first rows: (N,).

    A chain goes from a group to its nearest group until two are each other's nearest, and merges them.
    Average linkage never brings a third group nearer, so the result is that of always merging the two nearest
    of all. For the same reason, a group without another one within the threshold is finished.

    Args:
        vectors: (N, S), the mean vectors of groups.
        sizes: (N,), the number of vectors of each group.
    """
    means, counts = vectors.copy(), sizes.copy()
    is_open = np.ones(len(means), bool)  # the mean of other rows is 0: far from everything
    parents = np.arange(len(means))
    chain: list[tuple[int, float]] = []  # rows, each with its likeness to the row before
    first = 0  # all rows before it are finished
    while first < len(means):
        if not is_open[first]:
            first += 1
            continue
        row, likeness_before = chain[-1] if chain else (first, -np.inf)
        likeness = means[first:] @ means[row]
        likeness[row - first] = -np.inf
        best = first + int(likeness.argmax())
        closest = float(likeness[best - first])
        chain = chain or [(row, likeness_before)]
        if closest > likeness_before + _TIE and 1 - closest <= threshold:
            chain.append((best, closest))
            continue
        chain.pop()
        if chain:
            into, _ = chain.pop()
            total = counts[into] + counts[row]
            means[into] = (counts[into] * means[into] + counts[row] * means[row]) / total
            counts[into], parents[row] = total, into
        means[row], is_open[row] = 0, False
    return _numbered(parents)


def _numbered(parents: Labels) -> Labels:
    """Return the number of each row's group, from the row that each row was merged into."""
    while not np.array_equal(parents, above := parents[parents]):
        parents = above
    _, labels = np.unique(parents, return_inverse=True)
    return labels.astype(np.int64)
