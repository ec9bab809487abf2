"""The choice of codes for many prompts at once: sampling, greedy search and beam search.

Axes: B prompts, K beams, C semantic codes, L largest number of codes, W codes that may follow a beam.

Beam search adds the processed log-probabilities of each step to the score of the beam. Of the 2K best (or
sampled) continuations of a prompt, a stop token among the first K finishes a hypothesis, and the first K
without a stop continue. The search of a prompt ends when K hypotheses are finished and the best running beam,
under the current length penalty, is no better than the worst of them.

With one beam, codes are chosen by the processed logits instead, and the first stop ends the search.

All state is in tensors that are changed in place, without a look at their values by the host: on a GPU a step
is captured in a CUDA graph. A prompt that is done changes no more. A new one may take its place at any step.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from indextts.commands.sampling_options import Sampling
from indextts.models.gpt.config import GPTConfig
from indextts.models.gpt.sampling import NEG_INF, apply_repetition_penalty, best_codes, draw, step_words

DUMMY_CODE = (
    1  # the published code fills the prefix with ones, so the repetition penalty counts code 1 as used
)
UNUSED_BEAM = -1e9  # initial score of all beams but the first: they would be copies of it


@dataclass(frozen=True)
class Generated:
    """The codes of one prompt.

    Args:
        codes: (M,), without start and stop.
        has_stopped: whether the model generated a stop token before the limit.
        score: of the best beam, the sum of its processed log-probabilities over its length to the power of
            the length penalty; None without beam search.
    """

    codes: Tensor
    has_stopped: bool
    score: float | None = None


def initially_used(config: GPTConfig, num_rows: int, device: torch.device) -> Tensor:
    """Return the codes that the repetition penalty counts as used before the first step: (num_rows, C)."""
    is_used = torch.zeros(num_rows, config.number_mel_codes, dtype=torch.bool, device=device)
    is_used[:, [DUMMY_CODE, config.start_mel_token]] = True
    return is_used


class Search:
    """The state of the search for all prompts, each at its own number of codes.

    Attributes:
        chosen: (B, K), the newest code of each beam.
        last: (B, 1), the place of the newest code, from 0; it stays while a prompt is done.
        is_done: (B,), whether the search of a prompt has ended.
    """

    def __init__(self, config: GPTConfig, sampling: Sampling, seeds: Tensor, limit: int) -> None:
        """Create the state before the first step.

        Args:
            seeds: (B,), of each prompt, on the device of the search; the seed of `sampling` is not used.
        """
        rows, beams, device = len(seeds), sampling.num_beams, seeds.device
        self.sampling, self.stop = sampling, config.stop_mel_token
        self.last = torch.full((rows, 1), -1, device=device)
        self.chosen = torch.zeros(rows, beams, dtype=torch.long, device=device)
        self.is_done = torch.zeros(rows, dtype=torch.bool, device=device)
        self._is_cut = torch.zeros_like(self.is_done)  # ended by the limit
        self._words = step_words(seeds, torch.arange(1, limit + 1, device=device))  # of the noise, (B, limit)
        self._codes = torch.zeros(rows, beams, limit, dtype=torch.int32, device=device)
        self._is_used = initially_used(config, rows * beams, device).view(
            rows, beams, config.number_mel_codes
        )
        self._sums = torch.full((rows, beams), UNUSED_BEAM, device=device)
        self._sums[:, 0] = 0.0
        # finished hypotheses of each prompt, best first; a single beam has only itself
        kept = beams if beams > 1 else 0
        self._final_scores = torch.full((rows, kept), NEG_INF, device=device)
        self._final_codes = self._codes.new_zeros(rows, kept, limit)
        self._final_lengths = self.chosen.new_zeros(rows, kept)
        self._final_stopped = self.is_done.new_zeros(rows, kept)

    @torch.inference_mode()
    def update(self, logits: Tensor, width: int) -> Tensor:
        """Choose the next code of each beam; return the beam that each continues: (B, K).

        Args:
            logits: (B, K, C), float32.
            width: a bound of the number of codes after this step.
        """
        self.last += ~self.is_done[:, None]
        if self.sampling.num_beams == 1:
            return self._update_single(logits[:, 0])
        return self._update_beams(logits, width)

    def _update_single(self, logits: Tensor) -> Tensor:
        sampling = self.sampling
        scores = apply_repetition_penalty(logits, self._is_used[:, 0], sampling.repetition_penalty)
        values, codes = best_codes(scores, sampling, min_kept=1)  # (B, W) each
        if sampling.do_sample:
            codes = codes.gather(1, draw(values, codes, self._words.gather(1, self.last), 1))
        self.chosen.copy_(codes)  # (B, 1)
        # after a stop, the stop is overwritten, which is no part of the result
        self._codes[:, 0].scatter_(1, self.last, codes.int())
        self.is_done |= (codes == self.stop)[:, 0]
        if sampling.repetition_penalty != 1:
            self._is_used[:, 0].scatter_(1, codes, True)
        return torch.zeros_like(codes)

    def _update_beams(self, logits: Tensor, width: int) -> Tensor:
        sampling, num_beams, num_codes = self.sampling, self.sampling.num_beams, logits.shape[2]
        scores = apply_repetition_penalty(
            logits.log_softmax(-1), self._is_used, sampling.repetition_penalty
        )  # (B, K, C)
        values, codes = best_codes(scores, sampling, min_kept=2 if sampling.do_sample else 2 * num_beams)
        totals = (values + self._sums[:, :, None]).flatten(1)  # (B, K * W)
        places = self._candidates(totals, codes, num_codes)  # (B, 2K), best first
        totals, codes = totals.gather(1, places), codes.flatten(1).gather(1, places)
        beams = places // values.shape[2]  # (B, 2K)
        is_real = totals > NEG_INF
        is_stop = is_real & (codes == self.stop)

        length_factor = (self.last + 1).float() ** sampling.length_penalty  # (B, 1)
        ends = is_stop[:, :num_beams] & ~self.is_done[:, None]
        before = self._codes.gather(1, beams[:, :num_beams, None].expand(-1, -1, self._codes.shape[2]))
        self._keep(totals[:, :num_beams] / length_factor, ends, before, width)

        is_running = is_real & ~is_stop
        order = (~is_running).int().argsort(dim=1, stable=True)[:, :num_beams]  # running ones first
        num_running = is_running.sum(1, keepdim=True)  # (B, 1)
        is_filled = torch.arange(num_beams, device=order.device) < num_running
        order = torch.where(is_filled, order, order[:, :1])  # copies of the best, scored UNUSED_BEAM
        beams, codes = beams.gather(1, order), codes.gather(1, order)  # (B, K)
        self._sums.copy_(torch.where(is_filled, totals.gather(1, order), UNUSED_BEAM))
        self._follow(beams, codes, width)
        is_settled = self._final_scores[:, -1] >= self._sums[:, 0] / length_factor[:, 0]
        self.is_done |= is_settled | (num_running[:, 0] == 0)
        return beams

    def _candidates(self, totals: Tensor, codes: Tensor, num_codes: int) -> Tensor:
        """Return the places of the 2K candidates among `totals` (B, K * W), best first: (B, 2K)."""
        number = 2 * self.sampling.num_beams
        if not self.sampling.do_sample:
            return totals.topk(number).indices
        of_beam = torch.arange(codes.shape[1], device=codes.device)[:, None] * num_codes  # (K, 1)
        drawn = draw(totals, (codes + of_beam).flatten(1), self._words.gather(1, self.last), number)
        return drawn.gather(1, totals.gather(1, drawn).argsort(dim=1, descending=True))

    def _follow(self, beams: Tensor, codes: Tensor, width: int) -> None:
        """Continue `beams` (B, K) with `codes` (B, K)."""
        self.chosen.copy_(codes)
        self._is_used.copy_(self._is_used.gather(1, beams[:, :, None].expand_as(self._is_used)))
        self._is_used.scatter_(2, codes[:, :, None], True)
        history = self._codes[:, :, :width]
        history.copy_(history.gather(1, beams[:, :, None].expand_as(history)))
        places = self.last[:, None].expand(*codes.shape, 1)
        self._codes.scatter_(2, places, codes[:, :, None].int())

    def _keep(
        self, scores: Tensor, ends: Tensor, codes: Tensor, width: int, has_stopped: bool = True
    ) -> None:
        """Add hypotheses to the finished ones and keep the best K of each prompt.

        Args:
            scores: (B, J).
            ends: (B, J), the others are no hypotheses.
            codes: (B, J, L).
            width: a bound of their number.
            has_stopped: whether they end with a stop token, in this step.
        """
        joined = torch.cat([self._final_scores, scores.masked_fill(~ends, NEG_INF)], dim=1)  # (B, K + J)
        best = joined.topk(self._final_scores.shape[1])
        self._final_scores.copy_(best.values)
        of_codes = best.indices[:, :, None].expand(-1, -1, width)
        all_codes = torch.cat([self._final_codes[:, :, :width], codes[:, :, :width]], dim=1)
        self._final_codes[:, :, :width].copy_(all_codes.gather(1, of_codes))
        new_lengths = (self.last + int(not has_stopped)).expand(scores.shape)
        lengths = torch.cat([self._final_lengths, new_lengths], dim=1)
        self._final_lengths.copy_(lengths.gather(1, best.indices))
        stopped = torch.cat([self._final_stopped, torch.full_like(ends, has_stopped)], dim=1)
        self._final_stopped.copy_(stopped.gather(1, best.indices))

    @torch.inference_mode()
    def finish(self, places: Tensor) -> None:
        """End the search of prompts (N,) at the limit: their running beams become hypotheses."""
        ends = torch.zeros_like(self.is_done).index_fill(0, places, True) & ~self.is_done
        if self.sampling.num_beams > 1:
            scores = self._sums / (self.last + 1).float() ** self.sampling.length_penalty
            running = ends[:, None].expand_as(self._sums)
            self._keep(scores, running, self._codes, self._codes.shape[2], has_stopped=False)
        self._is_cut |= ends
        self.is_done |= ends

    @torch.inference_mode()
    def put(self, places: Tensor, other: "Search") -> None:
        """Let the prompts of another search take `places` (N,), of prompts that are done or the next ones."""
        more = max(0, int(places.max()) + 1 - len(self.is_done))
        for name, value in self._tensors().items():
            if more:
                value = F.pad(value, (0, 0) * (value.dim() - 1) + (0, more))
                setattr(self, name, value)
            value[places] = getattr(other, name)

    @torch.inference_mode()
    def select_prompts(self, rows: Tensor) -> None:
        """Continue with these prompts (B',), in this order."""
        for name, value in self._tensors().items():
            setattr(self, name, value[rows])

    def _tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def settled(self, place: int) -> Tensor:
        """Return the codes of a prompt that no further step can change, on the CPU: (M,).

        They are common to all beams that run and to all hypotheses that are finished.
        """
        num_codes = int(self.last[place]) + 1
        is_used = self._sums[place] > UNUSED_BEAM / 2
        candidates = [row[:num_codes] for row in self._codes[place][is_used].cpu()]
        for row, length, score in zip(
            self._final_codes[place].cpu(),
            self._final_lengths[place].tolist(),
            self._final_scores[place].tolist(),
            strict=True,
        ):
            if score > NEG_INF:
                candidates.append(row[:length])
        shortest = min(map(len, candidates))
        together = torch.stack([row[:shortest] for row in candidates])  # (number of candidates, shortest)
        is_common = (together == together[:1]).all(0)
        return together[0, : int(is_common.int().cumprod(0).sum())].long()

    def results(self, places: Tensor) -> list[Generated]:
        """Return the best hypothesis of each of these prompts (N,), which are done."""
        if self.sampling.num_beams == 1:
            stopped = ~self._is_cut[places]
            codes, lengths = self._codes[places, 0], self.last[places, 0] + 1 - stopped.long()
            scores: list[float | None] = [None] * len(places)
        else:
            codes, lengths, stopped = (
                value[places, 0] for value in (self._final_codes, self._final_lengths, self._final_stopped)
            )
            scores = self._final_scores[places, 0].tolist()
        return [
            Generated(row[:length].long().clone(), has_stopped, score)
            for row, length, has_stopped, score in zip(
                codes, lengths.tolist(), stopped.tolist(), scores, strict=True
            )
        ]
