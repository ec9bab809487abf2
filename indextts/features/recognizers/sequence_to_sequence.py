"""Recognizers that generate the text token by token: Whisper and others.

Whisper pads every clip to 30 s, so a batch changes nothing; other models transcribe clip by clip. A longer
clip is cut at pauses. The most likely token is taken at each step. A part without speech is not transcribed:
these models write words for silence and noise, such as "you".

Axes: B clips of a batch, S samples.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import soxr
import torch
from numpy.typing import NDArray
from torch import Tensor

from indextts.features.recognizers.first_transcripts import counts
from indextts.features.recognizers.recognizer import MIN_DURATION_S, LoadedModel, Placement, batches, parts
from indextts.features.vad import SAMPLE_RATE_HZ as VAD_RATE_HZ
from indextts.features.vad import find_speech

logger = logging.getLogger(__name__)

NO_SETTING = "%s: has no setting for language %s; it detects the language"
MAX_S = 30.0
FRAMES_PER_S = 100
NUM_FRAMES = int(MAX_S * FRAMES_PER_S)
MARGIN_S = 7.5  # of silence after a clip: with less, more transcripts loop (docs/lab/recognizers.md)
MAX_TOKENS = 448  # of Whisper, for models that state no limit
NUM_PROMPT_TOKENS = 4  # start, language, task, no time stamps
HEARING_VERSION = "speech only"  # of the transcripts; change it when the same weights write others

Clips = Sequence[NDArray[np.float32]]


class SequenceToSequenceRecognizer:
    """A model that generates text, with its feature extractor and tokenizer, on one device.

    Args:
        language: ISO 639 code; a multilingual Whisper is set to it.
    """

    def __init__(self, loaded: LoadedModel, placement: Placement, language: str) -> None:
        self.name, self.family = loaded.name, loaded.family
        self.identity = f"{loaded.identity} {HEARING_VERSION}"
        self.clips_at_once = placement.clips_at_once
        self.sample_rate_hz: int = loaded.extractor.sampling_rate
        self._extractor, self._tokenizer = loaded.extractor, loaded.tokenizer
        self._model = loaded.model.eval().to(placement.device, placement.dtype)
        self._placement = placement
        self._pads_to_fixed_length = hasattr(loaded.extractor, "nb_max_frames")
        config = loaded.model.config
        limit = getattr(config, "max_target_positions", None) or MAX_TOKENS
        self._settings: dict[str, object] = {
            "max_new_tokens": limit - NUM_PROMPT_TOKENS,
            "do_sample": False,
            "num_beams": 1,
        }
        loaded.model.generation_config.max_length = None  # max_new_tokens replaces it
        known = getattr(loaded.model.generation_config, "lang_to_id", None)
        if known and f"<|{language}|>" in known:
            self._settings |= {"language": language, "task": "transcribe"}
        elif known:
            logger.warning(NO_SETTING, self.name, language)

    def transcribe(self, clips: Clips) -> list[str]:
        """Return the transcript of each clip (S,); "" for a clip without speech."""
        batch_s = self._placement.batch_s if self._pads_to_fixed_length else 0
        return texts_of_parts(clips, self.sample_rate_hz, batch_s, self._of_batch)

    def hear(self, clips: Clips) -> list[tuple[str, Tensor | None]]:
        """Return the transcript of each clip (S,); this model has no log-probabilities over time."""
        return [(text, None) for text in self.transcribe(clips)]

    @torch.inference_mode()
    def _of_batch(self, clips: Clips) -> list[str]:
        inputs = self._extractor(
            list(clips), sampling_rate=self.sample_rate_hz, return_attention_mask=True, return_tensors="pt"
        )
        inputs.to(self._placement.device, self._placement.dtype)  # only floats get the type
        tokens = self._model.generate(**inputs, **self._settings)
        texts: list[str] = self._tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return texts


class FasterWhisper:
    """A Whisper of CTranslate2, with the interface of the others; the package faster-whisper runs it.

    Args:
        language: ISO 639 code.
    """

    family = "Whisper"
    clips_at_once = 1
    sample_rate_hz = 16_000

    def __init__(self, name: str, identity: str, model: Any, language: str) -> None:
        self.name, self.identity, self._model = name, f"{identity} {HEARING_VERSION}", model
        self._language = language if model.hf_tokenizer.token_to_id(f"<|{language}|>") else None
        if self._language is None and model.model.is_multilingual:
            logger.warning(NO_SETTING, name, language)
        self._num_frames = NUM_FRAMES
        # only a part of the silence after a short clip, which takes most of the time
        encode = model.encode
        model.encode = lambda features: encode(features[..., : self._num_frames])

    def transcribe(self, clips: Clips) -> list[str]:
        """Return the transcript of each clip (S,); "" for a clip without speech."""
        return texts_of_parts(
            clips, self.sample_rate_hz, 0, lambda batch: [self._text(clip) for clip in batch]
        )

    def hear(self, clips: Clips) -> list[tuple[str, Tensor | None]]:
        """Return the transcript of each clip (S,); this model has no log-probabilities over time."""
        return [(text, None) for text in self.transcribe(clips)]

    def _text(self, clip: NDArray[np.float32]) -> str:
        """Return the text of a clip, in a short window if that gives a plausible one."""
        self._num_frames = min(NUM_FRAMES, int((len(clip) / self.sample_rate_hz + MARGIN_S) * FRAMES_PER_S))
        text = self._written(clip)
        if self._num_frames < NUM_FRAMES and counts([text]) != (0, 0):
            self._num_frames = NUM_FRAMES
            text = self._written(clip)
        return text

    def _written(self, clip: NDArray[np.float32]) -> str:
        segments, _ = self._model.transcribe(
            clip,
            language=self._language,
            beam_size=1,
            temperature=0.0,  # the defaults would draw tokens at random where it is unsure
            compression_ratio_threshold=None,
            log_prob_threshold=None,
            no_speech_threshold=None,
            without_timestamps=True,
            condition_on_previous_text=False,
        )
        return "".join(segment.text for segment in segments)


def texts_of_parts(
    clips: Clips, sample_rate_hz: int, batch_s: float, generate: Callable[[Clips], list[str]]
) -> list[str]:
    """Return the text of each clip, joined from those of its parts with speech, of at most 30 s each.

    Args:
        batch_s: duration of a batch, in which each part counts as 30 s; 0 for one part at a time.
    """
    pieces = [
        (place, part)
        for place, clip in enumerate(clips)
        for part in parts(clip, sample_rate_hz, MAX_S)
        if len(part) >= MIN_DURATION_S * sample_rate_hz
        and find_speech(soxr.resample(part, sample_rate_hz, VAD_RATE_HZ))
    ]
    size = int(MAX_S * sample_rate_hz)
    texts: list[list[str]] = [[] for _ in clips]
    for batch in batches([size] * len(pieces), batch_s * sample_rate_hz, only_equal=False):
        found = generate([pieces[index][1] for index in batch])
        for index, text in zip(batch, found, strict=True):
            texts[pieces[index][0]].append(text.strip())
    return [" ".join(filter(None, of_clip)) for of_clip in texts]
