"""A text in a voice: normalised as in training, cut, turned into codes, and these into sound.

Axes: S samples, M codes, D width of the GPT.

    text -> segments of at most 120 tokens -> codes, one segment after the other -> sound
      -> joined with 200 ms of silence

A code that is none of the codec's never reaches what makes the sound: the GPT's own start token, which an
untrained model may say in the middle, is left out.

Long texts in pieces that the GPT can speak, and the sound of the pieces as one.

    text --normalise--> marks of the published model (an Ethiopic full stop is a `.` now)
      -> sentences, as many in a segment as have room; a sentence too long for one is cut after a comma, else
         at a dash, else between words, else between characters

Axes: S samples.
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
from indextts.models.gpt.generate import OnStep, Prompt, code_states, generate, limit_of
from indextts.speech.synthesis.emotion import EMOTIONS, heard_emotion, load_emotions
from indextts.speech.synthesis.sound import Heard, Sound
from indextts.speech.synthesis.trained import TrainedModel
from indextts.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Emotion:
    """How to speak, where not as the voice's own recording does.

    Args:
        recording: whose emotion is taken; None for the voice's.
        alpha: 0 for the voice's own, 1 for that of the recording or of the weights.
        weights: one per `EMOTIONS`, of the published examples; empty for none.
        models: the folder that has these.
    """

    recording: Path | None = None
    alpha: float = 1.0
    weights: tuple[float, ...] = ()
    models: Path = Path("checkpoints")


AS_RECORDED = Emotion()


@dataclass(frozen=True)
class SpeakingVoice:
    """A voice, ready to speak: what the sound needs, `condition` (K, D) and `emo_vec` (D,) for the GPT."""

    heard: Heard
    condition: Tensor
    emo_vec: Tensor


@dataclass(frozen=True)
class Segment:
    """A part of a text as it was spoken.

    Args:
        text: normalised.
        codes: (M,), all below the codec's number; none where the model stopped at once.
        latents: (M, D), the GPT's states that predict them.
        has_stopped: whether the model itself ended; otherwise the limit did.
        seed: of its draws, and of its sound.
    """

    text: str
    codes: Tensor
    latents: Tensor
    has_stopped: bool
    seed: int


@dataclass(frozen=True)
class Spoken:
    """A text as sound: `samples` (S,) in [-1, 1]; none where the model said nothing."""

    samples: NDArray[np.float32]
    sample_rate_hz: int
    segments: tuple[Segment, ...]

    @property
    def duration_s(self) -> float:
        return len(self.samples) / self.sample_rate_hz

    @property
    def text(self) -> str:
        """Return the text as the model got it."""
        return " ".join(segment.text for segment in self.segments)

    @property
    def num_codes(self) -> int:
        return sum(len(segment.codes) for segment in self.segments)

    @property
    def has_stopped(self) -> bool:
        return all(segment.has_stopped for segment in self.segments)


class Speaker:
    """A trained model with what makes sound of its codes, both on one device."""

    def __init__(self, trained: TrainedModel, sound: Sound) -> None:
        self.trained, self.sound = trained, sound

    @torch.no_grad()
    def voice(self, recording: Path, emotion: Emotion = AS_RECORDED) -> SpeakingVoice:
        """Return the voice of a recording.

        Raises:
            UserError: a recording cannot be used, or the emotions by weight are not there.
        """
        gpt = self.trained.gpt
        heard = self.sound.hear(recording)
        # also the voice's own recording is heard once more for its emotion: as published
        other = self.sound.emotion_features(emotion.recording or recording)
        # without weights alpha leads to the recording, with them to what they give: as published
        alpha = 1.0 if emotion.weights or emotion.recording is None else emotion.alpha
        emo_vec = heard_emotion(gpt, heard.features, other, alpha)  # (1, D)
        if emotion.weights:
            if heard.voice is None:
                raise UserError(
                    "--emotion: its examples are for the published model; with the builtin codes give a "
                    "recording with --emotion-voice"
                )
            table = load_emotions(emotion.models)
            emo_vec = table.blend(emotion.weights, heard.voice.style, emo_vec, emotion.alpha)
        return SpeakingVoice(heard, gpt.conditioning(heard.features[None])[0], emo_vec[0])

    def say(
        self, text: str, voice: SpeakingVoice, sampling: Sampling, on_step: OnStep = lambda _: None
    ) -> Spoken:
        """Return `text` as sound.

        Args:
            text: as somebody writes it; what it is normalised to stands in the result.
            voice: of this speaker.
            sampling: settings; each segment draws with a seed of its own that follows from theirs.
            on_step: called with the number of codes of the segment so far.

        Raises:
            UserError: nothing of the text can be spoken, or it is endless.
        """
        parts = self.split(text)
        segments = say_codes(self.trained, parts, voice, sampling, self.sound.num_codes, on_step)
        return sound_of(segments, self.sound, voice.heard)

    def split(self, text: str) -> list[str]:
        """Return `text`, normalised, in the segments that are spoken one after the other; errors as `say`."""
        return split_for(self.trained, text)


def split_for(trained: TrainedModel, text: str) -> list[str]:
    """Return `text`, normalised, in segments that a model has positions for; errors as `Speaker.say`."""
    return split_text(text, trained.tokenizer, min(MAX_SEGMENT_TOKENS, trained.gpt.config.max_text_tokens))


def say_codes(
    trained: TrainedModel,
    parts: Sequence[str],
    voice: SpeakingVoice,
    sampling: Sampling,
    num_codes: int,
    on_step: OnStep = lambda _: None,
) -> tuple[Segment, ...]:
    """Return what the model says of each part, not yet as sound; only `num_codes` codes can become sound."""
    return tuple(
        _say_part(
            trained,
            part,
            voice,
            sampling.model_copy(update={"seed": (sampling.seed + number) % 2**63}),
            num_codes,
            on_step,
        )
        for number, part in enumerate(parts)
    )


def sound_of(segments: Sequence[Segment], sound: Sound, heard: Heard) -> Spoken:
    """Return segments as one sound."""
    sounds = [sound.render(one.codes, one.latents, heard, one.seed) for one in segments if len(one.codes)]
    return Spoken(join_segments(sounds, sound.sample_rate_hz), sound.sample_rate_hz, tuple(segments))


def _say_part(
    trained: TrainedModel,
    text: str,
    voice: SpeakingVoice,
    sampling: Sampling,
    num_codes: int,
    on_step: OnStep,
) -> Segment:
    gpt, tokenizer = trained.gpt, trained.tokenizer
    ids = tokenizer.encode_normalized(text)
    num_unknown = ids.count(tokenizer.unknown_id)
    if num_unknown:
        logger.warning("%d of %d pieces of %r are unknown, and not heard", num_unknown, len(ids), text)
    device = voice.emo_vec.device
    prompt = Prompt(voice.condition, voice.emo_vec, torch.tensor(ids, device=device))
    generated = generate(gpt, [prompt], sampling, on_step)[0]
    codes = speakable(generated.codes, num_codes)
    if not generated.has_stopped:
        logger.warning("%r was cut off after %d codes, the limit", text, limit_of(gpt, sampling))
    if len(codes):
        latents = code_states(gpt, prompt, codes)
    else:
        logger.warning("%r: the model stopped before it said anything", text)
        latents = torch.zeros(0, gpt.config.model_dim, device=device)
    return Segment(text, codes, latents, generated.has_stopped, sampling.seed)


def speakable(codes: Tensor, num_codes: int) -> Tensor:
    """Return those of `codes` (M,) that are the codec's, which are below `num_codes`: (M',)."""
    is_speakable = (codes >= 0) & (codes < num_codes)
    if not is_speakable.all():
        logger.warning("%d of %d codes are none of the codec's, left out", (~is_speakable).sum(), len(codes))
    return codes[is_speakable]


def parse_emotion(typed: str) -> tuple[float, ...]:
    """Return the weights in a text such as `happy=0.6,calm=0.2`, one per `EMOTIONS`; none for an empty text.

    Raises:
        UserError: it is not of this form.
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


