"""Samples of workload.py as the files that the trainer reads: feature store and pairs."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from benchmarks.workload import CODES_PER_SECOND, Sample
from indextts.data.feature_store import StoreInfo
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter
from indextts.data.manifest import Pair


def write_store(folder: Path, samples: Sequence[Sample], encoders_identity: str = "0") -> Path:
    """Write the features of `samples` as utterances u0, u1, ... and return the path of the store."""
    width, num_latents = samples[0].emo_vec.shape[0], samples[0].condition.shape[0]
    writer = FeatureStoreWriter(folder, StoreInfo("benchmark", "0", encoders_identity, width, num_latents))
    for number, sample in enumerate(samples):
        condition, emo_vec = sample.condition.numpy(), sample.emo_vec.numpy()
        writer.add(EncodedUtterance(f"u{number}", key(number), sample.codes, condition, emo_vec))
    writer.flush()
    return writer.path


def own_pair(features: Path, number: int, num_codes: int, text: str = "") -> Pair:
    """Return a pair in which utterance `number` of a store is its own prompt."""
    return Pair(
        id=f"u{number}__u{number}",
        speaker="s",
        prompt_id=f"u{number}",
        target_id=f"u{number}",
        target_text=text,
        target_num_codes=num_codes,
        target_duration_s=num_codes / CODES_PER_SECOND,
        prompt_duration_s=num_codes / CODES_PER_SECOND,
        features=features,
        prompt_key=key(number),
        target_key=key(number),
    )


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()
