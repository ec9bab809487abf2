"""Outputs that the model generates from the inputs of a gpt folder, for `conformance`.

Axes: B rows, P positions of a prefix, C semantic codes, S steps.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from indextts.commands.sampling_options import Sampling
from indextts.models.gpt.decoder import Decoder, Prefix, make_prefix
from indextts.models.gpt.generate import Prompt, generate
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.sampling import apply_repetition_penalty
from indextts.models.gpt.search import DUMMY_CODE, initially_used
from tests.reference_vectors import Vectors

GREEDY = Sampling(do_sample=False, num_beams=1, repetition_penalty=1)


@dataclass(frozen=True)
class Steps:
    """Values at each step of a greedy generation; all rows of a batch run to the limit."""

    codes: Tensor  # (B, S), with the stop where there was one
    logits: Tensor  # (B, S, C)
    scores: Tensor  # (B, S, C), after the penalty


@torch.no_grad()
def generation_results(vectors: Vectors, model: UnifiedVoice) -> Iterator[tuple[str, Any]]:
    """Name and value of every array about generation that the folder has."""
    if "gen_text_padded" not in vectors.arrays:
        return
    batch = vectors.batch()
    texts = [ids[:length] for ids, length in zip(batch.text_ids, batch.text_lengths, strict=True)]
    stop = model.config.stop_text_token
    yield (
        "gen_text_padded",
        batch.text_ids.masked_fill(
            torch.arange(batch.text_ids.shape[1]) >= batch.text_lengths[:, None], stop
        ),
    )
    prefix = make_prefix(model, model.prefix(batch.condition, batch.emo_vec), texts, batch.languages)
    with_start = F.pad(prefix.is_real, (0, 1), value=True)
    yield "gen_prefix_emb", prefix.embedded
    yield "gen_attn_mask", with_start.long()
    yield (
        "gen_fake_ids",
        torch.full_like(with_start, DUMMY_CODE, dtype=torch.long).index_fill(
            1, torch.tensor(with_start.shape[1] - 1), model.config.start_mel_token
        ),
    )
    limit = vectors.max_new_tokens or vectors.arrays["gen_batch_greedy_codes"].shape[1]
    steps = greedy_steps(model, prefix, limit, penalty=1)
    yield from {"gen_batch_greedy_codes": steps.codes, "gen_batch_greedy_logits": steps.logits}.items()
    for name in vectors.arrays:
        if match := re.fullmatch(r"gen_greedy_codes_(\d+)", name):
            row = int(match[1])
            prompt = vectors.prompt(row, texts[row])
            yield from padded_prefix(model, prompt, "gen", f"_{row}")
            yield from single_results(vectors, model, row, prompt)
    if "drop_text_ids" in vectors.arrays:
        prompt = vectors.prompt(0, vectors.tensor("drop_text_ids")[0])
        yield from padded_prefix(model, prompt, "drop", "")
        steps = greedy_steps(model, prefix_of(model, prompt), limit, penalty=1)
        yield "drop_greedy_codes", with_stop(model, prompt, GREEDY, limit)[0]
        yield "drop_greedy_logits", steps.logits


def prefix_of(model: UnifiedVoice, prompt: Prompt) -> Prefix:
    conditions = model.prefix(prompt.condition[None], prompt.emo_vec[None])
    languages = None if prompt.language is None else torch.tensor([prompt.language])
    return make_prefix(model, conditions, [prompt.text_ids], languages)


def padded_prefix(model: UnifiedVoice, prompt: Prompt, kind: str, of_row: str) -> Iterator[tuple[str, Any]]:
    """The prefix with padding for every id that is dropped from the text, and for the id 1 behind it."""
    edges = (model.config.start_text_token, model.config.stop_text_token)
    num_padded = 1 + sum(id in edges for id in prompt.text_ids.tolist())
    prefix = prefix_of(model, prompt)
    yield f"{kind}_prefix_emb{of_row}", F.pad(prefix.embedded, (0, 0, num_padded, 0))
    yield f"{kind}_attn_mask{of_row}", F.pad(F.pad(prefix.is_real, (num_padded, 0)).long(), (0, 1), value=1)


def single_results(
    vectors: Vectors, model: UnifiedVoice, row: int, prompt: Prompt
) -> Iterator[tuple[str, Any]]:
    prefix = prefix_of(model, prompt)

    def limit(name: str) -> int:
        return vectors.max_new_tokens or vectors.arrays[name].shape[1]

    for name, penalty in (("greedy", 1), ("rep10", 10)):
        most = limit(f"gen_{name}_codes_{row}")
        steps = greedy_steps(model, prefix, most, penalty)
        sampling = GREEDY.model_copy(update={"repetition_penalty": penalty})
        yield f"gen_{name}_codes_{row}", with_stop(model, prompt, sampling, most)[0]
        yield f"gen_{name}_logits_{row}", steps.logits
        yield f"gen_{name}_scores_{row}", steps.scores
    beams = GREEDY.model_copy(update={"num_beams": 3, "repetition_penalty": 10.0})
    codes, score = with_stop(model, prompt, beams, limit(f"gen_beam3_codes_{row}"))
    yield from {f"gen_beam3_codes_{row}": codes, f"gen_beam3_seqscore_{row}": [score]}.items()


def greedy_steps(model: UnifiedVoice, prefix: Prefix, limit: int, penalty: float) -> Steps:
    """The best code at every step until all rows have ended; ended rows go on with the stop code."""
    decoder = Decoder(model, "published")
    seen: list[tuple[Tensor, Tensor, Tensor]] = []
    logits, stop = decoder.start(prefix), model.config.stop_mel_token
    is_used = initially_used(model.config, len(logits), logits.device)
    has_ended = torch.zeros(len(logits), dtype=torch.bool)
    while True:
        scores = apply_repetition_penalty(logits, is_used, penalty)
        codes = scores.argmax(-1).masked_fill(has_ended, stop)
        seen.append((codes, logits, scores))
        has_ended = has_ended | (codes == stop)
        if len(seen) == limit or has_ended.all():
            return Steps(*(torch.stack(column, dim=1) for column in zip(*seen, strict=True)))
        is_used = is_used.scatter(1, codes[:, None], True)
        logits = decoder.step(codes[:, None])[:, 0]


def with_stop(
    model: UnifiedVoice, prompt: Prompt, sampling: Sampling, num_steps: int
) -> tuple[Tensor, float | None]:
    """Codes of `generate`, (1, S), with the stop token where the model ended by itself."""
    found = generate(model, [prompt], sampling.model_copy(update={"max_codes": num_steps}))[0]
    codes = found.codes
    if found.has_stopped:
        codes = F.pad(codes, (0, 1), value=model.config.stop_mel_token)
    return codes[None], found.score
