"""Generation of semantic codes for a text and a voice, and the states that the acoustic model reads.

Axes: B prompts, N text tokens, K latents, D model width, M codes, C semantic codes.

    codes = generate(model, prompts, Sampling(seed=1))     several prompts at once
    states = code_states(model, prompt, codes[0].codes)    the second pass, at training's positions
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from indextts.commands.sampling_options import Sampling
from indextts.models.gpt.decoder import Decoder, make_prefix
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.sampling import (
    apply_repetition_penalty,
    draw,
    filter_scores,
    prompt_generator,
    search_beams,
)

DUMMY_CODE = (
    1  # the published code fills the prefix with ones, so the repetition penalty counts code 1 as used
)

OnStep = Callable[[int], None]


@dataclass(frozen=True)
class Prompt:
    """A text and a voice.

    Args:
        condition: (K, D), from `UnifiedVoice.conditioning`.
        emo_vec: (D,), from `UnifiedVoice.emotion`.
        text_ids: (N,), without start and stop.
    """

    condition: Tensor
    emo_vec: Tensor
    text_ids: Tensor


@dataclass(frozen=True)
class Generated:
    """The codes of one prompt.

    Args:
        codes: (M,), without start and stop.
        has_stopped: whether the model generated a stop token before the limit.
        score: of the best beam, see `Hypothesis`; None without beam search.
    """

    codes: Tensor
    has_stopped: bool
    score: float | None = None


def generate(
    model: UnifiedVoice, prompts: Sequence[Prompt], sampling: Sampling, on_step: OnStep = lambda _: None
) -> list[Generated]:
    """Generate codes for each prompt; except for rounding, they do not depend on the rest of the batch.

    Args:
        model: in eval mode.
        prompts: with tensors on the model's device.
        sampling: settings; the model's positions also limit the number of codes.
        on_step: called with the number of codes so far.

    Raises:
        ValueError: a text is too long for the model's positions.
    """
    if sampling.num_beams > 1:
        return [_search_beams(model, p, row, sampling, on_step) for row, p in enumerate(prompts)]
    return _generate_batch(model, prompts, sampling, on_step)


@torch.inference_mode()
def code_states(model: UnifiedVoice, prompt: Prompt, codes: Tensor) -> Tensor:
    """Return the states that predict each of `codes` (M,), the input of the acoustic model: (M, D)."""
    config = model.config
    edges = (config.start_text_token, config.stop_text_token)
    ids = torch.tensor([id for id in prompt.text_ids.tolist() if id not in edges], device=codes.device)
    text = model.frame_text(ids[None], torch.tensor([len(ids)], device=codes.device))
    framed = model.frame_codes(codes[None], torch.tensor([len(codes)], device=codes.device))
    prefix = model.prefix(prompt.condition[None], prompt.emo_vec[None])
    return model.states(prefix, text.inputs, framed.inputs)[1][0, :-2]


def max_num_codes(model: UnifiedVoice, sampling: Sampling) -> int:
    """Return the limit of generated codes."""
    return min(sampling.max_codes, model.config.max_mel_tokens)


def initially_used(model: UnifiedVoice, num_rows: int, device: torch.device) -> Tensor:
    """Return the codes that the repetition penalty counts as used before the first step: (num_rows, C)."""
    is_used = torch.zeros(num_rows, model.config.number_mel_codes, dtype=torch.bool, device=device)
    is_used[:, [DUMMY_CODE, model.config.start_mel_token]] = True
    return is_used


@torch.inference_mode()
def _generate_batch(
    model: UnifiedVoice, prompts: Sequence[Prompt], sampling: Sampling, on_step: OnStep
) -> list[Generated]:
    """Generate by sampling or greedily; finished rows leave the batch."""
    decoder = Decoder(model, sampling.positions)
    scores = decoder.start(make_prefix(model, _conditions(model, prompts), [p.text_ids for p in prompts]))
    is_used = initially_used(model, len(prompts), scores.device)
    generators = [prompt_generator(sampling, row) for row in range(len(prompts))]
    chosen: list[list[int]] = [[] for _ in prompts]
    has_stopped = [False] * len(prompts)
    active = list(range(len(prompts)))
    limit = max_num_codes(model, sampling)
    while active:
        scores = apply_repetition_penalty(scores, is_used, sampling.repetition_penalty)
        if sampling.do_sample:
            scores = filter_scores(scores, sampling, min_kept=1)
            codes = torch.cat([draw(row, 1, generators[n]) for row, n in zip(scores, active, strict=True)])
        else:
            codes = scores.argmax(-1)
        is_used[torch.arange(len(active), device=codes.device), codes] = True
        unfinished = []
        for place, code in enumerate(codes.tolist()):
            row = active[place]
            has_stopped[row] = code == model.config.stop_mel_token
            if not has_stopped[row]:
                chosen[row].append(code)
                if len(chosen[row]) < limit:
                    unfinished.append(place)
        on_step(max(map(len, chosen)))
        if len(unfinished) < len(active):
            rows = torch.tensor(unfinished, dtype=torch.long, device=codes.device)
            decoder.select_rows(rows)
            codes, is_used = codes[rows], is_used[rows]
            active = [active[place] for place in unfinished]
        if active:
            scores = decoder.step(codes)
    return [
        Generated(torch.tensor(codes, dtype=torch.long, device=scores.device), stopped)
        for codes, stopped in zip(chosen, has_stopped, strict=True)
    ]


def _search_beams(
    model: UnifiedVoice, prompt: Prompt, row: int, sampling: Sampling, on_step: OnStep
) -> Generated:
    decoder = Decoder(model, sampling.positions)
    prefix = make_prefix(model, _conditions(model, [prompt]), [prompt.text_ids])
    is_used = initially_used(model, sampling.num_beams, prefix.embedded.device)
    limit = max_num_codes(model, sampling)
    best = search_beams(decoder, prefix, is_used, limit, sampling, prompt_generator(sampling, row), on_step)
    return Generated(best.codes, best.has_stopped, best.score)


def _conditions(model: UnifiedVoice, prompts: Sequence[Prompt]) -> Tensor:
    return model.prefix(
        torch.stack([prompt.condition for prompt in prompts]),
        torch.stack([prompt.emo_vec for prompt in prompts]),
    )
