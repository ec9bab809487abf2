"""AdamW that keeps its moments in bfloat16: 4 bytes a trained value in place of 8.

    moments in bfloat16 --float32--> torch's fused AdamW --rounding--> moments in bfloat16

Weights, gradients and all arithmetic stay float32; only what is kept between two steps is shorter. The first
moment is rounded to the nearest. The second must not be: its beta of 0.999 moves it by a thousandth a step,
less than half of bfloat16's last place, so that nearest rounding would hold it for ever. It is rounded up or
down at random, with the odds that keep its mean, by bits that are a function of a seed which the caller gives
for each step: a resumed run rounds as this one would have.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

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
