"""The feature store against one .npy file per array: room, samples per second, opening.

    python -m benchmarks.feature_store [--clips 2000] [--reads 2000] [--open 200000] [--folder D] [--output F]

`--clips` clips of the published size (32 latents of 1,280, codes of log-normal durations) are written into a
store of each kind of latents, and as files codes/ID.npy (int32), condition/ID.npy, emo_vec/ID.npy (float32).
A sample is what the trainer reads: the codes of one clip, condition and emotion vector of another, both drawn
at random; the same draws for all. Warm is counted in seconds of the processor, which other programs do not
change; cold by the clock, after the pages of all files were given back to the system (POSIX_FADV_DONTNEED;
the names of the files stay in its memory). Each ratio is to the .npy files of the same turn; the turns are
interleaved, and the median counts.

Opening: `--open` clips with latents of 1 x 1, since no array is touched; the indexes have their true sizes.
Of the .npy files, which are empty here, each is asked for its size, which is what it takes to know that a
clip is there. Memory is the most that is added to a process that has imported its programs.

Rounding: what the types of latents do to latents of a normal distribution, and to the losses of a model of
random weights (width 512, 6 layers) on samples whose latents went through the store's types.
"""

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.opening import KINDS
from benchmarks.workload import (
    CODES_PER_SECOND,
    PUBLISHED,
    build_model,
    config_of,
    git_commit,
    machine,
    make_samples,
    packed_batch,
)
from indextts.data.feature_store import LATENTS, FeatureStore, StoreInfo, packed, unpacked
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter
from indextts.data.manifest import Pair, Utterance, write_pairs, write_utterances
from indextts.models.gpt.attention import BLOCKS
from indextts.training.losses import batch_sums

CPU = torch.device("cpu")
NPY = ".npy files"
TURNS = 5
COLD_READS = 300
CODES_PER_CLIP = 275  # 5.5 s


@dataclass(frozen=True)
class Reader:
    """A way to keep features: `read` returns a sample of the codes of one clip and the rest of another."""

    name: str
    folder: Path
    read: Callable[[int, int], None]

    @property
    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clips", type=int, default=2000)
    parser.add_argument("--reads", type=int, default=2000)
    parser.add_argument("--open", type=int, default=200_000)
    parser.add_argument("--folder", type=Path, help="where the files are made; 2 GB")
    parser.add_argument("--output", type=Path, help="file for the tables")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=args.folder) as folder,
        mock.patch("os.fsync"),
    ):  # syncing is not what is measured
        lines = [
            "# The feature store and .npy files",
            "",
            f"{datetime.now(UTC):%Y-%m-%d}, commit {git_commit()}; {machine(CPU)}, numpy {np.__version__}",
            "",
            f"`python -m benchmarks.feature_store --clips {args.clips} --reads {args.reads} "
            f"--open {args.open}`",
            "",
            *reading(Path(folder) / "reading", args.clips, args.reads),
            *rounding(),
            *opening(Path(folder) / "opening", args.open),
        ]
    print("\n".join(lines))
    if args.output:
        args.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


