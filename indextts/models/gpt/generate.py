"""Generation of semantic codes for texts and voices, and the states that the acoustic model reads.

Axes: B prompts, N text tokens, K latents, D model width, M codes, C semantic codes.

    codes = generate(model, prompts, Sampling())                     many prompts at once, with beams
    states = code_states(model, prompts, [c.codes for c in codes])   the second pass, at training's positions

A prompt gets the codes that it would get alone: its random numbers depend on its own seed only. Finished
prompts leave the batch. On a GPU, a step of all prompts and beams is one CUDA graph.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from indextts.commands.sampling_options import Sampling
from indextts.models.gpt.attention import choose_backend
from indextts.models.gpt.decoder import Decoder, make_prefix
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.packed import pack, packed_states
from indextts.models.gpt.search import Generated, Search

CHECK_INTERVAL = 8  # steps on a GPU between two looks at what is done: each waits for the device
MIN_LEAVING_SHARE = 1 / 8  # of the batch: leaving copies the cache of the others

OnStep = Callable[[int], None]


@dataclass(frozen=True)
class Prompt:
    """A text and a voice.

    Args:
        condition: (K, W), from `UnifiedVoice.conditioning`.
        emo_vec: (D,), from `UnifiedVoice.emotion`.
        text_ids: (N,), without start and stop.
        seed: of the sampling, 0 to 2**63 - 1.
        language: row of the text's language; None for a base without language rows.
    """

    condition: Tensor
    emo_vec: Tensor
    text_ids: Tensor
    seed: int = 0
    language: int | None = None


@torch.inference_mode()
def generate(
    model: UnifiedVoice, prompts: Sequence[Prompt], sampling: Sampling, on_step: OnStep = lambda _: None
) -> list[Generated]:
    """Generate codes for each prompt; except for rounding, they do not depend on the rest of the batch.

    Args:
        model: in eval mode.
        prompts: at least one, with tensors on the model's device.
        sampling: settings; the seeds are those of the prompts, and the model's positions also limit the
            number of codes.
        on_step: called with the number of codes so far.

    Raises:
        ValueError: a text is too long for the model's positions.
    """
    found: dict[int, Generated] = {}
    for num_codes, _ in _steps(model, prompts, sampling, found):
        on_step(num_codes)
    return [found[row] for row in range(len(prompts))]


@torch.inference_mode()
def generate_stream(
    model: UnifiedVoice, prompt: Prompt, sampling: Sampling, on_step: OnStep = lambda _: None
) -> Iterator[Tensor | Generated]:
    """Yield the codes of one prompt while they are generated, then the result; arguments as for `generate`.

    The codes (M,), on the CPU, are those that no further step can change: the result begins with them.
    """
    found: dict[int, Generated] = {}
    for num_codes, search in _steps(model, [prompt], sampling, found):
        on_step(num_codes)
        if num_codes % CHECK_INTERVAL == 0 and not found:
            yield search.settled()
    yield found[0]


def _steps(
    model: UnifiedVoice, prompts: Sequence[Prompt], sampling: Sampling, found: dict[int, Generated]
) -> Iterator[tuple[int, Search]]:
    """Yield the number of codes and the state after each step; store the results in `found`."""
    decoder = Decoder(model, sampling.positions, sampling.num_beams)
    conditions = model.prefix(
        torch.stack([prompt.condition for prompt in prompts]),
        torch.stack([prompt.emo_vec for prompt in prompts]),
    )
    prefix = make_prefix(model, conditions, [p.text_ids for p in prompts], _languages(prompts, conditions))
    logits = decoder.start(prefix)
    seeds = torch.tensor([prompt.seed for prompt in prompts], device=logits.device)
    limit = max_num_codes(model, sampling)
    search = Search(model.config, sampling, seeds, limit)
    search.update(logits[:, None].expand(-1, sampling.num_beams, -1), width=1)
    graph = _StepGraph(logits.device)
    active = list(range(len(prompts)))
    for num_codes in range(1, limit + 1):
        if num_codes > 1:
            decoder.reserve()
            graph.run(decoder.shape, lambda: _advance(decoder, search, limit))
        if num_codes == limit:
            search.finish()
        if num_codes == limit or not graph.is_used or num_codes % CHECK_INTERVAL == 0:
            active = _collect(decoder, search, active, found)
        yield num_codes, search
        if not active:
            break


def _advance(decoder: Decoder, search: Search, limit: int) -> None:
    """Compute one step of all beams, without a look at a value by the host."""
    logits = decoder.advance(search.chosen)
    decoder.cross(search.update(logits, width=min(decoder.num_visible + 1, limit)))


def _collect(decoder: Decoder, search: Search, active: list[int], found: dict[int, Generated]) -> list[int]:
    """Store the results of prompts that are done; return the prompts that are still in the batch."""
    is_done = search.is_done.tolist()
    num_done = sum(is_done)
    if num_done == 0 or num_done < min(len(active), MIN_LEAVING_SHARE * len(active)):
        return active
    device = search.is_done.device
    done, rest = (
        torch.tensor([place for place, is_over in enumerate(is_done) if is_over is wanted], device=device)
        for wanted in (True, False)
    )
    for place, generated in zip(done.tolist(), search.results(done), strict=True):
        found[active[place]] = generated
    if num_done < len(active):
        decoder.select_prompts(rest)
        search.select_prompts(rest)
    return [active[place] for place in rest.tolist()]


class _StepGraph:
    """Runs a step; on a GPU as a CUDA graph, captured at the second step of a shape.

    The first step of a shape runs as usual, which loads kernels and workspaces.
    """

    def __init__(self, device: torch.device) -> None:
        self.is_used = device.type == "cuda"
        self._shape: tuple[int, ...] = ()
        self._graph: torch.cuda.CUDAGraph | None = None

    def run(self, shape: tuple[int, ...], step: Callable[[], None]) -> None:
        if not self.is_used or shape != self._shape:
            self._shape, self._graph = shape, None
            step()
            return
        if self._graph is None:
            graph = torch.cuda.CUDAGraph()
            # records the step and does not execute it; threads that load data may use the GPU meanwhile
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                step()
            self._graph = graph
        self._graph.replay()


def set_precision(model: UnifiedVoice, dtype: torch.dtype) -> None:
    """Convert the blocks and the head of the codes, which do nearly all of the work, to `dtype`.

    Embeddings and the encoders of the voice stay float32. Half precision changes rounding, and so may change
    codes; float32 is the reference.
    """
    for module in (model.gpt, model.final_norm, model.mel_head):
        module.to(dtype)


@torch.inference_mode()
def code_states(model: UnifiedVoice, prompts: Sequence[Prompt], codes: Sequence[Tensor]) -> list[Tensor]:
    """Return the states that predict the codes of each prompt, the input of the acoustic model.

    Args:
        model: in eval mode.
        prompts: at least one.
        codes: (M,) of each prompt, in its order.

    Returns:
        (M, D) of each prompt, independent of the other prompts.
    """
    config, weight = model.config, model.mel_head.weight
    edges = (config.start_text_token, config.stop_text_token)
    texts = [prompt.text_ids.cpu().numpy() for prompt in prompts]
    batch = pack(
        [ids[(ids != edges[0]) & (ids != edges[1])] for ids in texts],
        [row.cpu().numpy() for row in codes],
        torch.stack([prompt.condition for prompt in prompts]),
        torch.stack([prompt.emo_vec for prompt in prompts]),
        config,
        languages=_languages(prompts, weight),
    ).to(weight.device)
    states = packed_states(model, batch, choose_backend(weight.device, weight.dtype))[1]
    # the last state of each prompt predicts the stop
    return [rows[:-1].float() for rows in torch.split(states, [len(row) + 1 for row in codes])]


def max_num_codes(model: UnifiedVoice, sampling: Sampling) -> int:
    """Return the limit of generated codes."""
    return min(sampling.max_codes, model.config.max_mel_tokens)


def _languages(prompts: Sequence[Prompt], like: Tensor) -> Tensor | None:
    """Return the rows of the languages (B,) on the device of `like`; None without language rows."""
    rows = [prompt.language for prompt in prompts]
    return None if None in rows else torch.tensor(rows, device=like.device)
