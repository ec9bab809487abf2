"""Whose voice each clip has: speaker vectors, compared with the other clips of the speaker.

    voice     similarity of a clip to the centre of its speaker's other clips: low for a wrong label, a
              stranger, or several voices
    halves    similarity of the first half of a clip to the second: low if the voice changes within the clip

Both are given as deviations: how far below the median of the set, in robust standard deviations, so that the
scale of the encoder does not matter.

    REPORT_DIR/measured/voices.jsonl   {"audio": sha256, "result": {"vector": [...], "halves": 0.87}}

The digest of the encoder is part of the file's version. A result is null, and so is `halves`, if there is too
little speech. The encoder is CAM++ of the published files.

Axes: S samples, V width of a vector.
"""

import logging
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indextts.data.quality.clips import Clip, new_recordings
from indextts.data.report import robust_deviation
from indextts.data.speaker_vectors import SAMPLE_RATE_HZ, LoadEncoder, VoiceEncoder, add_results
from indextts.data.stored_results import StoredResults
from indextts.errors import UserError
from indextts.features.voice_encoder import load_campplus_encoder
from indextts.system.digest import file_sha256

logger = logging.getLogger(__name__)

NAME = "voices"
VERSION = 1  # raise it when the stored results change
MAX_S = 20.0  # of a clip
MIN_HALF_S = 1.0
MIN_OTHER_CLIPS = 4  # of the speaker
MIN_CLIPS_TO_COMPARE = 20
MIN_SPREAD = 0.005  # clips by one voice are never more alike, and their small differences mean nothing


def hear_voices(
    clips: Sequence[Clip],
    weights: Path,
    report_dir: Path | None,
    load_encoder: LoadEncoder = load_campplus_encoder,
) -> None:
    """Add the deviations of each clip; a UserError if the encoder or the folder for results is unusable."""
    if not weights.is_file():
        raise UserError(
            f"--voice-encoder {weights}: does not exist; download it with tools/download_checkpoints.py "
            "--what speech, or leave the flag out"
        )
    version = f"{VERSION} {file_sha256(weights)}"
    with StoredResults(report_dir, NAME, version, kept=_compact) as results:
        audio = {
            digest: utterance.audio for digest, utterance in new_recordings(clips, results.known).items()
        }
        add_results(results, audio, lambda: load_encoder(weights), _result)
    found = [results.known.get(clip.sound.file_sha256) for clip in clips]
    voices = _deviations(_similarities([clip.utterance.speaker for clip in clips], found))
    halves = _deviations([result and result["halves"] for result in found])
    for clip, voice, half in zip(clips, voices, halves, strict=True):
        clip.measures |= {"voice_deviation": voice, "halves_deviation": half}


def _result(encode: VoiceEncoder, samples: NDArray[np.float32]) -> dict[str, Any] | None:
    samples = samples[: round(MAX_S * SAMPLE_RATE_HZ)]
    vector = encode(samples)
    if vector is None:
        return None
    middle = len(samples) // 2
    first = second = None
    if middle >= MIN_HALF_S * SAMPLE_RATE_HZ:
        first, second = encode(samples[:middle]), encode(samples[middle:])
    halves = None if first is None or second is None else round(float(first @ second), 4)
    return {"vector": [round(float(value), 4) for value in vector], "halves": halves}


def _compact(result: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a result with its vector (V,) as an array, which takes a tenth of the memory of a list."""
    return result and {**result, "vector": np.array(result["vector"], dtype=np.float32)}


def _similarities(speakers: Sequence[str], found: Sequence[dict[str, Any] | None]) -> list[float | None]:
    """Return the similarity of each clip to the centre of its speaker's other clips."""
    places_of: dict[str, list[int]] = defaultdict(list)
    for place, (speaker, result) in enumerate(zip(speakers, found, strict=True)):
        if result is not None:
            places_of[speaker].append(place)
    similarities: list[float | None] = [None] * len(speakers)
    for places in places_of.values():
        if len(places) <= MIN_OTHER_CLIPS:
            continue
        vectors = np.array([found[place]["vector"] for place in places])  # type: ignore[index]
        total = vectors.sum(axis=0, dtype=np.float64)  # (V,)
        with_total = vectors @ total  # (clips,)
        squares = np.square(vectors, dtype=np.float64).sum(axis=1)
        others = total @ total - 2 * with_total + squares  # squared length of the sum of the other clips
        cosines = (with_total - squares) / np.sqrt(squares * others)
        for place, cosine in zip(places, cosines, strict=True):
            similarities[place] = float(cosine)
    return similarities


def _deviations(values: Sequence[float | None]) -> list[float | None]:
    """Return how far each value is below the median, in robust standard deviations; None in a small set."""
    known = [value for value in values if value is not None]
    if len(known) < MIN_CLIPS_TO_COMPARE:
        return [None] * len(values)
    median = statistics.median(known)
    spread = max(MIN_SPREAD, robust_deviation(value - median for value in known))
    return [None if value is None else (median - value) / spread for value in values]