def reading(folder: Path, num_clips: int, num_reads: int) -> list[str]:
    """Return the table of room and speed."""
    clips = list(make_clips(num_clips))
    hours = sum(len(clip_codes(clip)) for clip in clips) / CODES_PER_SECOND / 3600
    readers = [npy_reader(folder / "npy", clips)]
    readers += [store_reader(folder / latents, clips, latents) for latents in LATENTS]
    rates: dict[tuple[str, bool], list[float]] = {}
    for turn in range(TURNS):
        draws = np.random.default_rng(turn).integers(0, num_clips, (num_reads, 2))
        for is_cold in (True, False):
            for reader in readers:
                if is_cold:
                    forget(reader.files)
                rate = samples_per_second(reader, draws[:COLD_READS] if is_cold else draws, is_cold)
                rates.setdefault((reader.name, is_cold), []).append(rate)
    lines = [
        f"{num_clips} clips, {hours:.2f} hours; {TURNS} turns of {num_reads} samples warm, "
        f"{COLD_READS} cold.",
        "",
        "| kept as | files | MB per hour of speech | on the disk | ratio | samples/s warm | ratio "
        "| samples/s cold | ratio |",
        "|---" * 9 + "|",
    ]
    disk = {reader.name: sum(path.stat().st_blocks * 512 for path in reader.files) for reader in readers}
    for reader in readers:
        size = sum(path.stat().st_size for path in reader.files)
        cells = [reader.name, str(len(reader.files)), f"{size / hours / 1e6:.1f}"]
        cells += [f"{disk[reader.name] / hours / 1e6:.1f}", f"{disk[reader.name] / disk[NPY]:.2f}"]
        for is_cold in (False, True):
            mine, theirs = rates[reader.name, is_cold], rates[NPY, is_cold]
            ratio = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
            cells += [f"{statistics.median(mine):,.0f}", f"{ratio:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    shutil.rmtree(folder)
    return [*lines, ""]


def make_clips(count: int) -> Iterator[EncodedUtterance]:
    """Clips of the published size; latents of a normal distribution, as their norm makes them."""
    small = config_of("tiny", dropout=0)  # only durations and codes are taken from its samples
    random = np.random.default_rng(1)
    shape = (PUBLISHED.num_latents, PUBLISHED.model_dim)
    for number, sample in enumerate(make_samples(small, count)):
        condition = random.standard_normal(shape, dtype=np.float32)
        emo_vec = random.standard_normal(shape[1], dtype=np.float32)
        yield EncodedUtterance(f"u{number:06d}", key(number), sample.codes, condition, emo_vec)


def npy_reader(folder: Path, clips: Sequence[EncodedUtterance]) -> Reader:
    """Write the clips as the predecessor does."""
    for kind in KINDS:
        (folder / kind).mkdir(parents=True)
    for clip in clips:
        np.save(folder / f"codes/{clip.id}.npy", clip_codes(clip).astype(np.int32))
        for kind in KINDS[1:]:
            np.save(folder / f"{kind}/{clip.id}.npy", getattr(clip, kind))

    def read(target: int, prompt: int) -> None:
        np.load(folder / f"codes/u{target:06d}.npy").astype(np.int64)
        for kind in KINDS[1:]:
            np.load(folder / f"{kind}/u{prompt:06d}.npy")

    return Reader(NPY, folder, read)


def store_reader(folder: Path, clips: Sequence[EncodedUtterance], latents: str) -> Reader:
    info = StoreInfo("benchmark", "0", "0", PUBLISHED.model_dim, PUBLISHED.num_latents, latents)
    writer = FeatureStoreWriter(folder, info)
    for clip in clips:
        writer.add(clip)
    writer.flush()
    store = FeatureStore.open(writer.path)

    def read(target: int, prompt: int) -> None:
        store.codes(key(target))
        store.condition(key(prompt))
        store.emo_vec(key(prompt))

    return Reader(f"store, {latents}", folder, read)


def samples_per_second(reader: Reader, draws: NDArray[np.int64], is_cold: bool) -> float:
    clock = time.perf_counter if is_cold else time.process_time
    began = clock()
    for target, prompt in draws.tolist():
        reader.read(target, prompt)
    return len(draws) / (clock() - began)


def forget(paths: Sequence[Path]) -> None:
    """Give the pages of files back to the system."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def rounding() -> list[str]:
    """Return the table of what the types of latents cost."""
    config = config_of("small", dropout=0.0)
    model, samples = build_model(config, CPU).eval(), make_samples(config, 24)
    exact = np.stack([sample.condition.numpy() for sample in samples])
    losses = {}
    lines = [
        "| latents | largest relative error | root mean square | text loss | mel loss |",
        "|---|---|---|---|---|",
    ]
    for latents in ("float32", "float16", "bfloat16"):
        stored = unpacked(packed(exact, latents), latents)
        relative = np.abs(stored - exact) / np.abs(exact)
        rms = np.sqrt(np.square(stored - exact).mean() / np.square(exact).mean())
        changed = [replace(s, condition=torch.from_numpy(stored[n])) for n, s in enumerate(samples)]
        with torch.no_grad():
            found = batch_sums(model, packed_batch(changed, config), BLOCKS, 1).means()
        assert found is not None
        losses[latents] = np.array([found.text_loss, found.mel_loss])
        shown = [f"{loss:.6f}" for loss in losses[latents]]
        if latents != "float32":
            shown = [f"{difference:+.1e}" for difference in losses[latents] / losses["float32"] - 1]
        lines.append(f"| {latents} | {relative.max():.1e} | {rms:.1e} | {' | '.join(shown)} |")
    return [*lines, ""]


def opening(folder: Path, count: int) -> list[str]:
    """Return the table of what it takes to open `count` clips."""
    store, utterances, pairs = write_many(folder, count)
    for kind in KINDS:
        (folder / kind).mkdir()
        for number in range(count):
            (folder / kind / f"u{number:06d}.npy").touch()
    lines = [
        f"{count} clips, the median of 3 processes.",
        "",
        "| opened | seconds | of the processor | memory (MB) |",
        "|---|---|---|---|",
    ]
    for what, name, path in (
        ("the store", "store", store),
        (f"{NPY}: the size of each", "npy", folder),
        ("the manifest of utterances", "utterances", utterances),
        ("a pairs file of as many lines", "pairs", pairs),
        ("the store, and every clip of the pairs looked up", "lookup", pairs),
    ):
        found = [fresh(name, path) for _ in range(3)]
        seconds = statistics.median(each["seconds"] for each in found)
        busy = statistics.median(each["busy"] for each in found)
        memory = max(each["memory"] for each in found)
        lines.append(f"| {what} | {seconds:.2f} | {busy:.2f} | {memory / 1e6:.0f} |")
    return lines


def write_many(folder: Path, count: int) -> tuple[Path, Path, Path]:
    """Write a store of `count` clips with tiny latents, its manifest and a pairs file; return the three."""
    writer = FeatureStoreWriter(folder / "features", StoreInfo("benchmark", "0", "0", 1, 1, "float16"))
    codes = np.random.default_rng(0).integers(0, 8192, CODES_PER_CLIP)
    condition, emo_vec = np.ones((1, 1), np.float32), np.ones(1, np.float32)
    for number in range(count):
        writer.add(EncodedUtterance(f"u{number:06d}", key(number), codes, condition, emo_vec))
    writer.flush()
    text, seconds = "ሰላም ለዓለም። እንዴት ነህ? ዛሬ ጥሩ ቀን ነው።", CODES_PER_CLIP / CODES_PER_SECOND
    write_utterances(
        folder / "utterances.jsonl",
        (
            Utterance(
                id=f"u{number:06d}",
                audio=folder / f"audio/u{number:06d}.wav",
                text=f"{text} {number}",
                speaker=f"spk{number % 500:03d}",
                duration_s=seconds,
                features=writer.path,
                num_codes=CODES_PER_CLIP,
                features_key=key(number),
            )
            for number in range(count)
        ),
    )
    write_pairs(
        folder / "pairs.jsonl",
        (
            Pair(
                id=f"u{number:06d}__u{(number + 500) % count:06d}",
                speaker=f"spk{number % 500:03d}",
                prompt_id=f"u{(number + 500) % count:06d}",
                target_id=f"u{number:06d}",
                target_text=f"{text} {number}",
                target_num_codes=CODES_PER_CLIP,
                target_duration_s=seconds,
                prompt_duration_s=seconds,
                features=writer.path,
                prompt_key=key((number + 500) % count),
                target_key=key(number),
            )
            for number in range(count)
        ),
    )
    return writer.path, folder / "utterances.jsonl", folder / "pairs.jsonl"


def fresh(what: str, path: Path) -> dict[str, float]:
    """Return what `benchmarks.opening` measures, in a process of its own."""
    argv = [sys.executable, "-m", "benchmarks.opening", what, str(path)]
    answer = subprocess.run(argv, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def clip_codes(clip: EncodedUtterance) -> NDArray[np.int64]:
    assert clip.codes is not None
    return clip.codes


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
