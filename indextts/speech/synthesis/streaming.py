"""Speech in pieces while it is generated, so that the first sound comes long before the end of a sentence.

Axes: S samples, M codes.

Codes that no further step can change are rendered in windows:

    codes      0 ........ 25 ... 40 ................. 90 ...    (of IndexTTS-2.0; 2.5 has half as many)
    window 1   [ played        fade|tail)
    window 2   [ context      |fade   played           fade|tail)

A window begins with codes that were played before, as context, and its tail is not played, because its sound
would change with the codes that follow. Between two windows the sound is crossfaded. Windows begin at a
multiple of `CODES_PER_BLOCK` codes, where the published model has a whole number of mel frames, and get
the noise that these frames have in the complete speech. The first window is short; each later one is twice as
long as the one before, up to a limit, so that the context costs little.

The codes are those of the complete speech. The sound differs a little, because flow matching and length
regulator see a window instead of the complete speech.
"""

from collections import deque
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from indextts.commands.sampling_options import Sampling
from indextts.models.gpt.generate import CHECK_INTERVAL, Generation, OnStep, Prompt
from indextts.speech.synthesis.renderer import Reference, Segment
from indextts.speech.synthesis.s2mel import CODES_PER_BLOCK
from indextts.speech.synthesis.segments import Line, prompt_of, segments_of, states_of
from indextts.speech.synthesis.text_to_speech import SILENCE_S, Speech, TextToSpeech

# Lengths in seconds; the number of codes depends on the base.
FIRST_S = 0.8  # of the first window
MOST_S = 8.0  # added by a later window
CONTEXT_S = 0.5
FADE_S = 0.1

MAX_TOGETHER = 8  # segments; with more, the second one comes late


class SpeechStream:
    """The sound of a line, to iterate over once: pieces (S,) at the rate of the renderer, when ready.

    The first part is rendered in windows; the others are generated together from its first window on, and
    each is one piece.
    """

    def __init__(
        self, tts: TextToSpeech, line: Line, sampling: Sampling, on_step: OnStep = lambda _: None
    ) -> None:
        """Prepare the stream; the work is done during the iteration.

        Args:
            line: from `TextToSpeech.line`.
            sampling: settings; the seed is that of the line.
            on_step: called with the number of steps so far.
        """
        self._tts, self._line, self._sampling, self._on_step = tts, line, sampling, on_step
        self._pieces: list[NDArray[np.float32]] = []
        self._segments: list[Segment] = []

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        gpt, renderer, line = self._tts.trained.gpt, self._tts.renderer, self._line
        num_codes = renderer.num_codes
        prompts = [prompt_of(self._tts.trained.tokenizer, line, part) for part in range(len(line.parts))]
        waiting, found = deque(enumerate(prompts)), dict[int, Segment]()
        windows = Windows(self._tts, line.voice.reference, prompts[0])
        generation = Generation[int](gpt, self._sampling)
        generation.join([waiting.popleft()])
        while len(self._segments) < len(prompts):
            free = MAX_TOGETHER - len(generation.keys)
            if waiting and free and (self._pieces or not generation.keys):
                generation.join([waiting.popleft() for _ in range(min(free, len(waiting)))])
            for part, each in generation.step():
                [found[part]] = segments_of(gpt, [line.parts[part]], [prompts[part]], [each], num_codes)
            self._on_step(generation.num_steps)
            if 0 in generation.keys and generation.num_steps % CHECK_INTERVAL == 0:
                codes = generation.settled(0)
                if len(codes) >= windows.next_end:
                    yield from self._taken(windows.play(codes[codes < num_codes], is_end=False))
            while (part := len(self._segments)) in found:
                self._segments.append(segment := found.pop(part))
                if part == 0:
                    sound = windows.play(segment.codes.cpu(), is_end=True)
                else:
                    [sound] = renderer.render([(segment, line.voice.reference)])
                yield from self._taken(sound, is_new=part > 0)

    def _taken(self, piece: NDArray[np.float32], is_new: bool = False) -> Iterator[NDArray[np.float32]]:
        """Keep and yield a piece unless it is empty; silence comes before a new segment."""
        if len(piece):
            num_silent = int(self._tts.renderer.sample_rate_hz * SILENCE_S) if is_new and self._pieces else 0
            self._pieces.append(np.pad(piece, (num_silent, 0)))
            yield self._pieces[-1]

    @property
    def speech(self) -> Speech:
        """Return the complete speech; after the iteration."""
        assert len(self._segments) == len(self._line.parts)
        samples = np.concatenate([np.zeros(0, np.float32), *self._pieces])
        return Speech(samples, self._tts.renderer.sample_rate_hz, tuple(self._segments))


class Windows:
    """Renders the windows of one segment.

    Attributes:
        next_end: number of codes that the next window needs.
    """

    def __init__(self, tts: TextToSpeech, reference: Reference, prompt: Prompt) -> None:
        self._tts, self._reference, self._prompt = tts, reference, prompt
        self.next_end = self._codes(FIRST_S)
        self._played = 0  # codes, up to the crossfade
        self._fading = np.zeros(0, np.float32)

    def play(self, codes: Tensor, is_end: bool) -> NDArray[np.float32]:
        """Return the next piece of sound (S,).

        Args:
            codes: (M,), all that are known.
            is_end: whether there are no more.
        """
        fade_codes = self._codes(FADE_S)
        start = max(0, self._played - self._codes(CONTEXT_S)) // CODES_PER_BLOCK * CODES_PER_BLOCK
        end = len(codes) if is_end else len(codes) - self._codes(self._tts.renderer.tail_s) - fade_codes
        if end <= self._played:
            return np.zeros(0, np.float32)
        [latents] = states_of(self._tts.trained.gpt, [self._prompt], [codes])
        window = Segment("", codes[start:], latents[start:], True, self._prompt.seed, start)
        [samples] = self._tts.renderer.render([(window, self._reference)])
        count = self._tts.renderer.num_samples
        until = len(samples) if is_end else count(end - start)
        piece = samples[count(self._played - start) : until].copy()
        fade = min(len(self._fading), len(piece))
        rising = np.linspace(0, 1, fade, dtype=np.float32)
        piece[:fade] = rising * piece[:fade] + (1 - rising) * self._fading[:fade]
        if not is_end:
            self._fading = samples[until : count(end + fade_codes - start)]
        self._played = end
        self.next_end = len(codes) + min(self._codes(MOST_S), len(codes))
        return piece

    def _codes(self, duration_s: float) -> int:
        return round(duration_s * self._tts.trained.gpt.config.of_base.codes_per_second)
