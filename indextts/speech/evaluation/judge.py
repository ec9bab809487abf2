"""One clip judged: what is heard in it, whose voice it is, how fast it is, and whether it failed.

Axes: S samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import soxr
from numpy.typing import NDArray
from torch import Tensor

from indextts.features.campplus import CAMPPlus
from indextts.features.vad import SAMPLE_RATE_HZ as VAD_RATE_HZ
from indextts.features.vad import find_speech
from indextts.speech.evaluation import likeness
from indextts.speech.evaluation.characters import Errors, count_errors

if TYPE_CHECKING:  # it imports transformers, which takes seconds
    from indextts.features.asr import Recognizer

LEAST_SPEECH_SHARE = 0.1  # of a clip; with less of it, the clip counts as silent


@dataclass(frozen=True)
class Judgement:
    """What is said of a clip.

    Args:
        duration_s: of the whole clip.
        heard: by each recognizer, under its name.
        errors: of what was heard against the text, under the same names.
        likeness: to the prompt's voice; None where that is not measured.
        is_silent: whether there is hardly any speech in it.
    """

    duration_s: float
    heard: dict[str, str]
    errors: dict[str, Errors]
    likeness: float | None
    is_silent: bool


class Judge:
    """The models that judge; each may be left out."""

    def __init__(self, recognizers: "Sequence[Recognizer]", campplus: CAMPPlus | None) -> None:
        self.recognizers, self.campplus = recognizers, campplus

    def style(self, samples: NDArray[np.float32], rate_hz: int) -> Tensor | None:
        """Return the voice of a clip (S,), to compare others with."""
        if self.campplus is None:
            return None
        return likeness.style_of(self.campplus, _resampled(samples, rate_hz, likeness.SAMPLE_RATE_HZ))

    def judge(
        self, samples: NDArray[np.float32], rate_hz: int, text: str, prompt_style: Tensor | None
    ) -> Judgement:
        """Return what is said of a clip.

        Args:
            samples: (S,); none for a model that said nothing.
            rate_hz: of the samples.
            text: what it should say.
            prompt_style: of the voice it should have, from `style`.
        """
        duration_s = len(samples) / rate_hz
        heard = {
            one.name: one.transcribe(_resampled(samples, rate_hz, one.sample_rate_hz))
            for one in self.recognizers
        }
        speech_s = sum(span.duration_s for span in find_speech(_resampled(samples, rate_hz, VAD_RATE_HZ)))
        return Judgement(
            duration_s=duration_s,
            heard=heard,
            errors={name: count_errors(text, transcript) for name, transcript in heard.items()},
            likeness=likeness.likeness(prompt_style, self.style(samples, rate_hz)),
            is_silent=speech_s <= LEAST_SPEECH_SHARE * duration_s,
        )


def _resampled(samples: NDArray[np.float32], from_hz: int, to_hz: int) -> NDArray[np.float32]:
    resampled: NDArray[np.float32] = soxr.resample(samples, from_hz, to_hz)
    return resampled
