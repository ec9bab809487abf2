"""The two threads that speak: one generates the codes of many requests together, one renders their sound.

    request -> segments of its text --as places are free--> GPT -> renderer -> its pieces of sound, in order

A segment takes a place in the batch as soon as one is free, and leaves it when its codes are complete. The
last quarter of the places is for requests that have none. While a short request is being spoken, another one
holds at most an eighth of the places: it gives up the others, and those segments begin again afterwards.
Rendering is done in turn too: the request with the fewest pieces so far comes first.

The first segment of a streaming request is rendered in windows, piece by piece (`streaming.Windows`). Its
other segments follow when the first piece is being rendered, in the places that are free.

A request that is cancelled loses its places between two codes.
"""

import bisect
import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from queue import PriorityQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from indextts.commands.sampling_options import Sampling
from indextts.errors import UserError
from indextts.models.gpt.generate import CHECK_INTERVAL, Generation, Prompt
from indextts.models.gpt.search import Generated
from indextts.speech.evaluation.judge import Judge, choose_best
from indextts.speech.synthesis.segments import Line, VoicePrompt, prompt_of, segments_of
from indextts.speech.synthesis.streaming import Windows
from indextts.speech.synthesis.synthesize import SEED_STRIDE
from indextts.speech.synthesis.text_to_speech import SILENCE_S, Speech, TextToSpeech

logger = logging.getLogger(__name__)

MAX_VOICES = 64  # kept in memory


class ClosedError(Exception):
    """The engine was closed before the end of a request."""


@dataclass(eq=False)
class Request:
    """A text that is being spoken.

    Args:
        parts: the segments of the text.
        deliver: called in a thread of the engine with each piece of sound (S,), then with None at the end or
            with the error.
        is_stream: whether the client wants the sound as early as possible.
        num_candidates: of each segment, from which the best is chosen.
        choices: what was found of the candidates of each segment.
        waiting: numbers of the candidates that have had no place, counted through all segments, ascending.
        num_jobs: pieces of sound that were given to the renderer.
        num_delivered: segments whose sound was delivered.
        sounds, candidates: of segments whose turn has not come, by their number.
    """

    parts: tuple[str, ...]
    recording: Path
    deliver: Callable[[NDArray[np.float32] | Exception | None], None]
    is_stream: bool = False
    num_candidates: int = 1
    choices: list[list[dict[str, Any]]] = field(default_factory=list)
    waiting: list[int] = field(init=False)
    num_jobs: int = 0
    num_delivered: int = 0
    sounds: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    candidates: dict[int, list[Speech]] = field(default_factory=dict)
    is_cancelled: bool = False

    def __post_init__(self) -> None:
        self.waiting = list(range(len(self.parts) * self.num_candidates))


@dataclass(eq=False)
class Part:
    """A candidate of a segment; `windows` for the first segment of a stream."""

    request: Request
    candidate: int  # counted through all segments
    number: int
    line: Line
    prompt: Prompt
    windows: Windows | None
    is_rendering: bool = False


Job = tuple[int, int, Part | None, Tensor | Generated | None]  # pieces before it, number, part, its codes


