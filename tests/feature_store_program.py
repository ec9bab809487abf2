"""Program that writes a feature store, for tests that kill it.

    python -m tests.feature_store_program FOLDER COUNT LOG

It does not import torch, so that it starts quickly.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np

from indextts.data.feature_store import StoreInfo
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter

INFO = StoreInfo("builtin", "backend", "encoders", model_dim=64, num_latents=16, latents="float16")
CLIPS_PER_SHARD = 4


def encoded(number: int) -> EncodedUtterance:
    rng = np.random.default_rng(number)
    return EncodedUtterance(
        id=f"u{number}",
        key=hashlib.sha256(str(number).encode()).hexdigest(),
        codes=rng.integers(0, 8192, 50 + number % 60),
        condition=rng.standard_normal((16, 64), np.float32),
        emo_vec=rng.standard_normal(64, np.float32),
    )


def append(folder: Path, count: int, log: Path | None = None) -> None:
    """Add missing features of `count` utterances, as preprocessing does; append each number to `log`."""
    writer = FeatureStoreWriter(folder, INFO, CLIPS_PER_SHARD)
    for number in range(count):
        utterance = encoded(number)
        if utterance.key not in writer:
            if log is not None:
                with log.open("a") as file:
                    file.write(f"{number}\n")
            writer.add(utterance)
    writer.flush()


if __name__ == "__main__":
    print("ready", flush=True)  # noqa: T201
    append(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
