"""What is trained, and by which rule: frozen base rows, parameter groups, one update.

Rows of the text tables, V pieces of which the first `base_size` are the base tokenizer's:

    0 .. base_size-1    the base's rows: frozen, bit-identical after any run
    base_size .. V      the new pieces' rows and the spare last row: trained

A hook that zeroes the gradient of the base rows does not freeze them: AdamW's decay and old moments move them
all the same. So the optimizer never sees them: it gets a parameter that is a view of the rows behind them.

AdamW that keeps its moments in bfloat16: 4 bytes a trained value in place of 8.

    moments in bfloat16 --float32--> torch's fused AdamW --rounding--> moments in bfloat16

Weights, gradients and all arithmetic stay float32; only what is kept between two steps is shorter. The first
moment is rounded to the nearest. The second must not be: its beta of 0.999 moves it by a thousandth a step,
less than half of bfloat16's last place, so that nearest rounding would hold it for ever. It is rounded up or
down at random, with the odds that keep its mean, by bits that are a function of a seed which the caller gives
for each step: a resumed run rounds as this one would have.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from indextts.errors import LOSS_NOT_FINITE, UserError
from indextts.models.checkpoint import TEXT_TABLES
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.weights import ENCODERS, in_threads

logger = logging.getLogger(__name__)

MOST_SKIPPED_IN_A_ROW = 10
NUM_IDS_SHOWN = 8

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

    def fill_missing_gradients(self) -> None:
        """Put zeros where the samples left no gradient, as where there were none."""
        for parameter in self._with_gradients():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def gradients(self) -> list[Tensor]:
        """Return the gradients that the optimizer sees, after `collect_gradients`."""
        return [parameter.grad for parameter in self.parameters.values() if parameter.grad is not None]

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

    def _with_gradients(self) -> Iterator[nn.Parameter]:
        """The model's own: a table in place of the view of its trained rows."""
        views = {rows.name for rows in self.new_rows}
        yield from (each for name, each in self.parameters.items() if name not in views)
        yield from (rows.table for rows in self.new_rows)

    def _all(self) -> Iterator[nn.Parameter]:
        yield from self.parameters.values()
        yield from (rows.table for rows in self.new_rows)


def weight_device(name: str, device: torch.device) -> torch.device:
    """Return where a weight shall be: on the device, but for the encoders, which no step needs."""
    return torch.device("cpu") if name.startswith(ENCODERS) else device


def select_trained(model: UnifiedVoice, base_size: int) -> Trained:
    """Return what is trained of `model`; switches gradients off for the encoders.

    Args:
        model: already on its device; moving it later would break the views.
        base_size: pieces of the base tokenizer. If the model has no more than these, nothing is frozen.
    """
    is_extended = model.config.number_text_tokens > base_size
    parameters, new_rows = {}, []
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(ENCODERS))
        if not parameter.requires_grad:
            continue
        if is_extended and name in TEXT_TABLES:
            rows = NewRows(name, parameter, nn.Parameter(parameter.data[base_size:]), base_size)
            new_rows.append(rows)
            parameter = rows.view
        parameters[name] = parameter
    return Trained(parameters, tuple(new_rows))


def build_optimizer(
    trained: Trained, weight_decay: float, state: torch.dtype = torch.float32
) -> torch.optim.AdamW:
    """Return an AdamW whose state knows the parameters' names; only matrices decay.

    Embeddings, norms and biases are left out of the decay, as in Loshchilov and Hutter's follow-ups (GPT-2
    and its successors): a row that a batch does not use has no gradient to balance its decay.

    Args:
        state: type of the moments, float32 or bfloat16.
    """
    decayed = {name: p for name, p in trained.parameters.items() if p.dim() >= 2 and name not in EMBEDDINGS}
    others = {name: p for name, p in trained.parameters.items() if name not in decayed}
    groups = [
        {"params": list(decayed.items()), "weight_decay": weight_decay},
        {"params": list(others.items()), "weight_decay": 0.0},
    ]
    kind = torch.optim.AdamW if state == torch.float32 else Bfloat16StateAdamW
    optimizer = kind(groups, lr=0.0, fused=True)
    for parameter in trained.parameters.values():  # now, so that memory that is short shows at the start
        optimizer.state[parameter] = {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter, dtype=state, requires_grad=False),
            "exp_avg_sq": torch.zeros_like(parameter, dtype=state, requires_grad=False),
        }
    return optimizer


