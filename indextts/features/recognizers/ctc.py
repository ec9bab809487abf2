"""CTC recognizers: log-probabilities of the tokens over time, and the text of the best path.

Decoding takes the best path without a language model, which would correct mispronounced words.

Clips of different lengths share a batch only if padding changes nothing. Models that normalise over time
transcribe a padded clip differently, so the class tries it with noise before the first batch.

Fit of a text to the log-probabilities of a clip, independent of spelling:

    tokens of one sound   ሀ ሐ ኀ ... share a column: their probabilities are added
    blank, word boundary  share a column: the text is compared without spaces

    score = (log p(text | sound) - log p(best path | sound)) / number of letters

Axes: B clips of a batch, S samples, T positions, V tokens, L columns of letters; column 0 is the blank.
"""

from collections.abc import Container, Mapping, Sequence
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from indextts.features.recognizers.forced_alignment import MAX_COST
from indextts.features.recognizers.recognizer import MIN_DURATION_S, LoadedModel, Placement, batches
from indextts.text.ethiopic import text_key

MAX_PADDING_ERROR = 1e-3  # of log-probabilities in float32: rounding stays far below
PROBED_S = (0.7, 1.0)
LOWEST_SCORE = -20.0  # nats per letter, also of a text that is too long for the sound
MIN_PROBABILITY = 1e-30


