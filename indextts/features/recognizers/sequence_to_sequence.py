"""Recognizers that generate the text token by token: Whisper and other models of transformers.

Whisper pads every clip to 30 s, so a batch changes nothing; other models transcribe clip by clip. A longer
clip is cut at pauses. The most likely token is taken at each step.

Axes: B clips of a batch, S samples.
"""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from indextts.features.recognizers.recognizer import (
    MIN_DURATION_S,
    LoadedModel,
    Placement,
    batches,
    parts,
)

logger = logging.getLogger(__name__)

MAX_S = 30.0
MAX_TOKENS = 448  # of Whisper, for models that state no limit
NUM_PROMPT_TOKENS = 4  # start, language, task, no time stamps


class SequenceToSequenceRecognizer:
    """A model that generates text, with its feature extractor and tokenizer, on one device.

    Args:
        language: ISO 639 code; a multilingual Whisper is set to it.
    """

    def __init__(self, loaded: LoadedModel, placement: Placement, language: str) -> None:
        self.name, self.identity = loaded.name, loaded.identity
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
            logger.warning("%s: has no setting for language %s; it detects the language", self.name, language)

    def transcribe(self, clips: Sequence[NDArray[np.float32]]) -> list[str]:
        """Return the transcript of each clip (S,); "" for a clip that is too short."""
        least = MIN_DURATION_S * self.sample_rate_hz
        pieces = [
            (place, part)
            for place, clip in enumerate(clips)
            for part in parts(clip, self.sample_rate_hz, MAX_S)
            if len(part) >= least
        ]
        size = int(MAX_S * self.sample_rate_hz)  # each is padded to it
        max_size = self._placement.batch_s * self.sample_rate_hz if self._pads_to_fixed_length else 0
        texts: list[list[str]] = [[] for _ in clips]
        for batch in batches([size] * len(pieces), max_size, only_equal=False):
            found = self._of_batch([pieces[index][1] for index in batch])
            for index, text in zip(batch, found, strict=True):
                texts[pieces[index][0]].append(text.strip())
        return [" ".join(filter(None, of_clip)) for of_clip in texts]

    def hear(self, clips: Sequence[NDArray[np.float32]]) -> list[tuple[str, Tensor | None]]:
        """Return the transcript of each clip (S,); this model has no log-probabilities over time."""
        return [(text, None) for text in self.transcribe(clips)]

    @torch.inference_mode()
    def _of_batch(self, clips: Sequence[NDArray[np.float32]]) -> list[str]:
        inputs = self._extractor(
            list(clips), sampling_rate=self.sample_rate_hz, return_attention_mask=True, return_tensors="pt"
        )
        inputs.to(self._placement.device, self._placement.dtype)  # only floats get the type
        tokens = self._model.generate(**inputs, **self._settings)
        texts: list[str] = self._tokenizer.batch_decode(tokens, skip_special_tokens=True)
        return texts