@dataclass
class Engine:
    """Queue of requests and the threads that speak them."""

    tts: TextToSpeech
    sampling: Sampling
    max_batch: int
    judge: Judge | None = None  # of candidates
    _requests: list[Request] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _voices: dict[tuple[Path, int], VoicePrompt] = field(default_factory=dict)
    _jobs: PriorityQueue[Job] = field(default_factory=PriorityQueue)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _is_closed: bool = False

    def start(self) -> list[threading.Thread]:
        works = {"codes": self._generate, "sound": self._render}
        threads = [threading.Thread(target=works[name], name=name, daemon=True) for name in works]
        for thread in threads:
            thread.start()
        return threads

    def submit(self, request: Request) -> None:
        with self._changed:
            self._requests.append(request)
            self._changed.notify()

    def cancel(self, request: Request) -> None:
        with self._changed:
            request.is_cancelled = True

    def close(self) -> None:
        """End the threads, and the running requests with the error `ClosedError`."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._changed.notify()
            for request in [*self._requests]:
                self._finish(request, ClosedError())
        self._jobs.put((-1, 0, None, None))

    def _generate(self) -> None:
        """Generate codes until the engine is closed."""
        generation = Generation[Part](self.tts.trained.gpt, self.sampling)
        while True:
            taken = self._wait(generation)
            if taken is None:
                return
            try:
                self._advance(generation, taken)
            except Exception as error:
                logger.exception("Generation failed: internal error; please report it with the log")
                for request in [part.request for part in generation.keys] + taken:
                    self._finish(request, error)
                generation = Generation[Part](self.tts.trained.gpt, self.sampling)

    def _wait(self, generation: Generation[Part]) -> list[Request] | None:
        """Wait for work; return the requests that get a place, once for each place, or None at the end."""
        with self._changed:
            while not self._is_closed:
                self._requests = [each for each in self._requests if not each.is_cancelled]
                self._make_room(generation)
                held = Counter(id(part.request) for part in generation.keys)
                taken = self._take(held)
                if taken or held:
                    return taken
                self._changed.wait()
            return None

    def _make_room(self, generation: Generation[Part]) -> None:
        """Drop the segments that began last of requests with too many places."""
        held = Counter[int]()
        for part in sorted(generation.keys, key=lambda each: each.candidate):
            held[id(part.request)] += 1
            if held[id(part.request)] > self._most_places(part.request):
                generation.drop([part])
                bisect.insort(part.request.waiting, part.candidate)

    def _most_places(self, request: Request) -> int:
        short = [
            each for each in self._requests if len(each.parts) * each.num_candidates <= self.max_batch // 4
        ]
        return max(1, self.max_batch // 8) if short and request not in short else self.max_batch

    def _take(self, held: Counter[int]) -> list[Request]:
        """Return the requests that get the free places, those with the fewest places first.

        Args:
            held: places of each request, by its id.
        """
        taken: list[Request] = []
        while (num_free := self.max_batch - held.total()) > 0:
            ready = [
                each
                for each in self._requests
                if taken.count(each) < len(each.waiting)
                and held[id(each)] < self._most_places(each)
                and (num_free > self.max_batch // 4 or not held[id(each)])
                # the first piece of a stream comes sooner alone
                and not (each.is_stream and held[id(each)] and not each.num_jobs)
            ]
            if not ready:
                break
            taken.append(min(ready, key=lambda each: held[id(each)]))
            held[id(taken[-1])] += 1
        return taken

    def _advance(self, generation: Generation[Part], taken: list[Request]) -> None:
        """Let the next segments of the requests join, and generate the next code of all."""
        generation.drop([part for part in generation.keys if part.request.is_cancelled])
        joining: list[tuple[Part, Prompt]] = []
        for request in taken:
            candidate = request.waiting.pop(0)
            number = candidate // request.num_candidates
            try:
                seed = (self.sampling.seed + candidate % request.num_candidates * SEED_STRIDE) % 2**63
                line = Line(request.parts, self._voice(request.recording), seed)
            except UserError as error:
                self._finish(request, error)
                continue
            prompt, windows = prompt_of(self.tts.trained.tokenizer, line, number), None
            if request.is_stream and number == 0:
                windows = Windows(self.tts, line.voice.reference, prompt)
            joining.append((Part(request, candidate, number, line, prompt, windows), prompt))
        if joining:
            generation.join(joining)
        if not generation.keys:
            return
        for part, found in generation.step():
            self._put(part, found)
        if generation.num_steps % CHECK_INTERVAL == 0:
            for part in generation.keys:
                if part.windows and not part.is_rendering:
                    codes = generation.settled(part)
                    if len(codes) >= part.windows.next_end:
                        self._put(part, codes[codes < self.tts.renderer.num_codes])

    def _put(self, part: Part, codes: Tensor | Generated) -> None:
        """Give codes to the renderer: those so far, or the complete ones."""
        part.is_rendering = True
        self._jobs.put((part.request.num_jobs, next(self._numbers), part, codes))
        part.request.num_jobs += 1

    def _render(self) -> None:
        """Render codes until the engine is closed."""
        while True:
            _, _, part, codes = self._jobs.get()
            if part is None or codes is None:
                return
            if part.request.is_cancelled:
                continue
            try:
                self._speak(part, codes)
            except Exception as error:
                logger.exception("Rendering failed: internal error; please report it with the log")
                self._finish(part.request, error)

    def _speak(self, part: Part, codes: Tensor | Generated) -> None:
        request, windows = part.request, part.windows
        if isinstance(codes, Tensor):
            assert windows is not None
            if len(sound := windows.play(codes, is_end=False)):
                request.deliver(sound)
            part.is_rendering = False
            return
        gpt, num_codes = self.tts.trained.gpt, self.tts.renderer.num_codes
        text = part.line.parts[part.number]
        [segment] = segments_of(gpt, [text], [part.prompt], [codes], num_codes)
        if windows:
            sound = windows.play(segment.codes.cpu(), is_end=True)
        else:
            [sound] = self.tts.renderer.render([(segment, part.line.voice.reference)])
        if request.num_candidates > 1:
            found = request.candidates.setdefault(part.number, [])
            found.append(Speech(sound, self.tts.renderer.sample_rate_hz, (segment,)))
            if len(found) < request.num_candidates:
                return
            sound = self._best(part, request.candidates.pop(part.number))
        request.sounds[part.number] = sound
        while request.num_delivered in request.sounds:  # in the order of the text
            sound = request.sounds.pop(request.num_delivered)
            if request.num_delivered and len(sound):
                silence = np.zeros(int(self.tts.renderer.sample_rate_hz * SILENCE_S), np.float32)
                sound = np.concatenate([silence, sound])
            if len(sound) and not request.is_cancelled:
                request.deliver(sound)
            request.num_delivered += 1
        if request.num_delivered == len(request.parts):
            self._finish(request, None)

    def _best(self, part: Part, found: list[Speech]) -> NDArray[np.float32]:
        """Return the sound of the best candidate of a segment, and note why."""
        assert self.judge is not None
        found.sort(key=lambda each: each.segments[0].seed)
        style, text = self.judge.style_of(part.request.recording), part.line.parts[part.number]
        best, records = choose_best(self.judge, self.tts.trained, found, text, style)
        part.request.choices.append(records)
        return found[best].samples

    def _finish(self, request: Request, end: Exception | None) -> None:
        with self._changed:
            was_cancelled, request.is_cancelled = request.is_cancelled, True
            self._requests = [each for each in self._requests if each is not request]
        if not was_cancelled:
            request.deliver(end)

    def _voice(self, recording: Path) -> VoicePrompt:
        """Return the voice of a recording, kept until the file changes."""
        try:
            key = (recording, recording.stat().st_mtime_ns)
        except OSError as error:
            raise UserError(f"voice {recording.stem}: {error.strerror}; check the recording") from None
        if key not in self._voices:
            if len(self._voices) >= MAX_VOICES:
                del self._voices[next(iter(self._voices))]
            self._voices[key] = self.tts.read_voice(recording)
        return self._voices[key]
