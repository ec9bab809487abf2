"""Automatic scoring of one clip: transcript errors, similarity of the voice and silence.

Axes: S samples.
"""

from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import soxr
from numpy.typing import NDArray
from torch import Tensor

from indextts.commands.normalizer_options import DEFAULT_OPTIONS, NormalizerOptions
from indextts.features import campplus as speaker
from indextts.features.campplus import CAMPPlus
from indextts.features.recognizers.recognizer import Recognizer
from indextts.features.vad import SAMPLE_RATE_HZ as VAD_RATE_HZ
from indextts.features.vad import find_speech
from indextts.text.transcripts import Errors, WordFaults, count_errors, word_faults

MIN_SPEECH_SHARE = 0.1  # a clip with less speech counts as silent


@dataclass(frozen=True)
class Judgement:
    """The scores of a clip.

    Args:
        duration_s: of the complete clip.
        heard: the transcript of each recognizer, by its name.
        errors: of these transcripts, by the same names.
        likeness: cosine similarity to the prompt's voice; None if not measured.
        is_silent: whether the clip contains almost no speech.
        words: faults that all recognizers hear; None without one.
    """

    duration_s: float
    heard: dict[str, str]
    errors: dict[str, Errors]
    likeness: float | None
    is_silent: bool
    words: WordFaults | None = None


@dataclass(frozen=True)
class SpokenText:
    """A clip to score.

    Args:
        samples: (S,), may be empty.
        rate_hz: of the samples.
        text: the reference text.
        prompt_style: the vector of the reference voice, from `Judge.style`.
        options: of the normaliser that reads the text.
        prompt_text: of the reference voice's recording, to find its words in the clip.
    """

    samples: NDArray[np.float32]
    rate_hz: int
    text: str
    prompt_style: Tensor | None
    options: NormalizerOptions = DEFAULT_OPTIONS
    prompt_text: str = ""


class Judge:
    """The scoring models, all optional."""

    def __init__(self, recognizers: Sequence[Recognizer], campplus: CAMPPlus | None) -> None:
        self.recognizers, self.campplus = recognizers, campplus

    def style(self, samples: NDArray[np.float32], rate_hz: int) -> Tensor | None:
        """Return the speaker vector of a clip (S,), None without CAM++."""
        if self.campplus is None:
            return None
        return speaker.style_vector(self.campplus, _resampled(samples, rate_hz, speaker.SAMPLE_RATE_HZ))

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


def _resampled(samples: NDArray[np.float32], from_hz: int, to_hz: int) -> NDArray[np.float32]:
    resampled: NDArray[np.float32] = soxr.resample(samples, from_hz, to_hz)
    return resampled
