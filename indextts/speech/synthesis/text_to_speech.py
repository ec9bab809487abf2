"""Text to speech with a trained model: normalise, split, generate codes, render audio.

Axes: S samples, M codes, D width of the GPT.

    text --normalise--> segments of at most 120 tokens --GPT, all at once--> codes --renderer--> audio
      -> joined with 200 ms of silence

Normalisation is that of the training run; it maps an Ethiopic full stop to the `.` of the published model. A
segment holds as many sentences as fit. A sentence that is too long is cut after a comma, else at a dash, else
between words, else between characters.

Codes outside the codebook, such as the GPT's own start token, are removed before rendering (`segments.py`):
an untrained model may generate them anywhere.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from indextts.commands.sampling_options import Sampling
from indextts.errors import UserError
from indextts.models.gpt.generate import OnStep
from indextts.speech.synthesis.emotion import EMOTIONS, load_emotions, mix_emotion
from indextts.speech.synthesis.renderer import Reference, Renderer, Segment
from indextts.speech.synthesis.segments import Line, VoicePrompt, generate_batches
from indextts.speech.synthesis.trained_model import TrainedModel
from indextts.system.amounts import counted
from indextts.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

MAX_SEGMENT_TOKENS = 120  # as published; the position table of the model has room for 600
SILENCE_S = 0.2
MAX_CHARACTERS = 20_000  # about 25 minutes of speech

# Places to cut a text, best first.
CUTS = (
    re.compile(r"(?<=[.!?…])\s+"),
    re.compile(r"(?<=,)\s+"),
    re.compile(r"\s+-\s+|(?<=\w)-(?=\w)"),
    re.compile(r"\s+"),
    re.compile(r"(?<=.)(?=.)"),
)


@dataclass(frozen=True)
class Emotion:
    """The emotion to speak with.

    Args:
        recording: the source of the emotion; None for the recording of the voice.
        alpha: 0 for the emotion of the voice's recording, 1 for that of `recording` or of `weights`.
        weights: one per `EMOTIONS`, for the published examples; empty for none.
        models: the folder with these examples.
    """

    recording: Path | None = None
    alpha: float = 1.0
    weights: tuple[float, ...] = ()
    models: Path = Path("checkpoints")


AS_RECORDED = Emotion()


@dataclass(frozen=True)
class Speech:
    """A text as audio: `samples` (S,) in [-1, 1], empty where the model generated no codes."""

    samples: NDArray[np.float32]
    sample_rate_hz: int
    segments: tuple[Segment, ...]

    @property
    def duration_s(self) -> float:
        return len(self.samples) / self.sample_rate_hz

    @property
    def text(self) -> str:
        """Return the normalised text."""
        return " ".join(segment.text for segment in self.segments)

    @property
    def num_codes(self) -> int:
        return sum(len(segment.codes) for segment in self.segments)

    @property
    def has_stopped(self) -> bool:
        return all(segment.has_stopped for segment in self.segments)


Sound = tuple[Segment, NDArray[np.float32]]  # a segment, and its samples (S,)


class TextToSpeech:
    """A trained model and the renderer of its codes, both on one device."""

    def __init__(self, trained: TrainedModel, renderer: Renderer) -> None:
        self.trained, self.renderer = trained, renderer

    @torch.no_grad()
    def read_voice(self, recording: Path, emotion: Emotion = AS_RECORDED) -> VoicePrompt:
        """Return the voice of a recording.

        Raises:
            UserError: a recording cannot be used, or the examples for the emotion weights are missing.
        """
        gpt = self.trained.gpt
        reference = self.renderer.read_reference(recording)
        # as published, the voice's own recording is read a second time for its emotion
        other = self.renderer.emotion_features(emotion.recording or recording)
        # as published, alpha applies to the weights where there are any, else to the recording
        alpha = 1.0 if emotion.weights or emotion.recording is None else emotion.alpha
        emo_vec = mix_emotion(gpt, reference.features, other, alpha)  # (1, D)
        if emotion.weights:
            if reference.mel is None or reference.style is None:
                raise UserError(
                    "--emotion needs the published codec, but the model was trained on "
                    "built-in codes; pass a recording with --emotion-voice"
                )
            table = load_emotions(emotion.models)
            emo_vec = table.blend(emotion.weights, reference.style, emo_vec, emotion.alpha)
        condition = gpt.conditioning(reference.features[None], style=reference.style)
        return VoicePrompt(reference, condition[0], emo_vec[0])

    def line(self, text: str, voice: VoicePrompt, seed: int) -> Line:
        """Return `text` as an argument of `speak`; errors as for `split_text`."""
        return Line(tuple(self.split(text)), voice, seed)

    def speak(
        self, lines: Sequence[Line], sampling: Sampling, on_step: OnStep = lambda _: None
    ) -> Iterator[tuple[int, Speech]]:
        """Yield the index and the audio of each line, those with the longest segments first.

        Args:
            sampling: settings; the seeds are those of the lines.
            on_step: called with the number of codes of a batch so far.
        """
        pending: list[dict[int, Sound]] = [{} for _ in lines]
        num_done, num_all = 0, sum(len(line.parts) for line in lines)
        for batch in generate_batches(self.trained, lines, sampling, self.renderer.num_codes, on_step):
            sounds = self.renderer.render(
                [(segment, lines[number].voice.reference) for number, _, segment in batch]
            )
            for (number, part, segment), samples in zip(batch, sounds, strict=True):
                pending[number][part] = segment, samples
                if len(pending[number]) == len(lines[number].parts):
                    parts = [sound for _, sound in sorted(pending[number].items())]
                    yield number, _joined(parts, self.renderer.sample_rate_hz)
                    pending[number] = {}
            num_done += len(batch)
            if num_all > 1:
                logger.info("Spoke %d of %s", num_done, counted(num_all, "segment"))

    def split(self, text: str) -> list[str]:
        """Return the segments of `text`, normalised; errors as for `split_text`."""
        return split_for_model(self.trained, text)


def split_for_model(trained: TrainedModel, text: str) -> list[str]:
    """Return `text`, normalised, in segments that fit the model's positions; errors as for `split_text`."""
    return split_text(text, trained.tokenizer, min(MAX_SEGMENT_TOKENS, trained.gpt.config.max_text_tokens))


