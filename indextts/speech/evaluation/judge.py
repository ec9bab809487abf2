"""One clip judged: what is heard in it, whose voice it is, how fast it is, and whether it failed.

Axes: S samples.

What codes tell without being heard: loops, and how often each comes, against the data.

Axes: M codes of a clip, C semantic codes.

Character error rate as it means something for Amharic: one letter for each sound, no marks, no spaces.

Spelling is free in Amharic, words are glued and split at will, so that word error rates measure spelling.
Both sides are read out first (numbers become words), and then lose marks and spaces (`text_key`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import soxr
from numpy.typing import NDArray
from torch import Tensor

from indextts.features import campplus as speaker
from indextts.features.backend import CODES_PER_SECOND
from indextts.features.campplus import CAMPPlus
from indextts.features.vad import SAMPLE_RATE_HZ as VAD_RATE_HZ
from indextts.features.vad import find_speech
from indextts.text.ethiopic import text_key
from indextts.text.normalize import DEFAULT_OPTIONS, normalize

LONGEST_PERIOD = 2 * CODES_PER_SECOND
FEWEST_REPEATS = 4  # of a loop, the first time counted
SHORTEST_LOOP = 2 * CODES_PER_SECOND


def has_loop(codes: NDArray[np.int64]) -> bool:
    """Tell whether `codes` (M,) say the same again and again: four times or more, for 2 s or longer."""
    for period in range(1, min(LONGEST_PERIOD, len(codes) // FEWEST_REPEATS) + 1):
        repeated = longest_run(codes[period:] == codes[:-period])
        if repeated + period >= max(SHORTEST_LOOP, FEWEST_REPEATS * period):
            return True
    return False


def longest_run(is_true: NDArray[np.bool_]) -> int:
    """Return the length of the longest stretch of True in `is_true` (n,)."""
    ends = np.flatnonzero(~np.concatenate([[False], is_true, [False]]))
    return int(np.diff(ends).max() - 1)


def histogram(clips: Iterable[NDArray[np.int64]], num_codes: int) -> NDArray[np.float64]:
    """Return the share of each code in all clips together: (C,); all 0 where there are no codes."""
    counts = np.zeros(num_codes)
    for codes in clips:
        counts += np.bincount(codes, minlength=num_codes)
    shares: NDArray[np.float64] = counts / max(counts.sum(), 1.0)
    return shares


def histogram_distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the total variation distance of two histograms (C,): 0 for equal ones, 1 without overlap."""
    return float(np.abs(a - b).sum() / 2)


RESAMPLES = 1000


@dataclass(frozen=True)
class Errors:
    """Edits that turn what was heard into what was meant, of `characters` that were meant."""

    edits: int
    characters: int


def count_errors(meant: str, heard: str) -> Errors:
    """Return the errors between two texts, whatever their spelling."""
    reference, hypothesis = scored(meant), scored(heard)
    return Errors(edit_distance(reference, hypothesis), len(reference))


def scored(text: str) -> str:
    """Return the characters of `text` that are compared."""
    return text_key(normalize(text, DEFAULT_OPTIONS))


def edit_distance(a: str, b: str) -> int:
    """Return the fewest insertions, deletions and substitutions of a character between `a` and `b`.

    Row by row of the table of Wagner and Fischer 1974, "The String-to-String Correction Problem".
    """
    row = list(range(len(b) + 1))
    for i, char in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (char != other))
    return row[-1]


def error_rate(errors: Sequence[Errors]) -> float:
    """Return all edits over all characters; nothing to say is no error."""
    return sum(e.edits for e in errors) / max(sum(e.characters for e in errors), 1)


def interval(errors: Sequence[Errors], seed: int = 0) -> tuple[float, float]:
    """Return the 95 % interval of the rate, from clips drawn again with replacement (Efron's bootstrap)."""
    edits = np.array([e.edits for e in errors])
    characters = np.array([e.characters for e in errors])
    drawn = np.random.default_rng(seed).integers(len(errors), size=(RESAMPLES, len(errors)))
    rates = edits[drawn].sum(axis=1) / np.maximum(characters[drawn].sum(axis=1), 1)
    low, high = np.quantile(rates, [0.025, 0.975])
    return float(low), float(high)


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
        return speaker.style_vector(self.campplus, _resampled(samples, rate_hz, speaker.SAMPLE_RATE_HZ))

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
            likeness=speaker.speaker_similarity(prompt_style, self.style(samples, rate_hz)),
            is_silent=speech_s <= LEAST_SPEECH_SHARE * duration_s,
        )


def _resampled(samples: NDArray[np.float32], from_hz: int, to_hz: int) -> NDArray[np.float32]:
    resampled: NDArray[np.float32] = soxr.resample(samples, from_hz, to_hz)
    return resampled
