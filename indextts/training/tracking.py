"""Tracker of a run: Trackio or Weights & Biases, besides metrics.jsonl and TensorBoard.

tracker.json in the run directory names the run, so that a resume continues it on any machine:

    {"id": "1f0c9a7e", "name": "voice-1f0c9a7e"}

Part P of a run, from the second, is a tracked run of its own, with "-partP" appended to both: its steps start
over. Metrics have the names of TensorBoard and are logged with their step, so a replayed step has two values.
"""

import logging
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from indextts.errors import UserError
from indextts.system.files import read_object, write_json

logger = logging.getLogger(__name__)

PROJECT = "indextts2"
FILE = "tracker.json"


class Tracker:
    """A tracked run; the first error of the tracker is logged and ends the tracking, not the training."""

    def __init__(self, kind: str, send: Callable[[dict[str, Any], int], Any], finish: Callable[[], Any]):
        """Wrap the functions of an open run.

        Args:
            send: takes the metrics and their step.
        """
        self._kind, self._send, self._finish = kind, send, finish
        self._is_failing = False

    def log(self, kind: str, step: int, numbers: Mapping[str, float | None]) -> None:
        """Log the numbers that have a value, under the names of TensorBoard."""
        named = {f"{kind}/{name}": value for name, value in numbers.items() if value is not None}
        self._call(lambda: self._send(named, step))

    def close(self) -> None:
        """Wait until the tracker has sent or stored all metrics."""
        self._call(self._finish)

    def _call(self, action: Callable[[], Any]) -> None:
        if self._is_failing:
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001 - no problem of a tracker may end a training run
            self._is_failing = True
            logger.warning(
                "--tracker %s failed (%s); training continues without it, metrics.jsonl has all numbers",
                self._kind,
                error,
            )


def start_tracker(kind: str, run_dir: Path, part: int, settings: dict[str, Any]) -> Tracker | None:
    """Open the tracked run of this part of the run, a new one or that of an earlier process.

    Args:
        settings: of the run, which the tracker shows.

    Returns:
        None with --tracker none.

    Raises:
        UserError: the tracker's package is missing, or the tracker refuses to start.
    """
    if kind == "none":
        return None
    id, name = _identity(run_dir)
    if part > 1:
        id, name = f"{id}-part{part}", f"{name}-part{part}"
    open_run = _open_wandb if kind == "wandb" else _open_trackio
    try:
        tracker = open_run(id, name, run_dir, settings)
    except ModuleNotFoundError as error:
        raise UserError(
            f"--tracker {kind}: the package {error.name} is not installed; run pip install -e '.[trackers]'"
        ) from None
    except Exception as error:
        raise UserError(
            f"--tracker {kind} did not start: {error}; resolve this, or train with --tracker none"
        ) from error
    logger.info("Tracking the run with %s as %s", kind, name)
    return tracker


def _open_wandb(id: str, name: str, run_dir: Path, settings: dict[str, Any]) -> Tracker:
    import wandb

    opened = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT),
        id=id,
        name=name,
        resume="allow",
        dir=run_dir,
        config=settings,
        # numbers only: no code, no git remote, no output
        settings=wandb.Settings(
            console="off", disable_git=True, save_code=False, disable_job_creation=True, silent=True
        ),
    )
    offline = f"offline; send it with: wandb sync {run_dir / 'wandb' / 'offline-run-*'}"
    logger.info("Weights & Biases: %s", opened.url or offline)
    # without it, wandb ignores the steps that a resume repeats
    opened.define_metric("*", step_metric="step")
    return Tracker("wandb", lambda numbers, step: opened.log({**numbers, "step": step}), opened.finish)


def _open_trackio(_: str, name: str, _run_dir: Path, settings: dict[str, Any]) -> Tracker:
    import trackio

    opened = trackio.init(project=PROJECT, name=name, resume="allow", config=settings, embed=False)
    return Tracker("trackio", lambda numbers, step: opened.log(numbers, step=step), trackio.finish)


def _identity(run_dir: Path) -> tuple[str, str]:
    """Return the id and name in tracker.json, which is written at the first start with a tracker."""
    path = run_dir / FILE
    stored = read_object(path)
    if stored.keys() >= {"id", "name"}:
        return str(stored["id"]), str(stored["name"])
    id = uuid.uuid4().hex[:8]
    name = f"{run_dir.resolve().name}-{id}"
    write_json(path, {"id": id, "name": name})
    return id, name
