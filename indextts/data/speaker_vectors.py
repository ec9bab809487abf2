"""Speaker vectors of recordings (features/voice_encoder.py), and groups of similar ones. No torch here.

The groups are those of agglomerative clustering with average linkage on the cosine distance. scikit-learn
needs the matrix of all distances, 40 GB for 100,000 clips. So BLOCK_SIZE vectors are clustered at a time, and
each group of a block joins the nearest group of the blocks before it. The mean distance of all pairs of two
groups is 1 minus the product of their mean vectors, so no other matrix is needed.

Axes: S samples, N vectors or groups, V width of a vector, G groups.

Scikit-learn is imported only when vectors are grouped.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
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
BLOCK_SIZE = 4_000
MIN_CLIP_S = 1.5  # the vector of a shorter clip is too uncertain to found a group or to shape one
_PREFIX = "voice_"

Vector = NDArray[np.float32]  # (V,)
Vectors = NDArray[np.float32]  # (N, V)
Labels = NDArray[np.int64]
VectorOfClip = Mapping[str, Vector]  # by the id of the clip, of those with a voice to be heard

# From mono speech (S,) at SAMPLE_RATE_HZ to the vector of its speaker (V,), of length 1; None for too little
# speech. Several threads call it.
VoiceEncoder = Callable[[NDArray[np.float32]], Vector | None]
LoadEncoder = Callable[[Path], VoiceEncoder]


def add_results(
    results: StoredResults,
    audio: Mapping[str, Path],
    load_encoder: Callable[[], VoiceEncoder],
    result_of: Callable[[VoiceEncoder, NDArray[np.float32]], Any],
    num_workers: int = 0,
) -> None:
    """Add a result from the samples (S,) of each recording, by key, that has none; null if unreadable."""
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


def grouped(
    durations: Mapping[str, float],
    vectors: VectorOfClip,
    threshold: float,
    before: Mapping[str, str],
    taken: Iterable[str],
) -> dict[str, str]:
    """Return the groups of the clips that have one, by the ids of the clips.

    Args:
        durations: of all clips, in seconds.
        before: the groups of earlier imports, which stay.
        taken: other names that new groups do not get.
    """
    is_long = {id: duration_s >= MIN_CLIP_S for id, duration_s in durations.items() if id in vectors}
    new = [id for id in is_long if id not in before]
    fresh = [id for id in new if is_long[id]]
    known = {id: voice for id, voice in before.items() if is_long.get(id)}
    free = _free_names({*before.values(), *taken})
    for start in range(0, len(fresh), BLOCK_SIZE):
        block = fresh[start : start + BLOCK_SIZE]
        rows = stacked(block, vectors)
        labels = cluster(rows, threshold)
        nearest_of = _nearest_groups(group_means(rows, labels), known, vectors, threshold)
        named = [name or next(free) for name in nearest_of]
        known |= {id: named[label] for id, label in zip(block, labels, strict=True)}
    short = [id for id in new if not is_long[id]]
    near = _nearest_groups(stacked(short, vectors), known, vectors, threshold)
    return {**before, **known, **{id: name for id, name in zip(short, near, strict=True) if name is not None}}


def with_old_names(
    voices: Mapping[str, str], before: Mapping[str, str], taken: Iterable[str]
) -> dict[str, str]:
    """Return the groups of clips under the names of the old groups with which they share most clips."""
    shared = Counter((voice, before[id]) for id, voice in voices.items() if id in before)
    names: dict[str, str] = {}
    given: set[str] = set()
    for (voice, old), _ in shared.most_common():
        if voice not in names and old not in given:
            names[voice] = old
            given.add(old)
    free = _free_names({*before.values(), *taken})
    names |= {voice: next(free) for voice in sorted(set(voices.values()) - names.keys())}
    return {id: names[voice] for id, voice in voices.items()}


def _free_names(taken: Iterable[str]) -> Iterator[str]:
    """Yield names for new groups, with the numbers after those that are taken."""
    numbers = (voice.removeprefix(_PREFIX) for voice in taken if voice.startswith(_PREFIX))
    last = max((int(number) for number in numbers if number.isdecimal()), default=0)
    return (f"{_PREFIX}{number:03d}" for number in count(last + 1))


def _nearest_groups(
    rows: Vectors, groups: Mapping[str, str], vectors: VectorOfClip, threshold: float
) -> list[str | None]:
    """Return the nearest group of each row of vectors (N, V), None beyond the threshold."""
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