class CtcRecognizer:
    """A CTC model with its feature extractor and tokenizer, on one device."""

    def __init__(self, loaded: LoadedModel, placement: Placement) -> None:
        self.name, self.identity, self.family = loaded.name, loaded.identity, loaded.family
        self.clips_at_once = placement.clips_at_once
        self.sample_rate_hz: int = loaded.extractor.sampling_rate
        self.padding_is_neutral = False
        self._model = loaded.model.eval()
        self._extractor = loaded.extractor
        self._tokenizer = loaded.tokenizer
        self._placement = Placement(torch.device("cpu"))
        if placement.batch_s:  # in float32, where a difference cannot be rounding
            self.padding_is_neutral = self._try_padding()
        self._model = self._model.to(placement.device, placement.dtype)
        self._placement = placement

    def transcribe(self, clips: Sequence[NDArray[np.float32]]) -> list[str]:
        """Return the transcript of each clip (S,); "" for a clip that is too short."""
        return [text for text, _ in self.hear(clips)]

    def hear(self, clips: Sequence[NDArray[np.float32]]) -> list[tuple[str, Tensor | None]]:
        """Return the transcript of each clip (S,), with its log-probabilities (T, V)."""
        return [(self.text_of(scores), scores) for scores in self.log_probabilities(clips)]

    def log_probabilities(self, clips: Sequence[NDArray[np.float32]]) -> list[Tensor]:
        """Return the log-probabilities of each clip (S,), float32 on the CPU: (T, V).

        The positions divide the clip evenly. A clip that is too short has none.
        """
        found = [torch.empty(0, len(self.tokens))] * len(clips)
        least = MIN_DURATION_S * self.sample_rate_hz
        usable = [place for place, clip in enumerate(clips) if len(clip) >= least]
        sizes = [len(clips[place]) for place in usable]
        max_size = self._placement.batch_s * self.sample_rate_hz
        for batch in batches(sizes, max_size, only_equal=not self.padding_is_neutral):
            places = [usable[index] for index in batch]
            outputs = self._of_batch([clips[place] for place in places])
            for place, scores in zip(places, outputs, strict=True):
                found[place] = scores
        return found

    def text_of(self, log_probabilities: Tensor) -> str:
        """Return the text of the best path through log-probabilities (T, V)."""
        return self.text_of_tokens(log_probabilities.argmax(-1))

    def text_of_tokens(self, best: Tensor) -> str:
        """Return the text of the best tokens (T,)."""
        # Collapse repeats here: the tokenizer would remove the blanks first and merge double letters.
        runs = torch.unique_consecutive(best).tolist()
        tokens = [token for token in runs if token not in self._ignored]
        text: str = self._tokenizer.decode(tokens, group_tokens=False)
        return text

    def alignment_score(self, log_probabilities: Tensor, text: str) -> float | None:
        """Return how well a text fits a clip, in nats per letter: near 0 for its transcript, else less.

        None for a clip without positions or a text without letters of the model.

        Args:
            log_probabilities: (T, V), of the clip.
            text: normalised; spelling variants, spaces and punctuation do not count.
        """
        targets = self.letter_columns(text)
        if not targets or not len(log_probabilities):
            return None
        scores = merged_scores(log_probabilities, self._columns)  # (T, L)
        nats = F.ctc_loss(
            scores[:, None],
            torch.tensor([targets]),
            torch.tensor([len(scores)]),
            torch.tensor([len(targets)]),
            reduction="sum",
        )
        best = scores.max(dim=-1).values.sum()
        return max(LOWEST_SCORE, float(-nats - best) / len(targets))

    def letter_columns(self, text: str) -> list[int]:
        """Return the columns of `letter_costs` for the letters of a text that the model has."""
        number_of = {key: number for number, key in enumerate(self._columns)}
        return [number_of[letter] for letter in text_key(text) if letter in number_of]

    def letter_costs(self, log_probabilities: Tensor) -> NDArray[np.float32]:
        """Return what each letter costs at each position, for `forced_alignment`: (T, L) from (T, V)."""
        scores = merged_scores(log_probabilities, self._columns)
        costs = scores.max(dim=-1, keepdim=True).values - scores
        found: NDArray[np.float32] = costs.clamp(max=MAX_COST).numpy()
        return found

    @cached_property
    def tokens(self) -> list[str]:
        """The tokens: V strings."""
        tokens: list[str] = self._tokenizer.convert_ids_to_tokens(range(self._model.config.vocab_size))
        return [token or "" for token in tokens]

    @cached_property
    def blank(self) -> int:
        """The number of the CTC blank."""
        return int(self._model.config.pad_token_id)

    @cached_property
    def _ignored(self) -> set[int | None]:
        of = self._tokenizer
        return {of.bos_token_id, of.eos_token_id, of.unk_token_id, of.pad_token_id, self.blank}

    @cached_property
    def _columns(self) -> dict[str, list[int]]:
        return merged_columns(self.tokens, self._ignored, self._tokenizer.word_delimiter_token)

    @torch.inference_mode()
    def _of_batch(self, clips: Sequence[NDArray[np.float32]]) -> list[Tensor]:
        """Return the log-probabilities of each clip, computed in one batch."""
        inputs = self._extractor(
            list(clips),
            sampling_rate=self.sample_rate_hz,
            padding=True,
            return_attention_mask=True,
            return_tensors="pt",
        )
        num_valid = inputs["attention_mask"].sum(-1)  # (B,)
        inputs.to(self._placement.device, self._placement.dtype)  # only floats get the type
        scores = self._model(**inputs).logits.float().log_softmax(-1).cpu()  # (B, T, V)
        lengths = self._num_positions(num_valid, scores.shape[1])
        return [row[:length] for row, length in zip(scores, lengths, strict=True)]

    def _num_positions(self, num_valid: Tensor, most: int) -> list[int]:
        """Return the number of positions of each clip from the number of its valid inputs (B,)."""
        if not hasattr(self._model, "_get_feat_extract_output_lengths"):
            return [most] * len(num_valid)  # such clips are of equal length: see `_try_padding`
        lengths: list[int] = self._model._get_feat_extract_output_lengths(num_valid).tolist()
        return [min(length, most) for length in lengths]

    def _try_padding(self) -> bool:
        """Return whether clips have the same log-probabilities alone and padded in a batch."""
        if not hasattr(self._model, "_get_feat_extract_output_lengths"):
            return False
        chance = np.random.default_rng(0)
        sizes = [int(seconds * self.sample_rate_hz) for seconds in PROBED_S]
        clips = [0.1 * chance.standard_normal(size).astype(np.float32) for size in sizes]
        for clip, together in zip(clips, self._of_batch(clips), strict=True):
            [alone] = self._of_batch([clip])
            if alone.shape != together.shape or (alone - together).abs().max() > MAX_PADDING_ERROR:
                return False
        return True


def merged_columns(
    tokens: Sequence[str], ignored: Container[int | None], delimiter: str | None
) -> dict[str, list[int]]:
    """Return the tokens of each letter; "" has the blank, the word boundary and all without letters.

    Args:
        tokens: (V,).
        ignored: ids of special tokens.
        delimiter: the token between words.
    """
    columns: dict[str, list[int]] = {"": []}
    for number, token in enumerate(tokens):
        key = "" if number in ignored or token == delimiter else text_key(token)
        columns.setdefault(key, []).append(number)
    return columns


def merged_scores(log_probabilities: Tensor, columns: Mapping[str, Sequence[int]]) -> Tensor:
    """Return the log-probabilities (T, L) of columns from those of tokens (T, V)."""
    probabilities = log_probabilities.exp()
    merged = torch.stack([probabilities[:, list(ids)].sum(-1) for ids in columns.values()], dim=-1)
    return merged.clamp(min=MIN_PROBABILITY).log()
