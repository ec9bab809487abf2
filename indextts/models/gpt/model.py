"""The IndexTTS2 GPT: predicts the next text token and semantic code from speech features, text and codes.

Axes: B rows, T feature frames, F feature width, K rows of a speaker condition, W their width, P rows before
the text (K + 2), D model width, N text tokens, M codes, V+1 rows of the text tables, C semantic codes.

One row of the sequence, with the targets of each part:

    [K speaker rows + emotion][2 rows][start, text..., stop][start, codes..., stop]
                                       -> text..., stop, -   -> codes..., stop, -

What differs between the published models:

    base    speaker condition                         rows behind it    text positions
    2.0     latents (K, D) of a speech encoder        2 speed rows      token + position
    2.5     style vector (1, W) of CAM++, projected   2 rows of zeros   ... + row of the language

Attention is causal without a padding mask, as in the published training: the codes of a short row see the
stop tokens that pad its text, so the loss of a row depends on its batch.

Names and shapes of parameters are those of the published gpt.pth.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.models.gpt.config import GPTConfig
from indextts.models.gpt.encoders import ConformerEncoder, PerceiverResampler
from indextts.models.gpt.gpt2 import GPT2


@dataclass(frozen=True)
class TensorFields:
    """Tensors that move together; other fields of a subclass stay as they are."""

    def to(self, device: torch.device | str) -> Self:
        """Return the tensors on `device`; the copy from pinned memory is asynchronous."""
        to_gpu = torch.device(device).type == "cuda"
        return self.each(lambda tensor: tensor.to(device, non_blocking=to_gpu))

    def pin_memory(self) -> Self:
        """Return the tensors in pinned memory."""
        return self.each(lambda tensor: tensor.pin_memory())

    def each(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return a copy with each tensor changed."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{n: change(value) for n, value in values.items() if isinstance(value, Tensor)})


@dataclass(frozen=True)
class GPTBatch(TensorFields):
    """A padded batch; values at or after a row's length are ignored.

    Attributes:
        condition: (B, K, W), from `UnifiedVoice.conditioning`.
        emo_vec: (B, D), from `UnifiedVoice.emotion`.
        text_ids: (B, N), tokens without start and stop; N at most `max_text_tokens`.
        text_lengths: (B,), tokens per row.
        codes: (B, M), semantic codes without start and stop; M at most `max_mel_tokens` + 1.
        code_lengths: (B,), codes per row.
        languages: (B,), row of each text's language; None for a base without language rows.
    """

    condition: Tensor
    emo_vec: Tensor
    text_ids: Tensor
    text_lengths: Tensor
    codes: Tensor
    code_lengths: Tensor
    languages: Tensor | None = None

    @property
    def num_samples(self) -> int:
        return len(self.text_lengths)

    @property
    def num_text(self) -> int:
        """Return the number of text targets in the loss; call this before the batch moves to the GPU."""
        return int((self.text_lengths + 1).sum())

    @property
    def num_mel(self) -> int:
        """Return the number of code targets in the loss; call this before the batch moves to the GPU."""
        return int((self.code_lengths + 1).sum())

    @property
    def num_positions(self) -> int:
        """Return the number of positions in the model's sequences, padding included."""
        (num_rows, num_speaker, _), text, codes = self.condition.shape, self.text_ids, self.codes
        return num_rows * (num_speaker + text.shape[1] + codes.shape[1] + 5)  # 5: as in `PairDataset.lengths`

    def split(self, max_positions: int) -> "list[GPTBatch]":
        """Return the rows of a batch on the CPU in smaller batches; the loss of each row stays.

        A batch has at most `max_positions`, or a single row. The padding of texts is kept, because codes
        attend to it; unneeded padding of codes is removed.
        """
        size = max(1, max_positions * self.num_samples // self.num_positions)
        return [self._rows(start, start + size) for start in range(0, len(self.codes), size)]

    def _rows(self, start: int, stop: int) -> "GPTBatch":
        rows = self.each(lambda tensor: tensor[start:stop])
        return replace(rows, codes=rows.codes[:, : int(rows.code_lengths.max())])


@dataclass(frozen=True)
class FramedTokens:
    """Tokens between start and stop, with the target of each position.

    Attributes:
        inputs: (B, N+2), start, tokens, then stop to the end.
        targets: (B, N+2), the inputs shifted by one position; the last column is never in the mask.
        mask: (B, N+2), True where the target is in the loss: the row's tokens and its first stop.
    """

    inputs: Tensor
    targets: Tensor
    mask: Tensor


@dataclass(frozen=True)
class GPTOutput:
    """Logits, targets and masks of a batch, position by position.

    Attributes:
        text_logits: (B, N+2, V+1).
        mel_logits: (B, M+2, C).
        text_targets: (B, N+2), token ids.
        mel_targets: (B, M+2), codes.
        text_mask: (B, N+2), True where the position is in the loss.
        mel_mask: (B, M+2), True where the position is in the loss.
    """

    text_logits: Tensor
    mel_logits: Tensor
    text_targets: Tensor
    mel_targets: Tensor
    text_mask: Tensor
    mel_mask: Tensor


# Behind the style vector, and without parameters.
NUM_ZERO_ROWS = 2


class UnifiedVoice(nn.Module):
    """The GPT of either base; the weights are uninitialised, see `load_model`."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        dim, emo_dim = config.model_dim, config.emo_perceiver_dim
        emotion = config.emo_condition_module
        conformer_sizes = (config.feature_dim, config.conv_kernel_size, config.pe_length)
        perceiver_sizes = (config.perceiver_head_dim, config.perceiver_depth)
        self.reads_style = config.of_base.reads_style
        if self.reads_style:
            self.spk_emb_proj = nn.Linear(config.style_dim, dim)
        else:
            speaker = config.condition_module
            self.conditioning_encoder = ConformerEncoder(speaker, *conformer_sizes)
            self.perceiver_encoder = PerceiverResampler(speaker, dim, config.num_latents, *perceiver_sizes)
        self.emo_conditioning_encoder = ConformerEncoder(emotion, *conformer_sizes)
        self.emo_perceiver_encoder = PerceiverResampler(emotion, emo_dim, 1, *perceiver_sizes)
        self.text_embedding = nn.Embedding(config.num_text_rows, dim)
        self.emo_layer = nn.Linear(dim, dim)
        self.emovec_layer = nn.Linear(emo_dim, dim)
        self.mel_embedding = nn.Embedding(config.number_mel_codes, dim)
        self.gpt = GPT2(dim, config.layers, config.heads, config.dropout)
        self.mel_pos_embedding = LearnedPositions(config.num_mel_positions, dim)
        self.text_pos_embedding = LearnedPositions(config.num_text_positions, dim)
        self.final_norm = nn.LayerNorm(dim)
        self.text_head = nn.Linear(dim, config.num_text_rows)
        self.mel_head = nn.Linear(dim, config.number_mel_codes)
        if self.reads_style:
            self.lang_embedding = nn.Embedding(config.num_language_rows, dim)
        else:
            self.speed_emb = nn.Embedding(2, dim)

    def conditioning(
        self,
        features: Tensor,
        lengths: Tensor | None = None,
        isolate_padding: bool = False,
        style: Tensor | None = None,
    ) -> Tensor:
        """Return the speaker condition: (B, K, W).

        Args:
            features: (B, T, F), normalised speech features, T at least 3.
            lengths: (B,), real frames per clip; None if all are real. In a padded batch the result depends
                slightly on the padding (see `encoders`).
            isolate_padding: make each row independent of the padding.
            style: (B, W), the style vector of CAM++, not normalised, for a base whose condition it is.
        """
        if self.reads_style:
            assert style is not None
            return style[:, None]
        latents: Tensor = self.perceiver_encoder(
            *self.conditioning_encoder(features, lengths, isolate_padding)
        )
        return latents

    def prefix(self, condition: Tensor, emo_vec: Tensor) -> Tensor:
        """Return the positions before the text, (B, P, D), for `condition` (B, K, W), `emo_vec` (B, D)."""
        if self.reads_style:
            speaker = self.spk_emb_proj(condition) + emo_vec[:, None]  # (B, 1, D)
            return F.pad(speaker, (0, 0, 0, NUM_ZERO_ROWS))
        speed = self.speed_emb.weight.flip(0).expand(len(condition), -1, -1)  # (B, 2, D): row 1, then row 0
        return torch.cat([condition + emo_vec[:, None], speed], dim=1)

    def embed_text(self, inputs: Tensor, positions: Tensor, languages: Tensor | None = None) -> Tensor:
        """Embed text tokens (..., N) at `positions` (N,) or (..., N), from 0: (..., N, D).

        Args:
            languages: (..., N) or (..., 1), row of the language, which start and stop have added too; None
                for a base without language rows.
        """
        embedded: Tensor = self.text_embedding(inputs) + self.text_pos_embedding(positions)
        if not self.reads_style:
            return embedded
        assert languages is not None
        language: Tensor = self.lang_embedding(languages)
        return embedded + language

    def forward(self, batch: GPTBatch) -> GPTOutput:
        """Return the logits of the batch, including padding; the batch is not modified."""
        return self.predict(self.prefix(batch.condition, batch.emo_vec), batch)

    def emotion(
        self, features: Tensor, lengths: Tensor | None = None, isolate_padding: bool = False
    ) -> Tensor:
        """Return the emotion vector (B, D); arguments as for `conditioning`."""
        states = self.emo_conditioning_encoder(features, lengths, isolate_padding)
        latents = self.emo_perceiver_encoder(*states).squeeze(1)  # (B, `emo_perceiver_dim`)
        emo_vec: Tensor = self.emo_layer(self.emovec_layer(latents))
        return emo_vec

    def frame_text(self, ids: Tensor, lengths: Tensor) -> FramedTokens:
        """Return inputs, targets and mask of the text `ids` (B, N) with `lengths` (B,)."""
        return frame(ids, lengths, self.config.start_text_token, self.config.stop_text_token)

    def frame_codes(self, codes: Tensor, lengths: Tensor) -> FramedTokens:
        """Return inputs, targets and mask of the `codes` (B, M) with `lengths` (B,)."""
        return frame(codes, lengths, self.config.start_mel_token, self.config.stop_mel_token)

    def embed_codes(self, inputs: Tensor, positions: Tensor) -> Tensor:
        """Embed codes (..., M) at `positions` (M,) or (..., M), from 0: (..., M, D)."""
        embedded: Tensor = self.mel_embedding(inputs) + self.mel_pos_embedding(positions)
        return embedded

    def embed_sequence(
        self, prefix: Tensor, text_inputs: Tensor, mel_inputs: Tensor, languages: Tensor | None = None
    ) -> Tensor:
        """Join prefix (B, P, D), framed text (B, N+2) and framed codes (B, M+2): (B, P+N+M+4, D).

        Args:
            languages: (B,), see `GPTBatch`.
        """
        of_rows = None if languages is None else languages[:, None]  # (B, 1)
        text = self.embed_text(text_inputs, columns(text_inputs), of_rows)
        codes = self.embed_codes(mel_inputs, columns(mel_inputs))
        return torch.cat([prefix, text, codes], dim=1)

    def states(
        self, prefix: Tensor, text_inputs: Tensor, mel_inputs: Tensor, languages: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the inputs of the heads, (B, N+2, D) and (B, M+2, D); arguments as for `embed_sequence`."""
        sequence = self.embed_sequence(prefix, text_inputs, mel_inputs, languages)
        states: Tensor = self.final_norm(self.gpt(sequence)[:, prefix.shape[1] :])
        num_text = text_inputs.shape[1]
        return states[:, :num_text], states[:, num_text:]

    def predict(self, prefix: Tensor, batch: GPTBatch) -> GPTOutput:
        """Return the logits of a batch after any `prefix` (B, P, D); ignores the batch's own condition."""
        text = self.frame_text(batch.text_ids, batch.text_lengths)
        codes = self.frame_codes(batch.codes, batch.code_lengths)
        text_states, mel_states = self.states(prefix, text.inputs, codes.inputs, batch.languages)
        return GPTOutput(
            text_logits=self.text_head(text_states),
            mel_logits=self.mel_head(mel_states),
            text_targets=text.targets,
            mel_targets=codes.targets,
            text_mask=text.mask,
            mel_mask=codes.mask,
        )


class LearnedPositions(nn.Module):
    """A table with one row per position."""

    def __init__(self, num_positions: int, dim: int) -> None:
        super().__init__()
        self.emb = nn.Embedding(num_positions, dim)

    def forward(self, positions: Tensor) -> Tensor:
        """Return the rows at `positions` (...): (..., D)."""
        rows: Tensor = self.emb(positions)
        return rows


def columns(ids: Tensor) -> Tensor:
    """Return the column numbers of `ids` (B, N): (N,)."""
    return torch.arange(ids.shape[1], device=ids.device)


def frame(ids: Tensor, lengths: Tensor, start: int, stop: int) -> FramedTokens:
    """Frame padded `ids` (B, N) with `lengths` (B,) by `start` and `stop`; padding becomes `stop`."""
    is_real = columns(ids) < lengths[:, None]  # (B, N)
    ids = ids.long().masked_fill(~is_real, stop)
    inputs = F.pad(F.pad(ids, (1, 0), value=start), (0, 1), value=stop)  # (B, N+2)
    targets = F.pad(ids, (0, 2), value=stop)  # (B, N+2)
    return FramedTokens(inputs=inputs, targets=targets, mask=columns(inputs) < lengths[:, None] + 1)
