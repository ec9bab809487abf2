"""Text to speech with a trained model: normalise, split, generate codes, render audio.

Axes: S samples, M codes, D width of the GPT.

    text --normalise--> segments of at most 120 tokens --GPT, all at once--> codes --renderer--> audio
      -> joined with 200 ms of silence

Normalisation is that of the training run; it maps an Ethiopic full stop to the `.` of the published model. A
segment holds as many sentences as fit. A sentence that is too long is cut after a comma, else at a dash, else
between words, else between characters.

Codes outside the codebook, such as the GPT's own start token, are removed before rendering: an untrained
model may generate them anywhere.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from indextts.commands.sampling_options import Sampling
from indextts.errors import UserError
from indextts.models.gpt.generate import OnStep, Prompt, code_states, generate
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.search import Generated
from indextts.speech.synthesis.batch_sizing import choose_num_segments
from indextts.speech.synthesis.emotion import EMOTIONS, load_emotions, mix_emotion
from indextts.speech.synthesis.renderer import Reference, Renderer
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
class VoicePrompt:
    """A voice for the renderer (`reference`) and for the GPT: `condition` (K, D) and `emo_vec` (D,)."""

    reference: Reference
    condition: Tensor
    emo_vec: Tensor


@dataclass(frozen=True)
class Segment:
    """The generated codes of one part of a text.

    Args:
        text: normalised.
        codes: (M,), all in the codebook; empty where the model stopped at once.
        latents: (M, D), the GPT states that predict the codes.
        has_stopped: whether the model generated a stop token before the limit.
        seed: of the sampling and of the rendering.
    """

    text: str
    codes: Tensor
    latents: Tensor
    has_stopped: bool
    seed: int


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
            if reference.voice is None:
                raise UserError(
                    "--emotion needs the published codec, but the model was trained on "
                    "built-in codes; pass a recording with --emotion-voice"
                )
            table = load_emotions(emotion.models)
            emo_vec = table.blend(emotion.weights, reference.voice.style, emo_vec, emotion.alpha)
        return VoicePrompt(reference, gpt.conditioning(reference.features[None])[0], emo_vec[0])

    def synthesize(
        self, text: str, voice: VoicePrompt, sampling: Sampling, on_step: OnStep = lambda _: None
    ) -> Speech:
        """Return `text` as audio.

        Args:
            text: as typed; the result holds the normalised text.
            voice: from `read_voice`.
            sampling: settings; each segment derives its own seed from theirs.
            on_step: called with the number of codes of the segment so far.

        Raises:
            UserError: the text has no word, or is too long.
        """
        parts = self.split(text)
        segments = generate_segments(self.trained, parts, voice, sampling, self.renderer.num_codes, on_step)
        return render_segments(segments, self.renderer, voice.reference)

    def split(self, text: str) -> list[str]:
        """Return the segments of `text`, normalised; errors as for `synthesize`."""
        return split_for_model(self.trained, text)


def split_for_model(trained: TrainedModel, text: str) -> list[str]:
    """Return `text`, normalised, in segments that fit the model's positions; errors as for `split_text`."""
    return split_text(text, trained.tokenizer, min(MAX_SEGMENT_TOKENS, trained.gpt.config.max_text_tokens))


def generate_segments(
    trained: TrainedModel,
    parts: Sequence[str],
    voice: VoicePrompt,
    sampling: Sampling,
    num_codes: int,
    on_step: OnStep = lambda _: None,
) -> tuple[Segment, ...]:
    """Generate the codes of each part; codes that are not below `num_codes` are removed."""
    device = voice.emo_vec.device
    prompts = [
        Prompt(
            voice.condition,
            voice.emo_vec,
            torch.tensor(_token_ids(trained.tokenizer, part), device=device),
            (sampling.seed + number) % 2**63,
        )
        for number, part in enumerate(parts)
    ]
    size = choose_num_segments(trained.gpt, sampling) if len(parts) > 1 else 1
    segments: list[Segment] = []
    for start in range(0, len(parts), size):
        chosen = slice(start, start + size)
        generated = generate(trained.gpt, prompts[chosen], sampling, on_step)
        segments += _segments_of(trained.gpt, parts[chosen], prompts[chosen], generated, num_codes)
    return tuple(segments)


def render_segments(segments: Sequence[Segment], renderer: Renderer, reference: Reference) -> Speech:
    """Render each segment and join the audio."""
    rendered = [
        renderer.render(segment.codes, segment.latents, reference, segment.seed)
        for segment in segments
        if len(segment.codes)
    ]
    return Speech(join_segments(rendered, renderer.sample_rate_hz), renderer.sample_rate_hz, tuple(segments))


def _token_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids = tokenizer.encode_normalized(text)
    num_unknown = ids.count(tokenizer.unknown_id)
    if num_unknown:
        logger.warning("%d of %d pieces of %r are unknown and not spoken", num_unknown, len(ids), text)
    return ids


def _segments_of(
    gpt: UnifiedVoice,
    texts: Sequence[str],
    prompts: Sequence[Prompt],
    generated: Sequence[Generated],
    num_codes: int,
) -> list[Segment]:
    codes = [drop_invalid_codes(each.codes, num_codes) for each in generated]
    latents = code_states(gpt, prompts, codes)
    for text, each, row in zip(texts, generated, codes, strict=True):
        if not each.has_stopped:
            logger.warning("%r was cut off at the limit of %s", text, counted(len(each.codes), "code"))
        if not len(row):
            logger.warning("%r: the model stopped before the first code", text)
    return [
        Segment(text, row, states, each.has_stopped, prompt.seed)
        for text, row, states, each, prompt in zip(texts, codes, latents, generated, prompts, strict=True)
    ]


def drop_invalid_codes(codes: Tensor, num_codes: int) -> Tensor:
    """Return those of `codes` (M,) that are in a codebook of `num_codes`: (M',)."""
    is_valid = (codes >= 0) & (codes < num_codes)
    if not is_valid.all():
        logger.warning("Dropped %d of %d codes: not in the codebook", (~is_valid).sum(), len(codes))
    return codes[is_valid]


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
        raise UserError(f"the text {text[:40]!r} has no word to speak; write a sentence")
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


def join_segments(
    segments: Sequence[NDArray[np.float32]], sample_rate_hz: int, silence_s: float = SILENCE_S
) -> NDArray[np.float32]:
    """Concatenate segments (S,) with silence between them; empty segments are dropped."""
    silence = np.zeros(int(sample_rate_hz * silence_s), np.float32)
    parts = [part for segment in segments if len(segment) for part in (silence, segment)]
    return np.concatenate(parts[1:]) if parts else np.zeros(0, np.float32)
