"""Generation of semantic codes for texts and voices, and the states that the acoustic model reads.

Axes: B prompts, N text tokens, K latents, D model width, M codes, C semantic codes.

    codes = generate(model, prompts, Sampling())                     many prompts at once, with beams
    states = code_states(model, prompts, [c.codes for c in codes])   the second pass, at training's positions

A prompt gets the codes that it would get alone: its random numbers depend on its own seed only. Finished
prompts leave the batch, and others may join it (`Generation`). On a GPU, a step of all prompts and beams is
one CUDA graph.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from indextts.commands.sampling_options import Sampling
from indextts.models.gpt.attention import choose_backend
from indextts.models.gpt.decoder import Decoder, make_prefix
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.packed import pack, packed_states
from indextts.models.gpt.search import Generated, Search

CHECK_INTERVAL = 8  # steps on a GPU between two looks at what is done: each waits for the device
MIN_LEAVING_SHARE = 1 / 4  # of the batch that is free: the removal copies the cache of the others

OnStep = Callable[[int], None]
KeyT = TypeVar("KeyT")


@dataclass(frozen=True)
class Prompt:
    """A text and a voice."""

    condition: Tensor  # (K, W), from `UnifiedVoice.conditioning`
    emo_vec: Tensor  # (D,), from `UnifiedVoice.emotion`
    text_ids: Tensor  # (N,), without start and stop
    seed: int = 0  # of the sampling, 0 to 2**63 - 1
    language: int | None = None  # row of the text's language; None for a base without language rows


class Generation(Generic[KeyT]):
    """Prompts, each with a key, that are generated together; one joins at any step, and leaves when done."""

    def __init__(self, model: UnifiedVoice, sampling: Sampling) -> None:
        """Create a generation without a prompt.

        Args:
            model: in eval mode.
            sampling: settings; the seeds are those of the prompts, and the model's positions also limit the
                number of codes.
        """
        self.model, self.sampling = model, sampling
        self._device = model.mel_head.weight.device
        self._limit = max_num_codes(model, sampling)
        self._decoder = Decoder(model, sampling.positions, sampling.num_beams)
        self._search = self._new_search([])
        self._graph = _StepGraph(self._device)
        self._keys: list[KeyT | None] = []  # of each place in the batch; None where it is free
        self._num_codes: list[int] = []  # of each place
        self.num_steps = 0

    @property
    def keys(self) -> list[KeyT]:
        return [key for key in self._keys if key is not None]

    @torch.inference_mode()
    def join(self, joining: Sequence[tuple[KeyT, Prompt]]) -> None:
        """Add prompts, at least one, with tensors on the model's device, and choose their first codes.

        Raises:
            ValueError: a text is too long for the model's positions.
        """
        prompts = [prompt for _, prompt in joining]
        conditions = self.model.prefix(
            torch.stack([prompt.condition for prompt in prompts]),
            torch.stack([prompt.emo_vec for prompt in prompts]),
        )
        texts = [prompt.text_ids for prompt in prompts]
        prefix = make_prefix(self.model, conditions, texts, _languages(prompts, conditions))
        free = [place for place, key in enumerate(self._keys) if key is None]
        new = range(len(self._keys), len(self._keys) + max(0, len(prompts) - len(free)))
        chosen = [*free[: len(prompts)], *new]
        places = torch.tensor(chosen, device=self._device)
        logits = self._decoder.start(prefix, places)  # (N, C)
        search = self._new_search(prompts)
        search.update(logits[:, None].expand(-1, self.sampling.num_beams, -1), width=1)
        self._search.put(places, search)
        self._keys += [None] * len(new)
        self._num_codes += [0] * len(new)
        for place, (key, _) in zip(chosen, joining, strict=True):
            self._keys[place], self._num_codes[place] = key, 1
        if self._limit == 1:
            self._search.finish(places)

    @torch.inference_mode()
    def step(self) -> list[tuple[KeyT, Generated]]:
        """Generate the next code of every prompt; return those that are done, which leave."""
        self._shrink()
        decoder, search, limit = self._decoder, self._search, self._limit
        self._num_codes = [min(number + 1, limit) for number in self._num_codes]
        self.num_steps += 1
        if limit > 1:
            decoder.reserve(max(self._num_codes) - 1)
            self._graph.run(decoder.shape, lambda: _advance(decoder, search, limit))
        ended = [place for place in self._places() if self._num_codes[place] == limit]
        if ended:
            search.finish(torch.tensor(ended, device=self._device))
        if self._graph.is_used and self.num_steps % CHECK_INTERVAL and not ended:
            return []
        is_done = search.is_done.tolist()
        done = [place for place in self._places() if is_done[place]]
        if not done:
            return []
        found = search.results(torch.tensor(done, device=self._device))
        return [(self._leave(place), one) for place, one in zip(done, found, strict=True)]

    @torch.inference_mode()
    def drop(self, keys: Collection[KeyT]) -> None:
        """Free the places of prompts whose codes are not needed."""
        for place in self._places():
            if self._keys[place] in keys:
                self._search.is_done[place] = True  # so that its cache grows no more
                self._leave(place)

    def settled(self, key: KeyT) -> Tensor:
        """Return the codes of a prompt that no further step can change, on the CPU: (M,)."""
        return self._search.settled(self._keys.index(key))

    def _new_search(self, prompts: Sequence[Prompt]) -> Search:
        seeds = torch.tensor([p.seed for p in prompts], dtype=torch.long, device=self._device)
        return Search(self.model.config, self.sampling, seeds, self._limit)

    def _places(self) -> list[int]:
        return [place for place, key in enumerate(self._keys) if key is not None]

    def _leave(self, place: int) -> KeyT:
        key, self._keys[place] = self._keys[place], None
        self._num_codes[place] = 0
        assert key is not None
        return key

    def _shrink(self) -> None:
        """Drop free places, if there are many."""
        places = self._places()
        num_free = len(self._keys) - len(places)
        if num_free > 0 and num_free >= min(len(self._keys), MIN_LEAVING_SHARE * len(self._keys)):
            rest = torch.tensor(places, dtype=torch.long, device=self._device)
            self._decoder.select_prompts(rest)
            self._search.select_prompts(rest)
            self._keys = [self._keys[place] for place in places]
            self._num_codes = [self._num_codes[place] for place in places]


def generate(
    model: UnifiedVoice, prompts: Sequence[Prompt], sampling: Sampling, on_step: OnStep = lambda _: None
) -> list[Generated]:
    """Generate codes for each prompt; except for rounding, they do not depend on the rest of the batch.

    Args:
        model, prompts, sampling: as for `Generation`.
        on_step: called with the number of codes so far.
    """
    generation = Generation[int](model, sampling)
    generation.join(list(enumerate(prompts)))
    found: dict[int, Generated] = {}
    while generation.keys:
        found.update(generation.step())
        on_step(generation.num_steps)
    return [found[row] for row in range(len(prompts))]


def _advance(decoder: Decoder, search: Search, limit: int) -> None:
    """Compute one step of all beams, without a look at a value by the host."""
    logits = decoder.advance(search.chosen, search.last)
    decoder.cross(search.update(logits, width=min(decoder.num_visible + 1, limit)))


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
