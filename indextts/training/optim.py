"""Optimizer: trained parameters, frozen base rows, AdamW with float32 or bfloat16 moments.

A LoRA run trains the adapters, rows of the text tables and the language rows, and the code head on request.

Rows of the text tables with V pieces, the first `base_size` of them from the base tokenizer, by the value of
--train-text-rows:

                        new        used                              all
    0 .. base_size-1    frozen     trained if their piece occurs     trained
    base_size .. V      trained    trained                           trained

Frozen rows are bit-identical after any run.

A gradient hook that zeroes the gradient of the base rows does not freeze them: AdamW's weight decay and old
moments still change them. So with `new` the optimizer never sees them: its parameter is a view of the rows
after them. With `used`, where rows of both kinds lie side by side, `step_at` puts the frozen ones back.

`Bfloat16StateAdamW` stores the moments in bfloat16, 4 bytes per trained value instead of 8:

    moments in bfloat16 --float32--> torch's fused AdamW --rounding--> moments in bfloat16

Weights, gradients and all computations stay float32; only the stored moments are shorter. The first moment is
rounded to nearest. The second must not be: its beta of 0.999 changes it by a thousandth per step, less than
half of bfloat16's last place, so rounding to nearest would never change it. It is rounded stochastically,
which keeps its mean, with bits from a seed that the caller sets for each step: a resumed run rounds the same.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from indextts.errors import LOSS_NOT_FINITE, UserError
from indextts.models.checkpoint import TEXT_TABLES
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.weights import ENCODERS, NUM_THREADS
from indextts.models.lora import IN, OUT
from indextts.models.weight_names import LANGUAGE_ROWS
from indextts.system.process_pool import map_in_threads

logger = logging.getLogger(__name__)

MAX_SKIPPED_IN_A_ROW = 10
NUM_IDS_SHOWN = 8
CODE_HEAD = ("mel_head.weight", "mel_head.bias")
TextChoice = Literal["new", "used", "all"]

EMBEDDINGS = (
    "text_embedding.weight",
    "mel_embedding.weight",
    "text_pos_embedding.emb.weight",
    "mel_pos_embedding.emb.weight",
    "speed_emb.weight",
    LANGUAGE_ROWS,
)


@dataclass(frozen=True)
class TextRows:
    """A text table and the view of its rows from `num_frozen` on, which replaces it in the optimizer."""

    name: str
    table: nn.Parameter
    view: nn.Parameter
    num_frozen: int


@dataclass(frozen=True)
class RowRates:
    """Rates of the rows of a table, which the optimizer knows by one rate only."""

    is_new: Tensor  # True for the rows with the rate of new rows; the others have that of the body
    is_trained: Tensor | None = None  # 1.0 or 0.0 for each row; None if all are trained

    def shares(self, of_body: float) -> Tensor:
        """Return the share of a step that each row takes, if a row of the body takes `of_body`."""
        shares = torch.where(self.is_new, 1.0, of_body)
        return shares if self.is_trained is None else shares * self.is_trained


@dataclass(frozen=True)
class TrainedParameters:
    """Trained parameters by name; a text table with frozen rows is represented by its view.

    Args:
        new_names: the parameters that the base lacks, which --new-row-lr-scale applies to.
        row_rates: by table whose rows have several rates: that of languages, if there are rows that the base
            was not trained on, and with --train-text-rows used or all those of texts; see `step_at`.
    """

    parameters: dict[str, nn.Parameter]
    text_rows: tuple[TextRows, ...]
    new_names: frozenset[str]
    row_rates: Mapping[str, RowRates] = field(default_factory=dict)

    @property
    def num_frozen(self) -> int:
        """Number of frozen values in the text tables."""
        return sum(self.frozen_rows(rows).numel() for rows in self.text_rows)

    def frozen_rows(self, rows: TextRows) -> Tensor:
        """Return the rows of a text table that are not trained."""
        rates = self.row_rates.get(rows.name)
        if rates is None or rates.is_trained is None:
            return rows.table[: rows.num_frozen]
        return rows.table[rates.is_trained.flatten() == 0]

    def collect_gradients(self) -> None:
        """Set the gradients of the views to those of their tables; call after the last backward pass."""
        for rows in self.text_rows:
            assert rows.table.grad is not None
            rows.view.grad = rows.table.grad[rows.num_frozen :]
            rates = self.row_rates.get(rows.name)
            if rates is not None and rates.is_trained is not None:
                rows.view.grad.mul_(rates.is_trained)  # no part of the norm that is clipped

    def fill_missing_gradients(self) -> None:
        """Set missing gradients to zeros, as on a rank without samples."""
        views = {rows.name for rows in self.text_rows}  # whose tables have the gradients
        own = (each for name, each in self.parameters.items() if name not in views)
        for parameter in (*own, *(rows.table for rows in self.text_rows)):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def gradients(self) -> list[Tensor]:
        """Return the gradients that the optimizer uses; call after `collect_gradients`."""
        return [parameter.grad for parameter in self.parameters.values() if parameter.grad is not None]

    def clear_gradients(self) -> None:
        for parameter in (*self.parameters.values(), *(rows.table for rows in self.text_rows)):
            parameter.grad = None

    def check_views(self) -> None:
        """Assert that the views share the model's memory; a copy would be trained instead of the model."""
        for rows in self.text_rows:
            start = rows.table.data_ptr() + rows.num_frozen * rows.table.stride(0) * rows.table.element_size()
            assert rows.view.data_ptr() == start, f"{rows.name}: the optimizer's rows are not the model's"


