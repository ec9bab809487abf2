"""The IndexTTS2 GPT: speech features, text and semantic codes in, scores of the next text and code token out.

Axes: B rows, T feature frames, F feature width, K latents, D model width, N text tokens, M codes, V+1 rows
of the text tables, C semantic codes.

One row of the sequence, and what each part predicts:

    [K latents + emotion][speed 1][speed 0][start, text..., stop][start, codes..., stop]
                                            -> text..., stop, -   -> codes..., stop, -

Attention is causal and has no padding mask: the codes of a short row see the stop tokens that pad its text,
as in the published training, so a row's loss depends on the batch that it is in.

Names and shapes of parameters are those of the published gpt.pth.
"""

from dataclasses import dataclass, fields, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from indextts.models.gpt.config import GPTConfig
from indextts.models.gpt.encoders import ConformerEncoder, PerceiverResampler
from indextts.models.gpt.gpt2 import GPT2


@dataclass(frozen=True)
class GPTBatch:
    """A padded batch; what stands at or after a row's length is ignored.

    Attributes:
        condition: (B, K, D), from `UnifiedVoice.conditioning`.
        emo_vec: (B, D), from `UnifiedVoice.emotion`.
        text_ids: (B, N), tokens without start and stop; N at most `max_text_tokens`.
        text_lengths: (B,), tokens per row.
        codes: (B, M), semantic codes without start and stop; M at most `max_mel_tokens` + 1.
        code_lengths: (B,), codes per row.
    """

    condition: Tensor
    emo_vec: Tensor
    text_ids: Tensor
    text_lengths: Tensor
    codes: Tensor
    code_lengths: Tensor

    @property
    def num_samples(self) -> int:
        return len(self.text_lengths)

    @property
    def num_text(self) -> int:
        """Text tokens that count in the loss; to be asked on the host."""
        return int((self.text_lengths + 1).sum())

    @property
    def num_mel(self) -> int:
        """Codes that count in the loss; to be asked on the host."""
        return int((self.code_lengths + 1).sum())

    def to(self, device: torch.device | str) -> "GPTBatch":
        """The same batch on `device`; from pinned memory the copy does not wait."""
        to_gpu = torch.device(device).type == "cuda"
        return GPTBatch(*(getattr(self, f.name).to(device, non_blocking=to_gpu) for f in fields(self)))

    def pin_memory(self) -> "GPTBatch":
        """The same batch in page-locked memory, from which a card copies by itself."""
        return GPTBatch(*(getattr(self, f.name).pin_memory() for f in fields(self)))

    def split(self, size: int) -> "list[GPTBatch]":
        """The rows in batches of at most `size`, with the same loss for each row; a batch on the host.

        The codes of a row see the padding of its text, so that stays; nothing sees the padding of codes.
        """
        return [self._rows(start, start + size) for start in range(0, len(self.codes), size)]

    def _rows(self, start: int, stop: int) -> "GPTBatch":
        rows = GPTBatch(*(getattr(self, f.name)[start:stop] for f in fields(self)))
        return replace(rows, codes=rows.codes[:, : int(rows.code_lengths.max())])


@dataclass(frozen=True)
class Framed:
    """Tokens between start and stop, and what each position predicts.

    Attributes:
        inputs: (B, N+2), start, tokens, then stop to the end.
        targets: (B, N+2), the inputs one position later; the last column is never counted.
        mask: (B, N+2), True where the target counts: the row's tokens and its first stop.
    """

    inputs: Tensor
    targets: Tensor
    mask: Tensor


@dataclass(frozen=True)
class GPTOutput:
    """Scores, targets and masks of a batch, position by position.

    Attributes:
        text_logits: (B, N+2, V+1).
        mel_logits: (B, M+2, C).
        text_targets: (B, N+2), token ids.
        mel_targets: (B, M+2), codes.
        text_mask: (B, N+2), True where the position counts.
        mel_mask: (B, M+2), True where the position counts.
    """

    text_logits: Tensor
    mel_logits: Tensor
    text_targets: Tensor
    mel_targets: Tensor
    text_mask: Tensor
    mel_mask: Tensor


