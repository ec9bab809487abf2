"""A copy of the program whose demo has few clips, so that all its stages take seconds."""

import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import REPOSITORY

NUM_CLIPS = 24


def copy_repository(folder: Path, **train: Any) -> Path:
    """Copy the program with a demo of a few clips; return the copy.

    Args:
        train: settings of the demo's training that replace its own.
    """
    for name in ("indextts", "tools", "trainers", "demo"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in REPOSITORY.glob("*.py"):
        shutil.copy2(path, folder)
    manifest, settings = folder / "demo/manifest.jsonl", folder / "demo/project.yaml"
    lines = manifest.read_text(encoding="utf-8").splitlines(keepends=True)
    manifest.write_text("".join(lines[:NUM_CLIPS]), encoding="utf-8")
    content = yaml.safe_load(settings.read_text())
    content["train"] |= train
    settings.write_text(yaml.safe_dump(content))
    return folder