MAX_SEGMENT_TOKENS = 120  # as published; the position table of the model has room for 600
SILENCE_S = 0.2
MAX_CHARACTERS = 20_000  # some 25 minutes of speech

# Where a text may be cut, from the best place to the worst.
_CUTS = (
    re.compile(r"(?<=[.!?…])\s+"),
    re.compile(r"(?<=,)\s+"),
    re.compile(r"\s+-\s+|(?<=\w)-(?=\w)"),
    re.compile(r"\s+"),
    re.compile(r"(?<=.)(?=.)"),
)


def split_text(text: str, tokenizer: Tokenizer, max_tokens: int = MAX_SEGMENT_TOKENS) -> list[str]:
    """Return `text`, normalised, in segments of at most `max_tokens` tokens, in order.

    Raises:
        UserError: nothing of the text can be spoken, or it is longer than MAX_CHARACTERS.
    """
    if len(text) > MAX_CHARACTERS:
        raise UserError(
            f"the text has {len(text)} characters, at most {MAX_CHARACTERS} are spoken at once; split it"
        )
    spoken = tokenizer.normalize(text)
    if not re.search(r"\w", spoken):
        raise UserError(f"the text {text[:40]!r} has nothing that can be spoken; write a sentence")
    return list(_segments(spoken, lambda part: len(tokenizer.encode(part)), max_tokens, _CUTS))


def _segments(
    text: str, count: Callable[[str], int], max_tokens: int, cuts: Sequence[re.Pattern[str]]
) -> Iterator[str]:
    """Yield `text` cut at the first of `cuts`; what is still too long at the ones after it."""
    if count(text) <= max_tokens or not cuts:
        yield text
        return
    waiting = ""
    for part, joined in _parts(text, cuts[0]):
        together = waiting + joined + part if waiting else part
        if count(together) <= max_tokens:
            waiting = together
            continue
        if waiting:
            yield waiting
        waiting = ""
        if count(part) <= max_tokens:
            waiting = part
        else:
            yield from _segments(part, count, max_tokens, cuts[1:])
    if waiting:
        yield waiting


def _parts(text: str, cut: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Yield what stands between cuts, each with what stood in the cut before it."""
    end, joined = 0, ""
    for match in cut.finditer(text):
        yield text[end : match.start()], joined
        end, joined = match.end(), match.group()
    yield text[end:], joined


def join_segments(
    segments: Sequence[NDArray[np.float32]], sample_rate_hz: int, silence_s: float = SILENCE_S
) -> NDArray[np.float32]:
    """Return the sounds (S,) as one, with silence between them; empty ones are left out."""
    silence = np.zeros(int(sample_rate_hz * silence_s), np.float32)
    parts = [part for segment in segments if len(segment) for part in (silence, segment)]
    return np.concatenate(parts[1:]) if parts else np.zeros(0, np.float32)
