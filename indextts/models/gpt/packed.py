"""Batches of samples packed end to end into one sequence, without padding.

Axes: B samples, K rows of a speaker condition, W their width, P rows before the text (K + 2), D model width,
T positions of all samples; sample b has N_b tokens and M_b codes.

    sample 0                                                            sample 1 ...
    [K speaker rows + emotion][2 rows][start, text..., stop][start, codes...][K speaker rows + emotion] ...
                                       -> text..., stop, -   -> codes..., stop

Positions restart in every sample and a sample attends only to itself, so its losses are the same as alone.
The last position of the padded form (a stop token without a target) is left out.

A batch is built on the host, with all sizes that would otherwise need a device synchronisation;
`packed_states` runs `UnifiedVoice` on it with the same parameters as on a padded `GPTBatch`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from indextts.models.gpt.attention import AttentionBackend, Segments
from indextts.models.gpt.config import GPTConfig
from indextts.models.gpt.model import TensorFields, UnifiedVoice

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PackedBatch(TensorFields):
    """Packed samples; all index tensors are int64.

    Attributes:
        lengths: positions per sample, B values on the host.
        offsets: (B+1,), int32, first position of each sample, and T.
        condition: (B, K, W), from `UnifiedVoice.conditioning`.
        emo_vec: (B, D), from `UnifiedVoice.emotion`.
        text_inputs: (sum of N_b+2,), start, tokens, stop of each sample.
        text_positions: the same shape, from 0 in each sample.
        mel_inputs: (sum of M_b+1,), start and codes of each sample.
        mel_positions: the same shape, from 0 in each sample.
        sources: (T,), the row of each position in the concatenation of prefixes, text inputs and mel inputs.
        text_rows: (sum of N_b+1,), the positions with a text target.
        text_targets: the same shape, the target tokens.
        mel_rows: (sum of M_b+1,), the positions with a code target.
        mel_targets: the same shape, the target codes.
        text_languages: the shape of `text_inputs`, row of each position's language; None for a base without
            language rows.
    """

    lengths: tuple[int, ...]
    offsets: Tensor
    condition: Tensor
    emo_vec: Tensor
    text_inputs: Tensor
    text_positions: Tensor
    mel_inputs: Tensor
    mel_positions: Tensor
    sources: Tensor
    text_rows: Tensor
    text_targets: Tensor
    mel_rows: Tensor
    mel_targets: Tensor
    text_languages: Tensor | None = None

    @property
    def num_samples(self) -> int:
        return len(self.lengths)

    @property
    def num_text(self) -> int:
        """Return the number of text targets, without a device synchronisation."""
        return len(self.text_targets)

    @property
    def num_mel(self) -> int:
        """Return the number of code targets, without a device synchronisation."""
        return len(self.mel_targets)

    @property
    def num_positions(self) -> int:
        """Return the number of positions in the model's sequence."""
        return sum(self.lengths)

    @property
    def segments(self) -> Segments:
        """Return the boundaries of the samples."""
        return Segments(self.lengths, self.offsets)

    def split(self, max_positions: int, config: GPTConfig) -> "list[PackedBatch]":
        """Return the samples of a batch on the CPU in batches of at most `max_positions`, or of one."""
        starts, num_positions = [0], 0
        for index, length in enumerate(self.lengths):
            num_positions += length
            if num_positions > max_positions and index > starts[-1]:
                starts.append(index)
                num_positions = length
        ends = [*starts[1:], self.num_samples]
        return [self._part(first, last, config) for first, last in zip(starts, ends, strict=True)]

    def _part(self, first: int, last: int, config: GPTConfig) -> "PackedBatch":
        """Return the samples from `first` up to, not including, `last`."""
        texts, codes = (
            [row.numpy() for row in torch.tensor_split(inputs, (positions == 0).nonzero()[1:, 0])]
            for inputs, positions in (
                (self.text_inputs, self.text_positions),
                (self.mel_inputs, self.mel_positions),
            )
        )
        languages = self.text_languages
        return pack(
            [text[1:-1] for text in texts[first:last]],
            [row[1:] for row in codes[first:last]],
            self.condition[first:last],
            self.emo_vec[first:last],
            config,
            None if languages is None else languages[self.text_positions == 0][first:last],
        )


