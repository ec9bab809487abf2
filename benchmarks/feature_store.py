"""The feature store against one .npy file per array: size, samples per second, opening.

    python -m benchmarks.feature_store [--clips 2000] [--reads 2000] [--open 200000] [--folder D] [--output F]

Reading: `--clips` clips of the published size (32 latents of 1,280, codes of log-normal durations) are
written into a store of each type of latents, and as files codes/ID.npy (int32), condition/ID.npy,
emo_vec/ID.npy (float32). A sample contains what the trainer reads: the codes of one clip, and condition and
emotion vector of another, both drawn at random; the draws are the same for all. Warm reads are timed in
processor time, which other programs do not change. Cold reads are timed by wall clock, after the pages of all
files were dropped from the page cache (POSIX_FADV_DONTNEED; the file names stay cached). The repeats are
interleaved. Each ratio compares with the .npy files of the same repeat; the table shows the median.

Opening: `--open` clips with latents of 1 x 1, because opening reads no array; the indexes have their true
sizes. The .npy files are empty here: the size of each is read, which is how a program finds out that a clip
exists. Memory is the peak that opening adds to a process that has imported its modules.

Rounding: the effect of the types of latents on normally distributed latents, and on the losses of a model
with random weights (width 512, 6 layers).
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.frame import Benchmark, interleaved, publish, table, timed
from benchmarks.opening import KINDS
from benchmarks.stored import key
from benchmarks.workload import (
    CODES_PER_SECOND,
    PUBLISHED,
    build_model,
    config_of,
    make_samples,
    packed_batch,
)
from indextts.commands.terminal import parse, run
from indextts.data.feature_store import LATENTS, FeatureStore, StoreInfo, packed, unpacked
from indextts.data.feature_store_writer import EncodedUtterance, FeatureStoreWriter
from indextts.data.manifest import Pair, Utterance, write_pairs, write_utterances
from indextts.models.gpt.attention import BLOCKS
from indextts.training.losses import batch_sums

CPU = torch.device("cpu")
NPY = ".npy files"
REPEATS = 5
COLD_READS = 300
CODES_PER_CLIP = 275  # 5.5 s


@dataclass(frozen=True)
class Reader:
    """A format of features: `read` reads the codes of one clip and the other arrays of another."""

    name: str
    folder: Path
    read: Callable[[int, int], None]

    @property
    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


class FeatureStoreBenchmark(Benchmark):
    """Compare the feature store with .npy files."""

    program: ClassVar[str] = "benchmarks.feature_store"
    clips: int = Field(2000, ge=1, description="Clips to read from.")
    reads: int = Field(2000, ge=1, description="Samples of each repeat.")
    open: int = Field(200_000, ge=1, description="Clips to open.")
    folder: Path | None = Field(None, description="Folder for the files, 2 GB.")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(FeatureStoreBenchmark, argv)
    with (
        tempfile.TemporaryDirectory(dir=command.folder) as folder,
        mock.patch("os.fsync"),  # syncing is not measured
    ):
        lines = [
            *reading(Path(folder) / "reading", command.clips, command.reads),
            *rounding(),
            *opening(Path(folder) / "opening", command.open),
        ]
    publish(command, "The feature store and .npy files", lines)
    return 0


def reading(folder: Path, num_clips: int, num_reads: int) -> list[str]:
    """Return the table of size and speed."""
    clips = list(make_clips(num_clips))
    hours = sum(len(clip_codes(clip)) for clip in clips) / CODES_PER_SECOND / 3600
    readers = [npy_reader(folder / "npy", clips)]
    readers += [store_reader(folder / latents, clips, latents) for latents in LATENTS]

    def rate(reader: Reader, is_cold: bool, repeat: int) -> float:
        draws = np.random.default_rng(repeat).integers(0, num_clips, (num_reads, 2))
        if is_cold:
            drop_from_cache(reader.files)
        return samples_per_second(reader, draws[:COLD_READS] if is_cold else draws, is_cold)

    rates = interleaved(
        {
            f"{reader.name} {is_cold}": partial(rate, reader, is_cold)
            for is_cold in (True, False)
            for reader in readers
        },
        REPEATS,
    )
    header = ["format", "files", "MB per hour of speech", "on the disk", "ratio"]
    header += ["samples/s warm", "ratio", "samples/s cold", "ratio"]
    disk = {reader.name: sum(path.stat().st_blocks * 512 for path in reader.files) for reader in readers}
    rows = []
    for reader in readers:
        size = sum(path.stat().st_size for path in reader.files)
        cells = [reader.name, str(len(reader.files)), f"{size / hours / 1e6:.1f}"]
        cells += [f"{disk[reader.name] / hours / 1e6:.1f}", f"{disk[reader.name] / disk[NPY]:.2f}"]
        for is_cold in (False, True):
            own, npy = rates[f"{reader.name} {is_cold}"], rates[f"{NPY} {is_cold}"]
            ratio = statistics.median(a / b for a, b in zip(own, npy, strict=True))
            cells += [f"{statistics.median(own):,.0f}", f"{ratio:.2f}"]
        rows.append(cells)
    shutil.rmtree(folder)
    return [
        f"Clips: {num_clips}, {hours:.2f} hours. Repeats: {REPEATS}, each of {num_reads} warm and "
        f"{COLD_READS} cold samples.",
        "",
        *table(header, rows),
        "",
    ]


def make_clips(count: int) -> Iterator[EncodedUtterance]:
    """Yield clips of the published size with normally distributed latents, like those of a norm layer."""
    small = config_of("tiny", dropout=0)  # its samples give durations and codes only
    random = np.random.default_rng(1)
    shape = (PUBLISHED.num_latents, PUBLISHED.model_dim)
    for number, sample in enumerate(make_samples(small, count)):
        condition = random.standard_normal(shape, dtype=np.float32)
        emo_vec = random.standard_normal(shape[1], dtype=np.float32)
        yield EncodedUtterance(f"u{number:06d}", key(number), sample.codes, condition, emo_vec)


def npy_reader(folder: Path, clips: Sequence[EncodedUtterance]) -> Reader:
    """Write the clips in the predecessor's format."""
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
    def read_all() -> None:
        for target, prompt in draws.tolist():
            reader.read(target, prompt)

    _, took = timed(read_all)
    return len(draws) / (took.wall_s if is_cold else took.cpu_s)