def load_optimizer(
    optimizer: torch.optim.AdamW, trained: Trained, moments: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Copy `moments` into the optimizer; rates and decay stay those of the run.

    Args:
        moments: per parameter name `step` (), `exp_avg` and `exp_avg_sq` of the parameter's shape. A
            parameter without an entry starts fresh. They may be of another type than the optimizer's.
    """

    def copy(name: str) -> None:
        for key, tensor in optimizer.state[trained.parameters[name]].items():
            tensor.copy_(moments[name][key])

    in_threads(copy, moments)


@dataclass(frozen=True)
class Update:
    """What became of a step, on the device.

    Args:
        norm: of the gradient before clipping, 0-dimensional.
        is_bad: 1.0 where the step was skipped since the loss or the gradient is not finite, else 0.0.
    """

    norm: Tensor
    is_bad: Tensor


def update(
    trained: Trained,
    optimizer: torch.optim.AdamW,
    learning_rate: float,
    max_norm: float,
    loss: Tensor,
    scaler: torch.amp.GradScaler | None = None,
    rounding_seed: int = 0,
) -> Update:
    """Do one optimizer step with the collected gradients; one that is not finite changes nothing.

    The fused kernels leave it out by themselves (as they do for a gradient scaler), so that the host need not
    wait for the device to say so.

    Args:
        scaler: by which the gradients were scaled; its scale shrinks where they are not finite.
        rounding_seed: of this step, where moments are rounded at random.
    """
    trained.collect_gradients()
    if scaler is not None:
        scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(trained.parameters.values(), max_norm)
    is_bad = 1.0 - (norm.isfinite() & loss.isfinite()).float()
    optimizer.grad_scale, optimizer.found_inf = None, is_bad  # type: ignore[attr-defined]
    if isinstance(optimizer, Bfloat16StateAdamW):
        optimizer.rounding_seed = rounding_seed
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    optimizer.step()
    if scaler is not None and scaler.is_enabled():
        scaler.update()
    trained.clear_gradients()
    return Update(norm, is_bad)


class SkippedSteps:
    """Counts the steps that changed nothing, and ends the run when too many come in a row.

    The flags stay on the device until `check`, so that the steps in between need not wait.

    Args:
        is_said: whether this process names them; of several, which all skip the same steps, one does.
    """

    def __init__(self, total: int = 0, *, should_log: bool = True) -> None:
        self.total, self.in_a_row, self.should_log = total, 0, should_log
        self._pending: list[tuple[int, tuple[str, ...], Tensor]] = []

    def note(self, step: int, ids: tuple[str, ...], is_bad: Tensor) -> None:
        """Note the flag of `step`, made of the pairs `ids`."""
        self._pending.append((step, ids, is_bad))

    @property
    def is_due(self) -> bool:
        """Whether reading the flags now costs nothing, or cannot wait."""
        if not self._pending:
            return False
        is_on_host = self._pending[-1][2].device.type == "cpu"
        return is_on_host or len(self._pending) >= MOST_SKIPPED_IN_A_ROW

    def check(self) -> None:
        """Read the flags and name the steps that were skipped.

        Raises:
            UserError: with status 6 after ten in a row.
        """
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        flags = torch.stack([is_bad for _, _, is_bad in pending]).tolist()
        for (step, ids, _), is_bad in zip(pending, flags, strict=True):
            self.in_a_row = self.in_a_row + 1 if is_bad else 0
            if not is_bad:
                continue
            self.total += 1
            if self.should_log:
                logger.warning(
                    "Step %d is skipped, its loss or gradient is not finite (%d so far); its pairs: %s",
                    step,
                    self.total,
                    ", ".join(ids[:NUM_IDS_SHOWN]) + (" ..." if len(ids) > NUM_IDS_SHOWN else ""),
                )
            if self.in_a_row == MOST_SKIPPED_IN_A_ROW:
                raise UserError(
                    f"The loss or the gradient was not finite in {self.in_a_row} steps in a row, up to step "
                    f"{step}; the last checkpoint is untouched: look at the data named above, or lower "
                    "--learning-rate, and go on with --resume auto",
                    LOSS_NOT_FINITE,
                )


DROPPED_BITS = 16  # of a float32's mantissa, which bfloat16 does not have


class Bfloat16StateAdamW(torch.optim.AdamW):
    """Takes the groups of torch's AdamW; `exp_avg` and `exp_avg_sq` of its state are bfloat16.

    Args:
        rounding_seed: of the next step.
    """

    rounding_seed: int = 0

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Do one step with the gradients that are there; `found_inf` holds as for the fused AdamW."""
        assert closure is None
        generators: dict[torch.device, torch.Generator] = {}
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                device = parameter.device
                if device not in generators:
                    generators[device] = torch.Generator(device).manual_seed(self.rounding_seed)
                self._step_of(parameter, group, generators[device])

    def _step_of(self, parameter: Tensor, group: dict[str, Any], generator: torch.Generator) -> None:
        state = self.state[parameter]
        exp_avg, exp_avg_sq = state["exp_avg"].float(), state["exp_avg_sq"].float()
        assert parameter.grad is not None
        adamw(
            [parameter],
            [parameter.grad],
            [exp_avg],
            [exp_avg_sq],
            [],
            [state["step"]],
            fused=True,
            found_inf=getattr(self, "found_inf", None),
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )
        state["exp_avg"].copy_(exp_avg)
        state["exp_avg_sq"].copy_(rounded_at_random(exp_avg_sq, generator))


def rounded_at_random(values: Tensor, generator: torch.Generator) -> Tensor:
    """Return float32 `values`, written over, as one of the two bfloat16 numbers around each.

    What bfloat16 holds exactly stays: a step that changes nothing changes no moment.
    """
    size = values.numel()
    words = torch.empty(-(-size // 4), dtype=torch.int64, device=values.device)
    words.random_(-(2**63), None, generator=generator)  # one draw for four values
    noise = words.view(torch.int16)[:size].view(values.shape).int() & (2**DROPPED_BITS - 1)
    bits = values.view(torch.int32)
    bits.add_(noise).bitwise_and_(-(2**DROPPED_BITS))
    return values
