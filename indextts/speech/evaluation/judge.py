"""Automatic scoring of one clip: transcript errors, similarity of the voice and silence; the best of several.

Axes: S samples.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.features import campplus as speaker
from indextts.features.audio import load_audio
from indextts.features.campplus import CAMPPlus, CAMPPlusConfig, load_campplus
from indextts.features.published_files import find_published
from indextts.features.recognizers.recognizer import Recognizer
from indextts.features.vad import SAMPLE_RATE_HZ as VAD_RATE_HZ
from indextts.features.vad import find_speech
from indextts.speech.synthesis.acoustic import CAMPPLUS
from indextts.speech.synthesis.renderer import Segment
from indextts.speech.synthesis.text_to_speech import Speech
from indextts.speech.synthesis.trained_model import TrainedModel
from indextts.text.transcripts import Errors, WordFaults, count_errors, has_loop, word_faults

MIN_LOOP_S = 2
MIN_SPEECH_SHARE = 0.1  # a clip with less speech counts as silent


@dataclass(frozen=True)
class Judgement:
    """The scores of a clip."""

    duration_s: float  # of the complete clip
    heard: dict[str, str]  # the transcript of each recognizer, by its name
    errors: dict[str, Errors]  # of these transcripts, by the same names
    likeness: float | None  # cosine similarity to the prompt's voice; None if not measured
    is_silent: bool
    words: WordFaults | None = None  # faults that all recognizers hear; None without one


@dataclass(frozen=True)
class SpokenText:
    """A clip to score."""

    samples: NDArray[np.float32]  # (S,), may be empty
    rate_hz: int
    text: str
    prompt_style: Tensor | None  # the vector of the reference voice, from `Judge.style`
    options: NormalizerOptions = DEFAULT_OPTIONS
    prompt_text: str = ""  # of the reference voice's recording, to find its words in the clip


class Judge:
    """The scoring models, all optional."""

    def __init__(self, recognizers: Sequence[Recognizer], campplus: CAMPPlus | None) -> None:
        self.recognizers, self.campplus = recognizers, campplus

    def style(self, samples: NDArray[np.float32], rate_hz: int) -> Tensor | None:
        """Return the speaker vector of a clip (S,), None without CAM++."""
        if self.campplus is None:
            return None
        return speaker.style_vector(self.campplus, _resampled(samples, rate_hz, speaker.SAMPLE_RATE_HZ))

    def style_of(self, recording: Path) -> Tensor | None:
        """Return the speaker vector of a recording, None without CAM++."""
        rate_hz = speaker.SAMPLE_RATE_HZ
        return None if self.campplus is None else self.style(load_audio(recording, rate_hz), rate_hz)

    def judge(self, clips: Sequence[SpokenText]) -> list[Judgement]:
        """Return the scores of each clip; recognizers transcribe all of them in batches."""
        heard = {
            one.name: one.transcribe(
                [_resampled(clip.samples, clip.rate_hz, one.sample_rate_hz) for clip in clips]
            )
            for one in self.recognizers
        }
        return [
            self._judgement(clip, {name: transcripts[number] for name, transcripts in heard.items()})
            for number, clip in enumerate(clips)
        ]

    def _judgement(self, clip: SpokenText, heard: dict[str, str]) -> Judgement:
        duration_s = len(clip.samples) / clip.rate_hz
        spans = find_speech(_resampled(clip.samples, clip.rate_hz, VAD_RATE_HZ))
        errors = {name: count_errors(clip.text, text, clip.options) for name, text in heard.items()}
        faults = [word_faults(clip.text, text, clip.prompt_text, clip.options) for text in heard.values()]
        return Judgement(
            duration_s=duration_s,
            heard=heard,
            errors=errors,
            likeness=speaker.speaker_similarity(clip.prompt_style, self.style(clip.samples, clip.rate_hz)),
            is_silent=sum(span.duration_s for span in spans) <= MIN_SPEECH_SHARE * duration_s,
            words=WordFaults(*map(min, zip(*map(astuple, faults), strict=True))) if faults else None,
        )


def load_judge(asr: Sequence[str], folder: Path, models: Path, device: torch.device, language: str) -> Judge:
    """Return the judge with these recognizers, and with CAM++ where its file is there.

    Args:
        folder: of recognizers that are downloaded.

    Raises:
        UserError: a recognizer cannot be used.
    """
    recognizers: list[Recognizer] = []
    if asr:
        # it imports transformers, which takes seconds
        from indextts.features.recognizers.loading import load_recognizers

        recognizers = load_recognizers(asr, device, language, folder)
    path = find_published(models / CAMPPLUS, "funasr/campplus")
    if not path.is_file():
        return Judge(recognizers, None)
    return Judge(recognizers, load_campplus(path, CAMPPlusConfig().embedding_size, device))


def has_loops(segments: Sequence[Segment], codes_per_second: int) -> bool:
    """Return whether the codes of any segment contain a loop."""
    return any(has_loop(each.codes.cpu().numpy(), MIN_LOOP_S * codes_per_second) for each in segments)


def fault(judgement: Judgement, expected_s: float, has_failed: bool) -> float:
    """Return the fault of a clip, 0 to 1: errors, else length, and voice; 1 where it failed or is silent.

    Args:
        has_failed: it did not stop, or loops.
    """
    if has_failed or judgement.is_silent:
        return 1.0
    bounded = [each.bounded for each in judgement.errors.values()]
    wrong = (
        sum(each.edits for each in bounded) / max(1, sum(each.characters for each in bounded))
        if bounded
        else min(1.0, abs(math.log(judgement.duration_s / expected_s)))
    )
    return wrong if judgement.likeness is None else (wrong + 1 - max(0.0, judgement.likeness)) / 2


def choose_best(
    judge: Judge, trained: TrainedModel, speeches: Sequence[Speech], text: str, style: Tensor | None
) -> tuple[int, list[dict[str, Any]]]:
    """Return the number of the candidate with the smallest fault, and what was found of each.

    Without a recognizer, the median length of the candidates that did not fail is the expected one.

    Args:
        speeches: `text` with different seeds, at least one.
        style: of the voice, from `Judge.style_of`.
    """
    options, rate = trained.tokenizer.options, trained.gpt.config.of_base.codes_per_second
    judged = judge.judge([SpokenText(e.samples, e.sample_rate_hz, text, style, options) for e in speeches])
    loops = [has_loops(each.segments, rate) for each in speeches]
    failed = [not each.has_stopped or is_loop for each, is_loop in zip(speeches, loops, strict=True)]
    both = list(zip(judged, failed, strict=True))
    lengths = [one.duration_s for one, is_bad in both if not (is_bad or one.is_silent)]
    expected_s = statistics.median(lengths or [1.0])
    faults = [fault(one, expected_s, is_bad) for one, is_bad in both]
    best = faults.index(min(faults))
    records = [
        {
            "seed": each.segments[0].seed,
            "fault": round(faults[number], 3),
            "is_chosen": number == best,
            "seconds": round(each.duration_s, 3),
            "has_stopped": each.has_stopped,
            "is_loop": loops[number],
            "is_silent": judged[number].is_silent,
            "heard": judged[number].heard,
            "likeness": judged[number].likeness,
        }
        for number, each in enumerate(speeches)
    ]
    return best, records


def _resampled(samples: NDArray[np.float32], from_hz: int, to_hz: int) -> NDArray[np.float32]:
    resampled: NDArray[np.float32] = soxr.resample(samples, from_hz, to_hz)
    return resampled