def render_lines(lines: Sequence[tuple[Sequence[Segment], Reference]], renderer: Renderer) -> list[Speech]:
    """Render the segments of all lines together, each line in its voice; return their speech."""
    sounds = iter(
        renderer.render([(segment, reference) for segments, reference in lines for segment in segments])
    )
    return [
        _joined([(segment, next(sounds)) for segment in segments], renderer.sample_rate_hz)
        for segments, _ in lines
    ]


def _joined(parts: Sequence[Sound], sample_rate_hz: int) -> Speech:
    samples = join_segments([samples for _, samples in parts], sample_rate_hz)
    return Speech(samples, sample_rate_hz, tuple(segment for segment, _ in parts))


def parse_emotion(typed: str) -> tuple[float, ...]:
    """Parse emotion weights such as `happy=0.6,calm=0.2`, one per `EMOTIONS`; empty for an empty text.

    Raises:
        UserError: the text does not have this form.
    """
    if not typed.strip():
        return ()
    weights = dict.fromkeys(EMOTIONS, 0.0)
    for part in typed.split(","):
        name, equals, number = (word.strip() for word in part.partition("="))
        try:
            value = float(number)
        except ValueError:
            equals = ""
        if name not in weights or not equals:
            raise UserError(
                f"--emotion {typed!r}: write names and weights such as happy=0.6,calm=0.2; the names are "
                f"{', '.join(EMOTIONS)}"
            )
        weights[name] = value
    return tuple(weights.values())


def split_text(text: str, tokenizer: Tokenizer, max_tokens: int = MAX_SEGMENT_TOKENS) -> list[str]:
    """Return `text`, normalised, in segments of at most `max_tokens` tokens, in order.

    Raises:
        UserError: the text has no word, or is longer than MAX_CHARACTERS.
    """
    if len(text) > MAX_CHARACTERS:
        raise UserError(
            f"the text has {counted(len(text), 'character')}, the limit is {MAX_CHARACTERS:,}; split the text"
        )
    normalized = tokenizer.normalize(text)
    if not re.search(r"\w", normalized):
        raise UserError(f"the text {text[:40]!r} contains no word to speak; write a sentence")
    return list(_segments(normalized, lambda part: len(tokenizer.encode(part)), max_tokens, CUTS))


def _segments(
    text: str, count: Callable[[str], int], max_tokens: int, cuts: Sequence[re.Pattern[str]]
) -> Iterator[str]:
    """Yield `text` cut at matches of the first of `cuts`; parts that are still too long at the next ones."""
    if count(text) <= max_tokens or not cuts:
        yield text
        return
    pending = ""
    for part, joined in _parts(text, cuts[0]):
        together = pending + joined + part if pending else part
        if count(together) <= max_tokens:
            pending = together
            continue
        if pending:
            yield pending
        pending = ""
        if count(part) <= max_tokens:
            pending = part
        else:
            yield from _segments(part, count, max_tokens, cuts[1:])
    if pending:
        yield pending


def _parts(text: str, cut: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield the text between cuts, each part with the characters of the cut before it."""
    end, joined = 0, ""
    for match in cut.finditer(text):
        yield text[end : match.start()], joined
        end, joined = match.end(), match.group()
    yield text[end:], joined


def join_segments(segments: Sequence[NDArray[np.float32]], sample_rate_hz: int) -> NDArray[np.float32]:
    """Concatenate segments (S,) with silence between them; empty segments are dropped."""
    silence = np.zeros(int(sample_rate_hz * SILENCE_S), np.float32)
    parts = [part for segment in segments if len(segment) for part in (silence, segment)]
    return np.concatenate(parts[1:]) if parts else np.zeros(0, np.float32)
