"""The thread that speaks: takes the segments that wait, of several requests, as one batch.

    request -> segments of its text --round by round, the next ones of each request--> GPT -> renderer
      -> its pieces of sound, in order

A streaming request that is alone is spoken segment by segment, each piece of sound delivered when it is ready
(`SpeechStream`). With others it shares their batches, which is faster for all, and gets its segments whole.

A request that is cancelled loses its place at once; a batch without any request left is abandoned between two
codes.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indextts.commands.sampling_options import Sampling
from indextts.errors import UserError
from indextts.speech.synthesis.segments import Line, VoicePrompt
from indextts.speech.synthesis.streaming import SpeechStream
from indextts.speech.synthesis.text_to_speech import SILENCE_S, TextToSpeech

logger = logging.getLogger(__name__)

MAX_VOICES = 64  # kept in memory


class AbandonedError(Exception):
    """Nobody waits for the batch any more."""


@dataclass
class Request:
    """A text that is being spoken.

    Args:
        parts: the segments of the text.
        deliver: called in the engine's thread with each piece of sound (S,), then with None at the end or
            with the error.
        is_stream: whether the client wants the sound as early as possible.
        num_taken: segments that were generated or are in the current batch.
    """

    parts: tuple[str, ...]
    recording: Path
    deliver: Callable[[NDArray[np.float32] | Exception | None], None]
    is_stream: bool = False
    num_taken: int = 0
    is_cancelled: bool = False


@dataclass
class Engine:
    """Queue of requests and the thread that speaks them."""

    tts: TextToSpeech
    sampling: Sampling
    max_batch: int
    _requests: deque[Request] = field(default_factory=deque)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _voices: dict[tuple[Path, int], VoicePrompt] = field(default_factory=dict)
    _is_closed: bool = False

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=self._work, name="speech", daemon=True)
        thread.start()
        return thread

    def submit(self, request: Request) -> None:
        with self._changed:
            self._requests.append(request)
            self._changed.notify()

    def cancel(self, request: Request) -> None:
        with self._changed:
            request.is_cancelled = True

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _work(self) -> None:
        while True:
            batch = self._next_batch()
            if batch is None:
                return
            try:
                self._speak(batch)
            except AbandonedError:
                logger.info("Abandoned a batch of %d segments: its clients are gone", len(batch))
            except Exception as error:
                if not isinstance(error, UserError):
                    logger.exception("A batch failed: internal error; please report it with the log")
                for request in {id(request): request for request, _ in batch}.values():
                    self._finish(request, error)

    def _next_batch(self) -> list[tuple[Request, int]] | None:
        """Wait for requests; return the next segments of each in turn, or None at the end."""
        with self._changed:
            while True:
                self._requests = deque(each for each in self._requests if not each.is_cancelled)
                if self._is_closed:
                    return None
                if self._requests:
                    break
                self._changed.wait()
            batch: list[tuple[Request, int]] = []
            waiting = deque(self._requests)
            size = 1 if len(waiting) == 1 and waiting[0].is_stream else self.max_batch
            while waiting and len(batch) < size:
                request = waiting.popleft()
                batch.append((request, request.num_taken))
                request.num_taken += 1
                if request.num_taken < len(request.parts):
                    waiting.append(request)
            self._requests.rotate(-len({id(request) for request, _ in batch}))  # the others are next
            return batch

    def _speak(self, batch: list[tuple[Request, int]]) -> None:
        lines, spoken = [], []
        for request, part in batch:
            try:
                voice = self._voice(request.recording)
            except UserError as error:
                self._finish(request, error)
                continue
            lines.append(Line((request.parts[part],), voice, (self.sampling.seed + part) % 2**63))
            spoken.append((request, part))
        if len(batch) == 1 and batch[0][0].is_stream and lines:
            self._stream(*batch[0], lines[0])
            return
        speeches = dict(self.tts.speak(lines, self.sampling, lambda _: self._require_clients(spoken)))
        for number, (request, part) in enumerate(spoken):
            if request.is_cancelled:
                continue
            if len(speeches[number].samples):
                request.deliver(self._after_silence(speeches[number].samples, part))
            if part == len(request.parts) - 1:
                self._finish(request, None)

    def _stream(self, request: Request, part: int, line: Line) -> None:
        """Speak a segment, and deliver each piece of its sound when it is ready."""
        stream = SpeechStream(
            self.tts, line, self.sampling, lambda _: self._require_clients([(request, part)])
        )
        for number, piece in enumerate(stream):
            request.deliver(piece if number else self._after_silence(piece, part))
        if part == len(request.parts) - 1:
            self._finish(request, None)

    def _after_silence(self, sound: NDArray[np.float32], part: int) -> NDArray[np.float32]:
        """Return a sound with the silence between two segments before it."""
        silence = np.zeros(int(self.tts.renderer.sample_rate_hz * SILENCE_S) if part else 0, np.float32)
        return np.concatenate([silence, sound])

    def _require_clients(self, batch: list[tuple[Request, int]]) -> None:
        if all(request.is_cancelled for request, _ in batch):
            raise AbandonedError

    def _finish(self, request: Request, end: Exception | None) -> None:
        with self._changed:
            was_cancelled, request.is_cancelled = request.is_cancelled, True
            self._requests = deque(each for each in self._requests if each is not request)
        if not was_cancelled:
            request.deliver(end)

    def _voice(self, recording: Path) -> VoicePrompt:
        """Return the voice of a recording, kept until the file changes."""
        try:
            key = (recording, recording.stat().st_mtime_ns)
        except OSError as error:
            raise UserError(f"voice {recording.stem}: {error.strerror}") from None
        if key not in self._voices:
            if len(self._voices) >= MAX_VOICES:
                del self._voices[next(iter(self._voices))]
            self._voices[key] = self.tts.read_voice(recording)
        return self._voices[key]