class UnifiedVoice(nn.Module):
    """The whole model; a fresh one holds no weights yet, see `random_model` and `load_model`."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        dim, emo_dim = config.model_dim, config.emo_perceiver_dim
        speaker, emotion = config.condition_module, config.emo_condition_module
        conformer_sizes = (config.feature_dim, config.conv_kernel_size, config.pe_length)
        perceiver_sizes = (config.perceiver_head_dim, config.perceiver_depth)
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
        self.speed_emb = nn.Embedding(2, dim)

    def forward(self, batch: GPTBatch) -> GPTOutput:
        """Scores of the whole batch, padding included; nothing is written into the batch."""
        return self.predict(self.prefix(batch.condition, batch.emo_vec), batch)

    def conditioning(
        self, features: Tensor, lengths: Tensor | None = None, seal_padding: bool = False
    ) -> Tensor:
        """What the model keeps of the speaker: (B, K, D).

        Args:
            features: (B, T, F), normalised speech features, T at least 3.
            lengths: (B,), real frames per clip; None if all are real. In a padded batch the result depends
                slightly on the padding (see `conformer`).
            seal_padding: make each row what its clip alone gives.
        """
        states = self.conditioning_encoder(features, lengths, seal_padding)
        latents: Tensor = self.perceiver_encoder(*states)
        return latents

    def emotion(self, features: Tensor, lengths: Tensor | None = None, seal_padding: bool = False) -> Tensor:
        """What the model keeps of the emotion: (B, D); arguments as for `conditioning`."""
        emo_vec: Tensor = self.emo_layer(self.emovec_layer(self.raw_emotion(features, lengths, seal_padding)))
        return emo_vec

    def raw_emotion(
        self, features: Tensor, lengths: Tensor | None = None, seal_padding: bool = False
    ) -> Tensor:
        """The emotion before its two linear layers: (B, `emo_perceiver_dim`)."""
        states = self.emo_conditioning_encoder(features, lengths, seal_padding)
        latents: Tensor = self.emo_perceiver_encoder(*states)
        return latents.squeeze(1)

    def prefix(self, condition: Tensor, emo_vec: Tensor) -> Tensor:
        """What stands before the text: (B, K+2, D), from `condition` (B, K, D) and `emo_vec` (B, D)."""
        speed = self.speed_emb.weight.flip(0).expand(len(condition), -1, -1)  # (B, 2, D): row 1, then row 0
        return torch.cat([condition + emo_vec[:, None], speed], dim=1)

    def frame_text(self, ids: Tensor, lengths: Tensor) -> Framed:
        """Inputs, targets and mask of the text `ids` (B, N) with `lengths` (B,)."""
        return frame(ids, lengths, self.config.start_text_token, self.config.stop_text_token)

    def frame_codes(self, codes: Tensor, lengths: Tensor) -> Framed:
        """Inputs, targets and mask of the `codes` (B, M) with `lengths` (B,)."""
        return frame(codes, lengths, self.config.start_mel_token, self.config.stop_mel_token)

    def embed_text(self, inputs: Tensor, positions: Tensor) -> Tensor:
        """Embeddings of text tokens (..., N) at `positions` (N,) or (..., N), from 0: (..., N, D)."""
        embedded: Tensor = self.text_embedding(inputs) + self.text_pos_embedding(positions)
        return embedded

    def embed_codes(self, inputs: Tensor, positions: Tensor) -> Tensor:
        """Embeddings of codes (..., M) at `positions` (M,) or (..., M), from 0: (..., M, D)."""
        embedded: Tensor = self.mel_embedding(inputs) + self.mel_pos_embedding(positions)
        return embedded

    def embed_sequence(self, prefix: Tensor, text_inputs: Tensor, mel_inputs: Tensor) -> Tensor:
        """Prefix (B, K+2, D), framed text (B, N+2) and framed codes (B, M+2) as one (B, K+N+M+6, D)."""
        text = self.embed_text(text_inputs, columns(text_inputs))
        codes = self.embed_codes(mel_inputs, columns(mel_inputs))
        return torch.cat([prefix, text, codes], dim=1)

    def states(self, prefix: Tensor, text_inputs: Tensor, mel_inputs: Tensor) -> tuple[Tensor, Tensor]:
        """States that the heads read, (B, N+2, D) and (B, M+2, D); arguments as for `embed_sequence`."""
        sequence = self.embed_sequence(prefix, text_inputs, mel_inputs)
        states: Tensor = self.final_norm(self.gpt(sequence)[:, prefix.shape[1] :])
        num_text = text_inputs.shape[1]
        return states[:, :num_text], states[:, num_text:]

    def predict(self, prefix: Tensor, batch: GPTBatch) -> GPTOutput:
        """Scores of a batch behind any `prefix` (B, K+2, D); the batch's own condition is not used."""
        text = self.frame_text(batch.text_ids, batch.text_lengths)
        codes = self.frame_codes(batch.codes, batch.code_lengths)
        text_states, mel_states = self.states(prefix, text.inputs, codes.inputs)
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
        """Rows at `positions` (...): (..., D)."""
        rows: Tensor = self.emb(positions)
        return rows


def columns(ids: Tensor) -> Tensor:
    """Column numbers of `ids` (B, N): (N,)."""
    return torch.arange(ids.shape[1], device=ids.device)


def frame(ids: Tensor, lengths: Tensor, start: int, stop: int) -> Framed:
    """Put padded `ids` (B, N) with `lengths` (B,) between `start` and `stop`; padding becomes `stop`."""
    is_real = columns(ids) < lengths[:, None]  # (B, N)
    ids = ids.long().masked_fill(~is_real, stop)
    inputs = F.pad(F.pad(ids, (1, 0), value=start), (0, 1), value=stop)  # (B, N+2)
    targets = F.pad(ids, (0, 2), value=stop)  # (B, N+2)
    return Framed(inputs=inputs, targets=targets, mask=columns(inputs) < lengths[:, None] + 1)
