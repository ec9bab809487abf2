"""Transcripts of the clips by recognizers, stored one by one: a killed run resumes at any clip.

    OUTPUT_DIR/measured/heard-NAME.jsonl    {"audio": sha256, "result": {"heard": "...", "score": -0.21}}

`score` is the log-probability of the best path of a CTC model, in nats per letter of its text: how sure the
model is; null for other models and clips without a text. The recognizer is part of the file's version.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indextts.data.progress import Progress
from indextts.data.stored_results import StoredResults
from indextts.data.transcribing.cutting import AUDIO_NAME, CutClip
from indextts.features.audio import load_audio

if TYPE_CHECKING:  # it imports torch
    from indextts.features.recognizers.recognizer import Recognizer

VERSION = 1  # raise it when the stored results change
NUM_READERS = 4
Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Reading:
    """Transcript of a clip by a recognizer, and its confidence in nats per letter if it has one."""

    text: str
    score: float | None


def hear(
    clips: Sequence[CutClip], recognizers: Sequence["Recognizer"], folder: Path, clips_at_once: int
) -> list[list[Reading]]:
    """Return what each recognizer hears in each clip: a list of readings for each clip.

    Args:
        folder: the output folder, with the clips and the stored results.
        clips_at_once: number of clips in a group; a kill loses the work on one group.

    Raises:
        UserError: the results cannot be stored.
    """
    with ExitStack() as stack:
        stores = [
            stack.enter_context(StoredResults(folder, f"heard-{each.name}", f"{VERSION} {each.identity}"))
            for each in recognizers
        ]
        todo = {
            clip.sha256: clip for clip in clips if any(clip.sha256 not in store.known for store in stores)
        }
        progress = Progress("Transcribing", len(todo), sum(clip.duration for clip in todo.values()))
        for group, samples in _loaded(list(todo.values()), recognizers, folder, clips_at_once):
            for recognizer, store in zip(recognizers, stores, strict=True):
                new = [place for place, clip in enumerate(group) if clip.sha256 not in store.known]
                found = _read(recognizer, [samples[recognizer.sample_rate_hz][place] for place in new])
                for place, result in zip(new, found, strict=True):
                    store.add(group[place].sha256, result)
            for clip in group:
                progress.advance(clip.duration)
        return [[_reading(store.known[clip.sha256]) for store in stores] for clip in clips]


def _loaded(
    clips: Sequence[CutClip], recognizers: Sequence["Recognizer"], folder: Path, clips_at_once: int
) -> Iterator[tuple[Sequence[CutClip], dict[int, list[Samples]]]]:
    """Yield groups of clips with their samples by sample rate; the next group is read meanwhile."""
    rates = sorted({recognizer.sample_rate_hz for recognizer in recognizers})
    groups = [clips[first : first + clips_at_once] for first in range(0, len(clips), clips_at_once)]
    with ThreadPoolExecutor(NUM_READERS) as readers:

        def start(group: Sequence[CutClip]) -> dict[int, list[Future[Samples]]]:
            paths = [folder / AUDIO_NAME / clip.audio for clip in group]
            return {rate: [readers.submit(load_audio, path, rate) for path in paths] for rate in rates}

        loading = deque(map(start, groups[:1]))
        for place, group in enumerate(groups):
            loading.extend(map(start, groups[place + 1 : place + 2]))
            yield (
                group,
                {rate: [each.result() for each in found] for rate, found in loading.popleft().items()},
            )


def _read(recognizer: "Recognizer", samples: Sequence[Samples]) -> Iterator[dict[str, object]]:
    from indextts.features.recognizers.ctc import CtcRecognizer

    if not isinstance(recognizer, CtcRecognizer):
        for text in recognizer.transcribe(samples):
            yield {"heard": text, "score": None}
        return
    for scores in recognizer.log_probabilities(samples):
        text = recognizer.text_of(scores)
        num_letters = sum(char.isalnum() for char in text)
        best = float(scores.max(dim=-1).values.sum()) / num_letters if num_letters else None
        yield {"heard": text, "score": None if best is None else round(best, 4)}


def _reading(result: Mapping[str, Any]) -> Reading:
    return Reading(result["heard"], result["score"])
