"""What the page and a job's runner both read and write. The standard library only: see runner.py."""

import json
import os
from pathlib import Path
from typing import Any

from indextts.system.processes import Process, is_alive

SAVE_S = (
    180.0  # from Stop to "end without saving"; the checkpoint of a published model takes a slow disk minutes
)
KILL_S = 20.0  # from there to SIGKILL
WEBHOOK = "INDEXTTS_WEBHOOK"  # in the environment: a command line and a file can be read by others


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; an empty one if it is absent or not whole."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def write_object(path: Path, content: dict[str, Any]) -> None:
    """Write aside, sync and rename, as `indextts.runs.directory` does, which the runner cannot import."""
    aside = path.with_name(f".tmp-{path.name}")
    with aside.open("wb") as file:
        file.write((json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def live_processes(folder: Path) -> list[Process]:
    """Return the runner and the program of a job, in this order, as far as they live."""
    named = (read_object(folder / "job.json").get("runner"), read_object(folder / "program.json"))
    return [process for fields in named if (process := _process(fields)) and is_alive(process)]


def end_reason(folder: Path) -> str | None:
    """Return the reason in a job's exit.json, "lost" if nothing of it lives, None while something does."""
    for _ in range(2):
        reason = read_object(folder / "exit.json").get("reason")
        if isinstance(reason, str):
            return reason
        if live_processes(folder):
            return None
    return "lost"  # looked twice: it may have ended between the two questions


def _process(fields: object) -> Process | None:
    try:
        return Process.from_fields(fields)
    except ValueError:
        return None