def weight_device(name: str, device: torch.device) -> torch.device:
    """Return the device of a weight; the encoders stay on the CPU, since no step needs them."""
    return torch.device("cpu") if name.startswith(ENCODERS) else device


def select_trained(
    model: UnifiedVoice,
    base_size: int,
    new_languages: Iterable[int] = (),
    text_choice: TextChoice = "new",
    used_pieces: Iterable[int] = (),
    *,
    code_head: bool = False,
) -> TrainedParameters:
    """Return the trained parameters of `model`; disables the gradients of the others.

    With adapters these are the adapters, text rows, the language rows and perhaps the code head; else all but
    the encoders.

    Args:
        model: on its final device; moving it later would break the views.
        base_size: pieces of the base tokenizer. With `text_choice` "new" and no more pieces, no row is frozen
            without adapters, and all are with them.
        new_languages: rows of the languages of the run that the base was not trained on.
        text_choice, code_head: as in the Train command.
        used_pieces: the pieces of the training texts, for `text_choice` "used".
    """
    is_extended = model.config.number_text_tokens > base_size
    has_adapters = any(name.endswith(IN) for name, _ in model.named_parameters())
    first = base_size if text_choice == "new" else 0
    has_rows = is_extended or text_choice != "new"
    parameters, text_rows, rates = {}, [], {}
    for name, parameter in model.named_parameters():
        is_beside_adapters = (
            name.endswith((IN, OUT))
            or name == LANGUAGE_ROWS
            or (has_rows and name in TEXT_TABLES)
            or (code_head and name in CODE_HEAD)
        )
        parameter.requires_grad_(is_beside_adapters if has_adapters else not name.startswith(ENCODERS))
        if not parameter.requires_grad:
            continue
        if has_rows and name in TEXT_TABLES:
            rows = TextRows(name, parameter, nn.Parameter(parameter.data[first:]), first)
            text_rows.append(rows)
            if text_choice != "new":
                rates[name] = _text_rates(
                    parameter, base_size, used_pieces if text_choice == "used" else None
                )
            parameter = rows.view
        parameters[name] = parameter
    new_names = {rows.name for rows in text_rows if is_extended}
    languages = list(new_languages)
    if languages and LANGUAGE_ROWS in parameters:
        new_names.add(LANGUAGE_ROWS)
        table = parameters[LANGUAGE_ROWS]
        is_new = torch.zeros(len(table), 1, dtype=torch.bool)
        is_new[languages] = True
        # moved once: an index made in each step would make the host wait
        rates[LANGUAGE_ROWS] = RowRates(is_new.to(table.device))
    return TrainedParameters(parameters, tuple(text_rows), frozenset(new_names), rates)


def _text_rates(table: Tensor, base_size: int, used: Iterable[int] | None) -> RowRates:
    """Return the rates of a text table of which no row is cut off; `used` are its trained base rows."""
    shape = (-1, *(1 for _ in table.shape[1:]))
    is_new = (torch.arange(len(table), device=table.device) >= base_size).view(shape)
    if used is None:
        return RowRates(is_new)
    is_trained = is_new.flatten().float()
    is_trained[torch.tensor(sorted(used), dtype=torch.int64, device=table.device)] = 1.0
    return RowRates(is_new, is_trained.view(shape))


def build_optimizer(
    trained: TrainedParameters, weight_decay: float, state: torch.dtype = torch.float32
) -> torch.optim.AdamW:
    """Return an AdamW whose state has parameter names; weight decay applies to matrices only.

    Embeddings, norms and biases do not decay, as in GPT-2 and its successors: an embedding row that a batch
    does not use has no gradient to balance its decay.

    Args:
        state: data type of the moments, float32 or bfloat16.
    """
    decayed = {name: p for name, p in trained.parameters.items() if p.dim() >= 2 and name not in EMBEDDINGS}
    others = {name: p for name, p in trained.parameters.items() if name not in decayed}
    groups = [
        {"params": params, "weight_decay": decay, "is_new": is_new, "lr_scale": 1.0}
        for is_new in (False, True)
        for members, decay in ((decayed, weight_decay), (others, 0.0))
        if (params := [item for item in members.items() if (item[0] in trained.new_names) == is_new])
    ]
    kind = torch.optim.AdamW if state == torch.float32 else Bfloat16StateAdamW
    optimizer = kind(groups, lr=0.0, fused=True)
    for parameter in trained.parameters.values():  # now, so that a lack of memory shows at once
        optimizer.state[parameter] = {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter, dtype=state, requires_grad=False),
            "exp_avg_sq": torch.zeros_like(parameter, dtype=state, requires_grad=False),
        }
    return optimizer


