"""Sources and helpers for tests of the import."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from indextts.commands.data import ImportDataset
from indextts.data.importing.importer import ImportResult, import_dataset


def write_tone(path: Path, pitch_hz: float = 220, duration_s: float = 0.5) -> Path:
    """Write a recording that is determined by pitch and duration."""
    path.parent.mkdir(parents=True, exist_ok=True)
    times = np.arange(round(duration_s * 24_000)) / 24_000
    samples = 0.1 * np.sin(2 * np.pi * pitch_hz * times)
    soundfile.write(path, samples, 48_000 if path.suffix == ".opus" else 24_000)
    return path


def run_import(source: Path | list[Path], output_dir: Path, **flags: Any) -> ImportResult:
    sources = source if isinstance(source, list) else [source]
    return import_dataset(ImportDataset(source=sources, output_dir=output_dir, **flags))


def manifest_lines(output_dir: Path) -> list[dict[str, Any]]:
    return json_lines(output_dir / "manifest.jsonl")


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
