"""Minimal lines of metrics.jsonl."""

import json
from pathlib import Path
from typing import Any


def start(step: int, *, part: int = 1, time: float = 0.0, total_steps: int = 1_000) -> dict[str, Any]:
    return {"kind": "start", "part": part, "step": step, "epoch": 0, "total_steps": total_steps, "time": time}


def point(step: int, loss: float | None = 1.0, *, kind: str = "train", part: int = 1, time: float = 0.0):
    line = {"kind": kind, "part": part, "step": step, "epoch": 2, "text_loss": loss, "mel_loss": loss}
    rates = {"lr": 1e-4, "tokens_per_second": 1480.4} if kind == "train" else {}
    return {**line, "mel_top1": 0.5, **rates, "time": time}


def write(path: Path, lines: list[dict[str, Any]]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
