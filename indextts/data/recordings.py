"""The audio files of a manifest: all checked before anything is made from them."""

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from indextts.data.progress import Progress
from indextts.errors import UserError
from indextts.features.audio import audio_duration_s
from indextts.manifest import Utterance

logger = logging.getLogger(__name__)

MAX_PROBLEMS_NAMED = 20
DURATION_TOLERANCE_S = 0.2  # rounding and re-encoding stay below; a cut-off file does not


def with_true_durations(manifest: Path, utterances: Sequence[tuple[int, Utterance]]) -> list[Utterance]:
    """Return the utterances with the durations of their files.

    Args:
        manifest: for messages.
        utterances: with their line numbers.

    Raises:
        UserError: recordings are missing or cannot be read; the first ones are named, the rest counted.
    """
    problems = []
    measured = []
    num_off = 0
    for (number, utterance), duration in zip(utterances, durations_s(utterances), strict=True):
        if isinstance(duration, UserError):
            problems.append(f"{manifest}:{number}: {duration}")
            continue
        num_off += abs(duration - utterance.duration_s) > DURATION_TOLERANCE_S
        measured.append(replace(utterance, duration_s=duration))
    if problems:
        raise UserError(_listed(manifest, problems, len(utterances)))
    if num_off:
        logger.warning(
            "%s: %d of %d durations are off by more than %s s; those of the files are used",
            manifest,
            num_off,
            len(utterances),
            DURATION_TOLERANCE_S,
        )
    return measured


def durations_s(utterances: Sequence[tuple[int, Utterance]]) -> Iterator[float | UserError]:
    """Yield the duration of each recording, or what is wrong with it, in order."""
    progress = Progress("Checking recordings", len(utterances))
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # mostly waiting for the disk
        for duration in pool.map(_duration_s, (utterance.audio for _, utterance in utterances)):
            progress.advance()
            yield duration


def _duration_s(path: Path) -> float | UserError:
    try:
        return audio_duration_s(path)
    except UserError as error:
        return error


def _listed(manifest: Path, problems: list[str], num_utterances: int) -> str:
    """Return one message of several lines: twenty files in one line cannot be read."""
    rest = len(problems) - MAX_PROBLEMS_NAMED
    return "\n  ".join(
        [
            f"{manifest}: {len(problems)} of {num_utterances} recordings cannot be used; nothing was done:",
            *problems[:MAX_PROBLEMS_NAMED],
            *([f"and {rest} more"] if rest > 0 else []),
        ]
    )
