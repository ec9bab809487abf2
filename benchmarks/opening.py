"""Seconds and memory to open something, in a process of its own that knows no torch: see feature_store.py.

python -m benchmarks.opening {store|npy|utterances|pairs|lookup} PATH
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from indextts.data.feature_store import FeatureStore
from indextts.data.manifest import read_pairs, read_utterances

KINDS = ("codes", "condition", "emo_vec")


def measured(what: str, path: str) -> dict[str, float]:
    """Open something; return the seconds, and the memory that it took at most."""
    pairs = read_pairs(Path(path)) if what == "lookup" else []
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what there is
    before = peak_bytes()
    began, busy = time.perf_counter(), time.process_time()
    with kept() as keep:
        if what == "store":
            keep(FeatureStore.open(Path(path)))
        elif what == "npy":
            for kind in KINDS:
                keep({entry.name: entry.stat().st_size for entry in os.scandir(Path(path) / kind)})
        elif what == "utterances":
            keep(read_utterances(Path(path)))
        elif what == "pairs":
            keep(read_pairs(Path(path)))
        elif what == "lookup":
            store = FeatureStore.open(pairs[0].features)
            keep([pair for pair in pairs if pair.target_key in store and pair.prompt_key in store])
        seconds, busy = time.perf_counter() - began, time.process_time() - busy
        return {"seconds": seconds, "busy": busy, "memory": peak_bytes() - before}


@contextmanager
def kept() -> Iterator[Callable[[object], None]]:
    """Hold on to what is opened, as a program that uses it does."""
    things: list[object] = []
    yield things.append


def peak_bytes() -> int:
    [line] = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(json.dumps(measured(*sys.argv[1:])))
