"""Time and memory of opening a file in a process without torch; feature_store.py runs it.

python -m benchmarks.opening {store|npy|utterances|pairs|lookup} PATH
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.frame import peak_bytes, reset_peak, timed
from indextts.data.feature_store import FeatureStore
from indextts.data.manifest import read_pairs, read_utterances

KINDS = ("codes", "condition", "emo_vec")


def measured(what: str, path: Path) -> dict[str, float]:
    """Open `path`; return wall clock, processor time and the peak of the memory that this added."""
    pairs = read_pairs(path) if what == "lookup" else []

    def look_up() -> object:
        store = FeatureStore.open(pairs[0].features)
        return [pair for pair in pairs if pair.target_key in store and pair.prompt_key in store], store

    openers: dict[str, Callable[[], object]] = {
        "store": lambda: FeatureStore.open(path),
        "npy": lambda: [{e.name: e.stat().st_size for e in os.scandir(path / kind)} for kind in KINDS],
        "utterances": lambda: read_utterances(path),
        "pairs": lambda: read_pairs(path),
        "lookup": look_up,
    }
    reset_peak()
    before = peak_bytes()
    _opened, took = timed(openers[what])
    return {"wall_s": took.wall_s, "cpu_s": took.cpu_s, "memory": peak_bytes() - before}


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], Path(sys.argv[2]))))
