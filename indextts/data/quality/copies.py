"""Copies of a recording at another gain, start, length or sample rate, by spectral fingerprints.

    anchor      a peak of the energy: a copy has the same ones, wherever it starts
    its bits    the signs of 16 differences between neighbouring bands around the anchor, and of how these
                differences change from before to after it; the gain does not matter

Two clips are copies if 60 % of the anchors of the shorter, and at least 4, have counterparts in the other at
the same distance in time. Candidates have an anchor with exactly the same bits.

Axes: S samples, T energy frames, A anchors, B bands.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from indextts.features.vad import SAMPLE_RATE_HZ

HOP = 16  # samples: 1 ms, so that the anchors of a copy are at the same samples
ENERGY_SAMPLES = 512
ANCHOR_FRAMES = 80  # an anchor is the highest frame within 80 ms before and after
LOWEST_ANCHOR = 0.01  # of the power of the highest
HALF_SAMPLES = 1024  # of the spectrum before and of that after an anchor
BAND_EDGES_HZ = np.geomspace(200, 4000, 18)
MIN_MATCHES = 4
MIN_SHARE = 0.6
MAX_DIFFERENT_BITS = 6
MAX_SHIFT_MS = 8
MAX_CLIPS_OF_BITS = 30  # bits that more clips have say nothing about copies


@dataclass(frozen=True)
class Fingerprint:
    """Anchors of a clip."""

    times_ms: NDArray[np.uint32]  # (A,) increasing
    bits: NDArray[np.uint32]  # (A,)

    def __str__(self) -> str:
        return base64.b64encode(np.stack([self.times_ms, self.bits]).astype("<u4").tobytes()).decode()


def parse_fingerprint(text: str) -> Fingerprint:
    """Return the fingerprint that `str` gave."""
    times_ms, bits = np.frombuffer(base64.b64decode(text), "<u4").reshape(2, -1)
    return Fingerprint(times_ms, bits)


def fingerprint(samples: NDArray[np.float32]) -> Fingerprint:
    """Return the fingerprint of a recording (S,), mono at SAMPLE_RATE_HZ."""
    padded = np.pad(samples, HALF_SAMPLES)
    anchors = _anchors(samples)
    window = np.hanning(HALF_SAMPLES).astype(np.float32)
    parts = sliding_window_view(padded, 2 * HALF_SAMPLES)[anchors * HOP].reshape(-1, 2, HALF_SAMPLES)
    power = np.square(np.abs(np.fft.rfft(parts * window, axis=2)))  # (A, 2, K)
    edges = np.round(BAND_EDGES_HZ * HALF_SAMPLES / SAMPLE_RATE_HZ).astype(int)
    bands = np.log(np.add.reduceat(power, edges, axis=2)[:, :, :-1] + 1e-12)  # (A, 2, B)
    slopes = np.diff(bands, axis=2)  # (A, 2, B - 1)
    signs = np.concatenate([slopes.sum(axis=1) > 0, slopes[:, 1] > slopes[:, 0]], axis=1)  # (A, 32)
    bits = np.packbits(signs, axis=1).view(">u4").reshape(-1).astype(np.uint32)
    return Fingerprint(anchors.astype(np.uint32), bits)


def _anchors(samples: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the frames of 1 ms that are peaks of the energy: (A,)."""
    sums = np.cumsum(
        np.pad(np.square(samples, dtype=np.float64), (ENERGY_SAMPLES // 2 + 1, ENERGY_SAMPLES // 2))
    )
    energy = (sums[ENERGY_SAMPLES:] - sums[:-ENERGY_SAMPLES])[::HOP]  # (T,)
    around = sliding_window_view(np.pad(energy, ANCHOR_FRAMES), 2 * ANCHOR_FRAMES + 1)
    is_peak = (energy == around.max(axis=1)) & (energy > LOWEST_ANCHOR * energy.max())
    return np.flatnonzero(is_peak[: len(samples) // HOP])


def groups_of_copies(
    fingerprints: Sequence[Fingerprint | None], digests: Sequence[str | None]
) -> list[int | None]:
    """Return a number for each clip, the same for copies; None for an unreadable clip.

    Args:
        digests: of the samples; equal ones are copies, also of clips without anchors.
    """
    group = list(range(len(fingerprints)))

    def root(place: int) -> int:
        while group[place] != place:
            place = group[place]
        return place

    def join(first: int, second: int) -> None:
        low, high = sorted((root(first), root(second)))
        group[high] = low

    first_of: dict[str, int] = {}
    for place, digest in enumerate(digests):
        if digest is not None:
            join(first_of.setdefault(digest, place), place)
    for first, second in _candidates(fingerprints):
        one, other = fingerprints[first], fingerprints[second]
        if root(first) != root(second) and one and other and are_copies(one, other):
            join(first, second)
    return [None if digest is None else root(place) for place, digest in enumerate(digests)]


def are_copies(one: Fingerprint, other: Fingerprint) -> bool:
    """Return whether one clip contains most of the other."""
    shorter = min(len(one.bits), len(other.bits))
    required = max(MIN_MATCHES, MIN_SHARE * shorter)
    if shorter < required:
        return False
    is_similar = np.bitwise_count(one.bits[:, None] ^ other.bits[None, :]) <= MAX_DIFFERENT_BITS
    shifts = one.times_ms[:, None].astype(np.int64) - other.times_ms[None, :].astype(np.int64)
    found = np.sort(shifts[is_similar])
    if len(found) < required:
        return False
    return (
        int((np.searchsorted(found, found + MAX_SHIFT_MS, "right") - np.arange(len(found))).max()) >= required
    )


def _candidates(fingerprints: Sequence[Fingerprint | None]) -> Iterator[tuple[int, int]]:
    """Yield pairs of clips that share the bits of an anchor, each pair once."""
    counts = [0 if found is None else len(found.bits) for found in fingerprints]
    places = np.repeat(np.arange(len(counts)), counts)
    bits = np.concatenate(
        [np.zeros(0, np.uint32), *(found.bits for found in fingerprints if found is not None)]
    )
    order = np.argsort(bits, kind="stable")
    places, bits = places[order], bits[order]
    seen: set[tuple[int, int]] = set()
    for same in np.split(places, np.flatnonzero(np.diff(bits)) + 1):
        clips = np.unique(same).tolist()
        if len(clips) <= MAX_CLIPS_OF_BITS:
            for number, second in enumerate(clips):
                for first in clips[:number]:
                    if (first, second) not in seen:
                        seen.add((first, second))
                        yield first, second