def drop_from_cache(paths: Sequence[Path]) -> None:
    """Drop the pages of files from the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def rounding() -> list[str]:
    """Return the table of rounding errors by type of latents."""
    config = config_of("small", dropout=0.0)
    model, samples = build_model(config, CPU).eval(), make_samples(config, 24)
    exact = np.stack([sample.condition.numpy() for sample in samples])
    losses = {}
    rows = []
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
        rows.append([latents, f"{relative.max():.1e}", f"{rms:.1e}", *shown])
    return [
        *table(["latents", "largest relative error", "root mean square", "text loss", "mel loss"], rows),
        "",
    ]


def opening(folder: Path, count: int) -> list[str]:
    """Return the table of time and memory to open `count` clips."""
    store, utterances, pairs = write_many(folder, count)
    for kind in KINDS:
        (folder / kind).mkdir()
        for number in range(count):
            (folder / kind / f"u{number:06d}.npy").touch()
    rows = []
    for what, name, path in (
        ("the store", "store", store),
        (f"{NPY}: the size of each", "npy", folder),
        ("the manifest of utterances", "utterances", utterances),
        ("a pairs file of as many lines", "pairs", pairs),
        ("the store, and a lookup of every clip of the pairs", "lookup", pairs),
    ):
        found = [opened_in_new_process(name, path) for _ in range(3)]
        wall_s, cpu_s = (statistics.median(each[field] for each in found) for field in ("wall_s", "cpu_s"))
        memory = max(each["memory"] for each in found)
        rows.append([what, f"{wall_s:.2f}", f"{cpu_s:.2f}", f"{memory / 1e6:.0f}"])
    header = ["opened", "wall clock (s)", "processor time (s)", "memory (MB)"]
    return [f"Clips: {count}. Median of 3 processes.", "", *table(header, rows)]


def write_many(folder: Path, count: int) -> tuple[Path, Path, Path]:
    """Write a store of `count` clips with tiny latents, its manifest and a pairs file; return their paths."""
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


def opened_in_new_process(what: str, path: Path) -> dict[str, float]:
    """Return the measurement of `benchmarks.opening` in its own process."""
    argv = [sys.executable, "-m", "benchmarks.opening", what, str(path)]
    answer = subprocess.run(argv, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def clip_codes(clip: EncodedUtterance) -> NDArray[np.int64]:
    assert clip.codes is not None
    return clip.codes


if __name__ == "__main__":
    run(main)
