"""The training step of the system that this project replaces, re-created from its description.

The step of the predecessor, and of this module:

* Hugging Face's `GPT2Model` with its position table replaced by zeros, SDPA attention, dropout 0.1 in three
  places, the activation `gelu_new` as separate operations, and every block recomputed in the backward pass;
* random batches, padded in the middle of the sequence (text, then codes), without a mask for the padding;
* padding written row by row, with lengths read from the device;
* both heads on all positions, all logits kept; cross-entropy per position, masked afterwards;
* top-1 accuracy of the codes from a copy of all counted logits; the host reads it and both losses in every
  micro-step;
* gradient hooks that copy the gradients of the text tables and zero the rows of the base tokenizer;
* clipping over all parameters, AdamW in one group in torch's default implementation, a schedule, gradients
  set to None.

Axes: B rows, N text tokens, M codes, D width, V+1 rows of the text head, C codes.
"""

import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model

from indextts.models.gpt.model import GPTBatch, UnifiedVoice

TEXT_WEIGHT, MEL_WEIGHT = 0.2, 0.8


class NoPositions(nn.Module):
    """Replaces the body's position table with zeros: the embeddings already contain positions."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, position_ids: Tensor) -> Tensor:
        return torch.zeros((*position_ids.shape, self.dim), device=position_ids.device)


def reference_body(
    model: UnifiedVoice, checkpointing: bool, attention_dropout: float | None = None
) -> GPT2Model:
    """Return a `GPT2Model` in training mode that shares the parameters of `model.gpt`.

    Args:
        checkpointing: recompute every block, as the predecessor always does.
        attention_dropout: None for the dropout of the model.
    """
    config, dropout = model.config, model.config.dropout
    gpt2 = GPT2Config(
        vocab_size=1,
        bos_token_id=0,
        eos_token_id=0,
        n_positions=1,
        n_embd=config.model_dim,
        n_layer=config.layers,
        n_head=config.heads,
        embd_pdrop=dropout,
        resid_pdrop=dropout,
        attn_pdrop=dropout if attention_dropout is None else attention_dropout,
        use_cache=False,
    )
    gpt2._attn_implementation = "sdpa"
    with torch.device("meta"):
        body = GPT2Model(gpt2)
    if checkpointing:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # newer versions rename it
            body.gradient_checkpointing_enable(  # type: ignore[no-untyped-call]
                gradient_checkpointing_kwargs={"use_reentrant": True}
            )
    del body.wte
    body.wpe = NoPositions(config.model_dim)  # type: ignore[assignment]
    body.load_state_dict(model.gpt.state_dict(keep_vars=True), assign=True)
    trained: GPT2Model = body.train()
    return trained


class ReferenceTrainer:
    """Executes the step on a model whose parameters it shares.

    Args:
        num_frozen: rows of the text tables whose gradients a hook sets to zero; 0 for no hooks.
        dtype: autocast type.
    """

    def __init__(
        self,
        model: UnifiedVoice,
        *,
        num_frozen: int,
        dtype: torch.dtype,
        learning_rate: float,
        weight_decay: float = 0.01,
        checkpointing: bool = True,
        attention_dropout: float | None = None,
    ) -> None:
        self.model, self.dtype, self.num_frozen = model, dtype, num_frozen
        self.body = reference_body(model, checkpointing, attention_dropout)
        self.device = next(model.parameters()).device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=weight_decay)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda _step: 1.0)

    def step(self, batch: GPTBatch) -> tuple[float, float, float]:
        """Execute one micro-step and one optimizer step on a padded batch in host memory.

        Returns:
            Losses of the text and the codes, and the accuracy of the codes, read to the host.
        """
        hooks = self._freeze_base_rows()
        batch = batch.to(self.device)
        with torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32):
            text_loss, mel_loss, top1 = self.losses(batch)
        loss = TEXT_WEIGHT * text_loss + MEL_WEIGHT * mel_loss
        loss.backward()  # type: ignore[no-untyped-call]
        read = text_loss.item(), mel_loss.item(), top1.item()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)
        for hook in hooks:
            hook.remove()
        return read

    def losses(self, batch: GPTBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean losses of the text and the codes, and the top-1 accuracy of the codes."""
        model, config = self.model, self.model.config
        text = pad_by_rows(batch.text_ids.clone(), batch.text_lengths, config.stop_text_token)
        codes = pad_by_rows(batch.codes.clone(), batch.code_lengths, config.stop_mel_token)
        text = F.pad(text, (0, 1), value=config.stop_text_token)
        codes = F.pad(codes, (0, 1), value=config.stop_mel_token)
        text_inputs, text_targets = aligned(text, config.start_text_token, config.stop_text_token)
        mel_inputs, mel_targets = aligned(codes, config.start_mel_token, config.stop_mel_token)
        sequence = torch.cat(
            [
                model.prefix(batch.condition, batch.emo_vec),
                model.embed_text(text_inputs, torch.arange(text_inputs.shape[1], device=text.device)),
                model.embed_codes(mel_inputs, torch.arange(mel_inputs.shape[1], device=text.device)),
            ],
            dim=1,
        )
        states = self.body(inputs_embeds=sequence, return_dict=True).last_hidden_state
        states = model.final_norm(states[:, config.prefix_length :])
        num_text = text_inputs.shape[1]
        text_logits = model.text_head(states[:, :num_text]).permute(0, 2, 1)  # (B, V+1, N+2)
        mel_logits = model.mel_head(states[:, num_text:]).permute(0, 2, 1)  # (B, C, M+2)
        text_mask = mask_of(text_targets, batch.text_lengths)
        mel_mask = mask_of(mel_targets, batch.code_lengths)
        text_nats = F.cross_entropy(text_logits, text_targets, reduction="none")
        mel_nats = F.cross_entropy(mel_logits, mel_targets, reduction="none")
        text_loss = (text_nats * text_mask).sum() / text_mask.sum()
        mel_loss = (mel_nats * mel_mask).sum() / mel_mask.sum()
        with torch.no_grad():
            scores = mel_logits.permute(0, 2, 1).reshape(-1, config.number_mel_codes)
            counted = mel_mask.reshape(-1).bool()
            top1 = (scores[counted].argmax(dim=-1) == mel_targets.reshape(-1)[counted]).float().mean()
        return text_loss, mel_loss, top1

    def _freeze_base_rows(self) -> list[Any]:
        if not self.num_frozen:
            return []

        def zero_base_rows(gradient: Tensor) -> Tensor:
            gradient = gradient.clone()
            gradient[: self.num_frozen] = 0
            return gradient

        model = self.model
        tables = (model.text_embedding.weight, model.text_head.weight, model.text_head.bias)
        return [table.register_hook(zero_base_rows) for table in tables]  # type: ignore[no-untyped-call]


def pad_by_rows(ids: Tensor, lengths: Tensor, stop: int) -> Tensor:
    """Write `stop` after each row's tokens; synchronises with the device for each row and use."""
    for row in range(len(ids)):
        end = lengths[row]
        if end < ids.shape[1]:
            ids[row, end:] = stop
    return ids


def aligned(ids: Tensor, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Return inputs that begin with `start`, and targets that end with `stop`."""
    return F.pad(ids, (1, 0), value=start), F.pad(ids, (0, 1), value=stop)


def mask_of(targets: Tensor, lengths: Tensor) -> Tensor:
    """Return 1 where a target counts: at the tokens of a row and its first stop."""
    columns = torch.arange(targets.shape[1], device=targets.device)
    return (columns[None] < lengths[:, None] + 1).float()