def scale_rates(optimizer: torch.optim.AdamW, new_row_scale: float, *, is_frozen: bool) -> None:
    """Set `lr_scale` of each parameter group for a step: that of the new rows, and 1 or 0 for the body.

    A frozen body has the scale 0: its moments go on, so that it starts with those of many steps.
    """
    for group in optimizer.param_groups:
        group["lr_scale"] = new_row_scale if group["is_new"] else float(not is_frozen)


def step_at(optimizer: torch.optim.AdamW, trained: TrainedParameters, learning_rate: float) -> None:
    """Do one optimizer step at `learning_rate` times the `lr_scale` of each group.

    The optimizer knows one rate for a table. The rows of one in `row_rates` have several: those of languages
    that the base knows, and of its pieces, take the rate of the body. A step of AdamW, its decay included, is
    proportional to the rate, so the rest of the step is taken back: all of it for a frozen row.
    """
    scales = {}
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["lr_scale"]
        scales[group["is_new"]] = group["lr_scale"]
    before = []
    for name, rates in trained.row_rates.items():
        of_body = scales[False] / scales[True] if name in trained.new_names and False in scales else 1.0
        if of_body != 1 or rates.is_trained is not None:
            table = trained.parameters[name].detach()
            before.append((table, table.clone(), rates.shares(of_body)))
    optimizer.step()
    for table, values, shares in before:
        table.copy_(torch.where(shares == 1, table, values.lerp(table, shares)))


def load_optimizer(
    optimizer: torch.optim.AdamW, trained: TrainedParameters, moments: Mapping[str, Mapping[str, Tensor]]
) -> None:
    """Copy `moments` into the optimizer; learning rate and decay do not change.

    Args:
        moments: by parameter name, `step` () and `exp_avg` and `exp_avg_sq` of the parameter's shape; of any
            data type. A parameter without an entry starts fresh.
    """

    def copy(name: str) -> None:
        for key, tensor in optimizer.state[trained.parameters[name]].items():
            tensor.copy_(moments[name][key])

    list(map_in_threads(copy, moments, NUM_THREADS))


class SkippedSteps:
    """Counter of skipped steps, which ends the run when too many occur in a row.

    The flags stay on the device until `check`, so that the steps in between do not wait.

    Args:
        should_log: log the skipped steps; all ranks skip the same steps, and only rank 0 logs them.
    """

    def __init__(self, total: int = 0, in_a_row: int = 0, *, should_log: bool = True) -> None:
        self.total, self.in_a_row, self.should_log = total, in_a_row, should_log
        self._pending: list[tuple[int, tuple[str, ...], Tensor]] = []

    def note(self, step: int, ids: tuple[str, ...], is_bad: Tensor) -> None:
        """Record the flag of `step`, which used the pairs `ids`."""
        self._pending.append((step, ids, is_bad))

    @property
    def is_due(self) -> bool:
        """True when it is time to read the flags: free on the CPU, and on a GPU not to be delayed further."""
        if not self._pending:
            return False
        is_on_host = self._pending[-1][2].device.type == "cpu"
        return is_on_host or len(self._pending) >= MAX_SKIPPED_IN_A_ROW

    def check(self) -> None:
        """Read the flags and log the skipped steps.

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
                    "Skipped step %d: its loss or gradient is not finite (%d so far); its pairs: %s",
                    step,
                    self.total,
                    ", ".join(ids[:NUM_IDS_SHOWN]) + (" ..." if len(ids) > NUM_IDS_SHOWN else ""),
                )
            if self.in_a_row == MAX_SKIPPED_IN_A_ROW:
                raise UserError(
                    f"The loss or the gradient was not finite in {self.in_a_row} steps in a row, up to step "
                    f"{step}. The last checkpoint is intact: check the pairs named above or lower "
                    "--learning-rate, then resume with --resume auto",
                    LOSS_NOT_FINITE,
                )


DROPPED_BITS = 16  # of the float32 mantissa, which bfloat16 lacks


class Bfloat16StateAdamW(torch.optim.AdamW):
    """AdamW whose state has `exp_avg` and `exp_avg_sq` in bfloat16.

    Args:
        rounding_seed: seed of the next step's rounding.
    """

    rounding_seed: int = 0

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Do one optimizer step; `grad_scale` and `found_inf` act as in the fused AdamW."""
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
            grad_scale=getattr(self, "grad_scale", None),
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
        state["exp_avg_sq"].copy_(stochastically_rounded(exp_avg_sq, generator))


def stochastically_rounded(values: Tensor, generator: torch.Generator) -> Tensor:
    """Round float32 `values` in place, each to one of its two neighboring bfloat16 numbers; return them.

    Exact bfloat16 numbers do not change, so a skipped step changes no moment.
    """
    size = values.numel()
    words = torch.empty(-(-size // 4), dtype=torch.int64, device=values.device)
    words.random_(-(2**63), None, generator=generator)  # one draw provides four values
    noise = words.view(torch.int16)[:size].view(values.shape).int() & (2**DROPPED_BITS - 1)
    bits = values.view(torch.int32)
    bits.add_(noise).bitwise_and_(-(2**DROPPED_BITS))
    return values
