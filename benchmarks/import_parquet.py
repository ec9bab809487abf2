"""Time and memory to import a data set with embedded recordings: the first time, again, and with a new shard.

    python -m benchmarks.import_parquet [--rows 100000] [--folder DIR]

The set has shards of 10,000 rows in row groups of 100, as `datasets` writes them: FLAC files of one second
(16 kHz, noise below a tone), texts of the demo and 200 speakers. 1,000 different recordings repeat. The new
shard makes the names of all others differ (-of-00010 becomes -of-00011).

Large rows: a file with a single row group of 2,000 WAV files of 300 kB each, which a reader of row groups
would hold at once.
"""

import io
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import soundfile
from pydantic import Field

from benchmarks.frame import REPOSITORY, Benchmark, publish, table
from benchmarks.published_size import Stage, run_program
from indextts.commands.terminal import parse, run

RATE_HZ = 16_000
ROWS_OF_SHARD = 10_000
NUM_SPEAKERS = 200
NUM_DIFFERENT = 1_000
NUM_LARGE = 2_000
LARGE_S = 9.4
AUDIO = pa.struct({"bytes": pa.binary(), "path": pa.string()})


class ImportParquet(Benchmark):
    """Measure imports of parquet files with embedded recordings."""

    program: ClassVar[str] = "benchmarks.import_parquet"
    rows: int = Field(100_000, ge=ROWS_OF_SHARD, description="Rows of the set, in shards of 10,000.")
    folder: Path | None = Field(None, description="Folder for the files, 5 GB.")


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(ImportParquet, argv)
    num_shards = command.rows // ROWS_OF_SHARD
    with tempfile.TemporaryDirectory(dir=command.folder) as name:
        folder = Path(name)
        for shard in range(num_shards + 1):
            write_shard(folder / f"set/data/train-{shard:05d}-of-{num_shards + 1:05d}.parquet", shard)
        new = folder / f"set/data/train-{num_shards:05d}-of-{num_shards + 1:05d}.parquet"
        new.rename(folder / new.name)
        for path in new.parent.iterdir():
            path.rename(
                path.with_name(path.name.replace(f"-of-{num_shards + 1:05d}", f"-of-{num_shards:05d}"))
            )
        size = sum(path.stat().st_size for path in new.parent.iterdir())
        stages = [measured(folder / "set", folder / "out"), measured(folder / "set", folder / "out")]
        for path in list(new.parent.iterdir()):
            path.rename(
                path.with_name(path.name.replace(f"-of-{num_shards:05d}", f"-of-{num_shards + 1:05d}"))
            )
        (folder / new.name).rename(new)
        stages.append(measured(folder / "set", folder / "out"))
        large = write_large(folder / "large/train.parquet")
        stages.append(measured(large.parent, folder / "out2"))
        large_size = large.stat().st_size
    names = [
        f"first import, {command.rows:,} rows in {num_shards} shards, {size / 1e9:.2f} GB",
        "the same again",
        f"with one more shard of {ROWS_OF_SHARD:,} rows",
        f"{NUM_LARGE:,} rows in a single row group of {large_size / 1e9:.2f} GB",
    ]
    header = ["import", "seconds", "processor time (s)", "own memory, peak (MB)", "with mapped files (MB)"]
    rows = [row_of(name, stage) for name, stage in zip(names, stages, strict=True)]
    publish(command, "Import of parquet files with embedded recordings", table(header, rows))
    return 0


def row_of(name: str, stage: Stage) -> list[str]:
    times = [f"{stage.wall_s:.1f}", f"{stage.cpu_s:.1f}"]
    return [name, *times, f"{stage.own / 1e6:.0f}", f"{stage.resident / 1e6:.0f}"]


def measured(source: Path, output_dir: Path) -> Stage:
    return run_program("tools/import_dataset.py", [f"--source={source}", f"--output-dir={output_dir}"])


def write_shard(path: Path, shard: int) -> None:
    texts = (REPOSITORY / "demo/sentences.txt").read_text(encoding="utf-8").splitlines()
    contents = recordings(NUM_DIFFERENT, 1.0, "FLAC")
    numbers = range(shard * ROWS_OF_SHARD, (shard + 1) * ROWS_OF_SHARD)
    write(
        path,
        [{"bytes": contents[n % NUM_DIFFERENT], "path": f"amh_{n:06d}.flac"} for n in numbers],
        [texts[n % len(texts)] for n in numbers],
        row_group_size=100,
    )


def write_large(path: Path) -> Path:
    contents = recordings(50, LARGE_S, "WAV")
    texts = (REPOSITORY / "demo/sentences.txt").read_text(encoding="utf-8").splitlines()
    audio = [{"bytes": contents[n % 50], "path": f"large_{n:06d}.wav"} for n in range(NUM_LARGE)]
    write(path, audio, [texts[n % len(texts)] for n in range(NUM_LARGE)], row_group_size=NUM_LARGE)
    return path


def write(
    path: Path, audio: Sequence[Mapping[str, object]], texts: Sequence[str], row_group_size: int
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    speakers = [f"speaker{n % NUM_SPEAKERS:03d}" for n in range(len(texts))]
    columns = {
        "audio": pa.array(audio, AUDIO),
        "transcription": pa.array(texts),
        "speaker_id": pa.array(speakers),
    }
    pq.write_table(
        pa.table(columns), path, row_group_size=row_group_size, compression="none", use_dictionary=False
    )


def recordings(count: int, duration_s: float, kind: str) -> list[bytes]:
    """Return the content of different recordings: noise below a tone, which compresses as speech does."""
    random = np.random.default_rng(0)
    times = np.arange(round(duration_s * RATE_HZ)) / RATE_HZ
    contents = []
    for number in range(count):
        tone = 0.1 * np.sin(2 * np.pi * (100 + number) * times)
        file = io.BytesIO()
        soundfile.write(file, tone + 0.01 * random.standard_normal(len(times)), RATE_HZ, format=kind)
        contents.append(file.getvalue())
    return contents


if __name__ == "__main__":
    run(main)
