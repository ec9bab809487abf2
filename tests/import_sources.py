"""Sources and helpers for tests of the import."""

import io
import json
import tarfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import soundfile
from numpy.typing import NDArray

from indextts.commands.data import ImportDataset
from indextts.data.importing.importer import ImportResult, import_dataset


def write_tone(path: Path, pitch_hz: float = 220, duration_s: float = 0.5) -> Path:
    """Write a recording that is determined by pitch and duration."""
    path.parent.mkdir(parents=True, exist_ok=True)
    times = np.arange(round(duration_s * 24_000)) / 24_000
    samples = 0.1 * np.sin(2 * np.pi * pitch_hz * times)
    soundfile.write(path, samples, 48_000 if path.suffix == ".opus" else 24_000)
    return path


def write_media(
    path: Path,
    samples: NDArray[np.float32] | None,
    rate_hz: int,
    codec: str = "aac",
    *,
    layout: str = "mono",
    video_s: float = 0.0,
    **options: str,
) -> Path:
    """Write a file that libsndfile cannot read, with an audio track, a video track or both.

    Args:
        samples: (S,) in [-1, 1], or (C, S) for the channels of `layout`; None for no audio track.
        video_s: the duration of the video, of 5 frames per second.
        options: of the container.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(f"file:{path}", "w", options=options) as output:
        video = output.add_stream("mpeg4", rate=5) if video_s else None
        audio = output.add_stream(codec, rate=rate_hz, layout=layout) if samples is not None else None
        if codec == "wmav2":
            audio.bit_rate = 64_000  # its default is too high for one channel
        if video is not None:
            video.width = video.height = 64
            for number in range(round(5 * video_s)):
                frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
                frame.pts, frame.time_base = number, Fraction(1, 5)
                output.mux(video.encode(frame))
            output.mux(video.encode())
        if samples is not None:
            rounded = np.round(samples * 32767).astype(np.int16)
            given = "mono" if rounded.ndim == 1 else layout
            sound = av.AudioFrame.from_ndarray(rounded.T.reshape(1, -1), format="s16", layout=given)
            sound.sample_rate, sound.pts, sound.time_base = rate_hz, 0, Fraction(1, rate_hz)
            if len(samples):
                output.mux(audio.encode(sound))
            output.mux(audio.encode())
    return path


def run_import(source: Path | list[Path], output_dir: Path, **flags: Any) -> ImportResult:
    sources = source if isinstance(source, list) else [source]
    return import_dataset(ImportDataset(source=sources, output_dir=output_dir, **flags))


def manifest_lines(output_dir: Path) -> list[dict[str, Any]]:
    return json_lines(output_dir / "manifest.jsonl")


def ids(output_dir: Path) -> list[str]:
    return [line["id"] for line in manifest_lines(output_dir)]


def rejected(output_dir: Path) -> list[tuple[str, int | None, str]]:
    """Return file, line and code of each rejection."""
    path = output_dir / "rejected.jsonl"
    lines = json_lines(path) if path.is_file() else []
    assert all(line["reason"] and line["source"] for line in lines)
    return [(line["file"], line.get("line"), line["code"]) for line in lines]


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return content and modification time of every file in a folder."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def tone_bytes(pitch_hz: float = 220, duration_s: float = 0.2, kind: str = "FLAC") -> bytes:
    """Return a recording that is determined by pitch and duration, as the content of a file."""
    times = np.arange(round(duration_s * 24_000)) / 24_000
    file = io.BytesIO()
    soundfile.write(file, 0.1 * np.sin(2 * np.pi * pitch_hz * times), 24_000, format=kind)
    return file.getvalue()


def write_parquet(path: Path, columns: dict[str, list[Any]], row_group_size: int = 2) -> Path:
    """Write a table with a column `audio`, if there is one, as datasets.Audio stores it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    audio = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    arrays = {
        name: pa.array(values, audio if name == "audio" and isinstance(values[0], dict) else None)
        for name, values in columns.items()
    }
    pq.write_table(pa.table(arrays), path, row_group_size=row_group_size)
    return path


def write_tar(path: Path, members: dict[str, bytes], mode: str = "w:gz") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as file:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), 1_700_000_000
            file.addfile(member, io.BytesIO(content))
    return path