def pack(
    text_ids: Sequence[Ints],
    codes: Sequence[Ints],
    condition: Tensor,
    emo_vec: Tensor,
    config: GPTConfig,
    languages: Tensor | None = None,
) -> PackedBatch:
    """Pack samples in the given order.

    Args:
        text_ids: (N_b,) each, tokens without start and stop; N_b at most `max_text_tokens`.
        codes: (M_b,) each, semantic codes without start and stop; M_b at most `max_mel_tokens` + 1.
        condition: (B, K, W).
        emo_vec: (B, D).
        config: defines the start and stop tokens.
        languages: (B,), rows of the texts' languages; None for a base without language rows.
    """
    num_prefix = condition.shape[1] + 2
    text = _Parts.of(np.array([len(ids) + 2 for ids in text_ids]))
    mel = _Parts.of(np.array([len(ids) + 1 for ids in codes]))
    prefix = _Parts.of(np.full(len(text_ids), num_prefix))
    whole = _Parts.of(prefix.sizes + text.sizes + mel.sizes)

    is_start, is_stop = text.positions == 0, text.positions == text.spread(text.sizes) - 1
    text_inputs = np.empty(text.total, dtype=np.int64)
    text_inputs[is_start], text_inputs[is_stop] = config.start_text_token, config.stop_text_token
    text_inputs[~(is_start | is_stop)] = np.concatenate(text_ids)
    mel_inputs = np.empty(mel.total, dtype=np.int64)
    mel_inputs[mel.positions == 0] = config.start_mel_token
    mel_inputs[mel.positions > 0] = np.concatenate(codes)
    # shifted over all samples at once; the start of the next sample is then replaced by this one's stop
    mel_targets = np.append(mel_inputs[1:], 0)
    mel_targets[mel.positions == mel.spread(mel.sizes) - 1] = config.stop_mel_token

    # The parts are embedded one after another, all prefixes, all texts, all codes, since each is one look-up
    # in its table; `sources` then sorts their rows into the sequence. Here: where each row goes.
    prefix_rows = prefix.spread(whole.starts) + prefix.positions
    text_rows = text.spread(whole.starts + num_prefix) + text.positions
    mel_rows = mel.spread(whole.starts + num_prefix + text.sizes) + mel.positions
    sources = np.empty(whole.total, dtype=np.int64)
    sources[np.concatenate([prefix_rows, text_rows, mel_rows])] = np.arange(whole.total)
    return PackedBatch(
        lengths=tuple(whole.sizes.tolist()),
        # int32, which the variable-length kernels require
        offsets=torch.from_numpy(np.append(whole.starts, whole.total).astype(np.int32)),
        condition=condition,
        emo_vec=emo_vec,
        text_inputs=torch.from_numpy(text_inputs),
        text_positions=torch.from_numpy(text.positions),
        mel_inputs=torch.from_numpy(mel_inputs),
        mel_positions=torch.from_numpy(mel.positions),
        sources=torch.from_numpy(sources),
        text_rows=torch.from_numpy(text_rows[~is_stop]),
        text_targets=torch.from_numpy(text_inputs[1:][~is_stop[:-1]]),
        mel_rows=torch.from_numpy(mel_rows),
        mel_targets=torch.from_numpy(mel_targets),
        text_languages=None if languages is None else torch.from_numpy(text.spread(languages.cpu().numpy())),
    )


def packed_states(
    model: UnifiedVoice, batch: PackedBatch, backend: AttentionBackend
) -> tuple[Tensor, Tensor]:
    """Return the inputs of the heads at positions with a target: (`num_text`, D) and (`num_mel`, D)."""
    prefix = model.prefix(batch.condition, batch.emo_vec).flatten(0, 1)  # (B*P, D)
    text = model.embed_text(batch.text_inputs, batch.text_positions, batch.text_languages)
    mel = model.embed_codes(batch.mel_inputs, batch.mel_positions)
    # index_select: its gradient is a plain sum, that of bracket indexing sorts first
    sequence = torch.cat([prefix, text, mel]).index_select(0, batch.sources)  # (T, D)
    length = model.gpt.graph_length(batch.num_positions)
    if length is None:
        states = model.gpt(sequence, backend.bind(batch.segments))
    else:
        tail = length - batch.num_positions
        sequence = F.pad(sequence, (0, 0, 0, tail))  # one graph for all lengths; no head reads the tail
        states = model.gpt.compiled_states(sequence, backend.bind(batch.segments.with_tail(length)))
    # before norm and heads: only positions with a target need them
    counted = states.index_select(0, torch.cat([batch.text_rows, batch.mel_rows]))
    text_states, mel_states = model.final_norm(counted).split([batch.num_text, batch.num_mel])
    return text_states, mel_states


@dataclass(frozen=True)
class _Parts:
    """One part of all samples, concatenated: `sizes` (B,), `starts` (B,), `positions` (sum of sizes,)."""

    sizes: Ints
    starts: Ints
    positions: Ints

    @classmethod
    def of(cls, sizes: Ints) -> "_Parts":
        starts = np.cumsum(sizes) - sizes
        return cls(sizes, starts, np.arange(sizes.sum()) - np.repeat(starts, sizes))

    @property
    def total(self) -> int:
        return len(self.positions)

    def spread(self, values: Ints) -> Ints:
        """Repeat one value per sample for each of its positions."""
        return np.repeat(values, self.sizes)
