"""What is trained, and by which rule: frozen base rows, parameter groups, one update.

Rows of the text tables, V pieces of which the first `base_size` are the base tokenizer's:

    0 .. base_size-1    the base's rows: frozen, bit-identical after any run
    base_size .. V      the new pieces' rows and the spare last row: trained

A hook that zeroes the gradient of the base rows does not freeze them: AdamW's decay and old moments move them
all the same. So the optimizer never sees them: it gets a parameter that is a view of the rows behind them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from indextts.checkpoint import TEXT_TABLES
from indextts.gpt.model import UnifiedVoice

# The speaker and emotion encoders: features are encoded once, before training, and no loss reaches them.
UNTRAINED = (
    "conditioning_encoder.",
    "perceiver_encoder.",
    "emo_conditioning_encoder.",
    "emo_perceiver_encoder.",
    "emo_layer.",
    "emovec_layer.",
)
EMBEDDINGS = (
    "text_embedding.weight",
    "mel_embedding.weight",
    "text_pos_embedding.emb.weight",
    "mel_pos_embedding.emb.weight",
    "speed_emb.weight",
)


@dataclass(frozen=True)
class NewRows:
    """A text table and the view of its trained rows that stands in for it in the optimizer."""

    name: str
    table: nn.Parameter
    view: nn.Parameter
    num_frozen: int


@dataclass(frozen=True)
class Trained:
    """All that is trained, by parameter name; a text table with frozen rows is its view."""

    parameters: dict[str, nn.Parameter]
    new_rows: tuple[NewRows, ...]

    @property
    def num_frozen(self) -> int:
        """Frozen values of the text tables."""
        return sum(rows.table[: rows.num_frozen].numel() for rows in self.new_rows)

    def collect_gradients(self) -> None:
        """Hand the gradients of the tables' trained rows to the views; call after the last backward."""
        for rows in self.new_rows:
            assert rows.table.grad is not None
            rows.view.grad = rows.table.grad[rows.num_frozen :]

    def clear_gradients(self) -> None:
        for parameter in self._all():
            parameter.grad = None

    def check_views(self) -> None:
        """Assert that the views still are the model's memory: a copy would train beside the model."""
        for rows in self.new_rows:
            behind = (
                rows.table.data_ptr() + rows.num_frozen * rows.table.stride(0) * rows.table.element_size()
            )
            assert rows.view.data_ptr() == behind, f"{rows.name}: the optimizer's rows are not the model's"

    def _all(self) -> Iterator[nn.Parameter]:
        yield from self.parameters.values()
        yield from (rows.table for rows in self.new_rows)


def select_trained(model: UnifiedVoice, base_size: int) -> Trained:
    """Return what is trained of `model`; switches gradients off for the encoders.

    Args:
        model: already on its device; moving it later would break the views.
        base_size: pieces of the base tokenizer. If the model has no more than these, nothing is frozen.
    """
    is_extended = model.config.number_text_tokens > base_size
    parameters, new_rows = {}, []
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(UNTRAINED))
        if not parameter.requires_grad:
            continue
        if is_extended and name in TEXT_TABLES:
            rows = NewRows(name, parameter, nn.Parameter(parameter.data[base_size:]), base_size)
            new_rows.append(rows)
            parameter = rows.view
        parameters[name] = parameter
    return Trained(parameters, tuple(new_rows))


def build_optimizer(trained: Trained, weight_decay: float) -> torch.optim.AdamW:
    """Return an AdamW whose state knows the parameters' names; only matrices decay.

    Embeddings, norms and biases are left out of the decay, as in Loshchilov and Hutter's follow-ups (GPT-2
    and its successors): a row that a batch does not use has no gradient to balance its decay.
    """
    decayed = {name: p for name, p in trained.parameters.items() if p.dim() >= 2 and name not in EMBEDDINGS}
    others = {name: p for name, p in trained.parameters.items() if name not in decayed}
    groups = [
        {"params": list(decayed.items()), "weight_decay": weight_decay},
        {"params": list(others.items()), "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, fused=True)


def load_optimizer(optimizer: torch.optim.AdamW, saved: dict[str, Any]) -> None:
    """Take over the moments of a saved optimizer by parameter name; rates and decay stay those of the run.

    By name, since AdamW itself goes by position: two parameters of one shape in another order would be
    swapped without a word.
    """
    old = {
        name: saved["state"][index]
        for group in saved["param_groups"]
        for index, name in zip(group["params"], group["param_names"], strict=True)
    }
    now = optimizer.state_dict()
    names = [name for group in now["param_groups"] for name in group["param_names"]]
    now["state"] = {index: old[name] for index, name in enumerate(names)}
    optimizer.load_state_dict(now)


def update(trained: Trained, optimizer: torch.optim.AdamW, learning_rate: float, max_norm: float) -> Tensor:
    """Do one optimizer step with the collected gradients; return their norm before clipping.

    A norm that is not finite changes nothing.
    """
    trained.collect_gradients()
    norm = torch.nn.utils.clip_grad_norm_(trained.parameters.values(), max_norm)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    if norm.isfinite():
        optimizer.step()
    trained.clear_gradients()
    return norm
