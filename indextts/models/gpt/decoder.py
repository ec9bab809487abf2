"""Autoregressive decoding of many prompts with beams: the GPT with a cache of keys and values.

Axes: B prompts, K beams, N text tokens, P positions of a prefix with the start token, T code steps, D model
width, H heads, d = D/H, C semantic codes.

The prefix is the part of the sequence before the codes. Prompts of different lengths are padded on the left,
and the padding is masked:

    [padding][K speaker rows + emotion][2 rows][start, text..., stop] | start, code, code, ...

The beams of a prompt share its prefix. Each step appends one code of every beam to the cache of its prompt,
at the prompt's own number of codes, and nothing in the cache ever moves:

    [P positions of the prefix][step 1: beam 1 ... beam K][step 2: beam 1 ... beam K] ...

A beam attends to the prefix and to its own history, one entry of each step. Where beams cross, only the mask
of the histories is rearranged, one number for each entry and beam.

Shapes change every `block` steps: a CUDA graph of a step can be replayed, and on a CPU the views of the cache
are the same. Entries after the current step are masked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from indextts.models.gpt.gpt2 import Attend
from indextts.models.gpt.model import UnifiedVoice, columns

Positions = Literal["published", "training"]
IntT = TypeVar("IntT", int, Tensor)

INITIAL_CAPACITY = 256  # steps in a new cache, besides the prefix
GRAPH_BLOCK = 128  # steps with the same shapes on a GPU; a capture takes about as long as ten steps
CPU_BLOCK = 16


@dataclass(frozen=True)
class Prefix:
    """The embedded positions before the codes."""

    embedded: Tensor  # (B, P - 1, D); zeros at padding
    is_real: Tensor  # (B, P - 1), False at padding, which is on the left


def make_prefix(
    model: UnifiedVoice, conditions: Tensor, texts: Sequence[Tensor], languages: Tensor | None = None
) -> Prefix:
    """Return the prefix of each text; as in the published code, start and stop tokens in a text are dropped.

    Args:
        conditions: (B, K+2, D), from `UnifiedVoice.prefix`.
        texts: B texts of token ids (N,), N at most `max_text_tokens`.
        languages: (B,), rows of the texts' languages; None for a base without language rows.

    Raises:
        ValueError: a text is too long for the model's positions.
    """
    config = model.config
    edges = (config.start_text_token, config.stop_text_token)
    framed = []
    for text in texts:
        ids = torch.tensor([id for id in text.tolist() if id not in edges], dtype=torch.long)
        if len(ids) > config.max_text_tokens:
            raise ValueError(f"{len(ids)} text tokens exceed the model's limit of {config.max_text_tokens}")
        framed.append(F.pad(F.pad(ids, (1, 0), value=edges[0]), (0, 1), value=edges[1]).to(conditions.device))
    longest = max(map(len, framed))
    embedded, is_real = [], []
    for row, (condition, ids) in enumerate(zip(conditions, framed, strict=True)):
        language = None if languages is None else languages[row]
        positions = columns(ids[None])
        parts = torch.cat([condition, model.embed_text(ids, positions, language)])  # (K+2+N+2, D)
        num_padded = longest - len(ids)
        embedded.append(F.pad(parts, (0, 0, num_padded, 0)))
        is_real.append(F.pad(torch.ones(len(parts), dtype=torch.bool, device=ids.device), (num_padded, 0)))
    return Prefix(torch.stack(embedded), torch.stack(is_real))


class Decoder:
    """The state of a generation: call `start`, then `step` with the chosen code of each beam.

    Each prompt has its own number of codes, so that one may start while others are in the middle. `step` and
    `reserve` raise a ValueError when the model has no position left.
    """

    def __init__(
        self, model: UnifiedVoice, positions: Positions, num_beams: int = 1, block: int | None = None
    ) -> None:
        """Create a decoder without a prompt.

        Args:
            positions: numbering of the codes, see `code_position`.
            block: steps with the same shapes.
        """
        self.model = model
        self.positions = positions
        self.num_beams = num_beams
        self.num_codes = 0  # of the prompt with most, passed to `step` so far
        weight = model.mel_head.weight
        self.block = block or (GRAPH_BLOCK if weight.device.type == "cuda" else CPU_BLOCK)
        self._beams = torch.arange(num_beams, device=weight.device)  # (K,)
        self._rows = self._beams.new_empty(0, 1)  # (B, 1), their numbers
        self._num_prefix = 0  # P
        # 0 where a beam sees an entry, minus infinity where not
        self._mask = weight.new_empty(0, 1, num_beams, 0)  # (B, 1, K, slots)
        heads, layers = model.config.heads, model.config.layers
        empty = weight.new_empty(0, heads, 0, model.config.model_dim // heads)
        self._cache = [(empty, empty) for _ in range(layers)]  # keys and values, (B, H, slots, d)
        self._seen: list[tuple[Tensor, ...]] = []  # views of the cache and its mask, for `num_visible`
        self._version = 0

    @torch.inference_mode()
    def start(self, prefix: Prefix, places: Tensor | None = None) -> Tensor:
        """Start prompts in `places` (N,) of the batch, by default as the only ones.

        Args:
            places: of prompts that these replace, or the next numbers.

        Returns:
            The logits of their first codes, (N, C), float32.
        """
        model, count = self.model, len(prefix.embedded)
        start = torch.full((count, 1), model.config.start_mel_token, device=prefix.embedded.device)
        embedded = torch.cat([prefix.embedded, model.embed_codes(start, columns(start))], dim=1)
        is_real = F.pad(prefix.is_real, (0, 1), value=True)  # (N, P')
        visible = None if bool(prefix.is_real.all()) else _causal(is_real)
        prefilled: list[tuple[Tensor, Tensor]] = []
        states = model.gpt(embedded, _prefill(prefilled, visible))[:, -1]
        if places is None:
            places = torch.arange(count, device=start.device)
        last = is_real.shape[1]
        rows, more = int(places.max()) + 1 - len(self._rows), last - self._num_prefix
        if rows > 0 or more > 0:
            self._grow(left=max(0, more), rows=max(0, rows))
            self._num_prefix += max(0, more)
        first = self._num_prefix - last  # shorter prefixes are padded on the left
        self._mask[places] = -torch.inf
        self._mask[places, :, :, first : self._num_prefix] = torch.where(is_real, 0.0, -torch.inf).to(
            self._mask.dtype
        )[:, None, None]
        for kept, new in zip(self._cache, prefilled, strict=True):
            for entries, given in zip(kept, new, strict=True):
                entries[places, :, first : self._num_prefix] = given
        return self._scores(states)

    def _grow(self, left: int = 0, right: int = 0, rows: int = 0) -> None:
        """Add slots and rows to the cache and its mask, layer by layer, so that one layer exists twice."""
        for number, (keys, values) in enumerate(self._cache):
            padding = (0, 0, left, right, 0, 0, 0, rows)
            self._cache[number] = F.pad(keys, padding), F.pad(values, padding)
        self._mask = F.pad(self._mask, (left, right, 0, 0, 0, 0, 0, rows), value=-torch.inf)
        self._changed()

    def _changed(self) -> None:
        """Note that tensors are others than before."""
        self._rows = torch.arange(len(self._mask), device=self._beams.device)[:, None]
        self._seen = []
        self._version += 1

    def step(self, codes: Tensor) -> Tensor:
        """Return the logits of the code after `codes` (B, K) of prompts that started together: (B, K, C)."""
        self.reserve(self.num_codes + 1)
        return self.advance(codes, torch.full_like(self._rows, self.num_codes - 1))

    @torch.inference_mode()
    def reserve(self, num_codes: int) -> None:
        """Make space for the next step; its work on the host.

        Args:
            num_codes: including those of the step, of the prompt with most.
        """
        position, limit = code_position(num_codes, self.positions), self.model.config.num_mel_positions
        if position >= limit:
            raise ValueError(f"the model has only {limit} positions for codes")
        before, self.num_codes = self.num_visible, num_codes
        capacity = (self._mask.shape[3] - self._num_prefix) // self.num_beams
        if self.num_visible > capacity:
            more = max(INITIAL_CAPACITY, capacity // 2)
            more += -(capacity + more) % self.block
            self._grow(right=more * self.num_beams)
        if not self._seen or before != self.num_visible:
            num_keys = self._num_prefix + self.num_visible * self.num_beams
            self._seen = [(keys[:, :, :num_keys], values[:, :, :num_keys]) for keys, values in self._cache]
            self._seen.append((self._mask[..., :num_keys],))

    @property
    def num_visible(self) -> int:
        """Return the number of steps in the cache that the current step sees, masked ones included."""
        return -(-self.num_codes // self.block) * self.block

    @property
    def shape(self) -> tuple[int, ...]:
        """Return what decides the tensors of a step and their shapes."""
        return (self._version, self.num_visible)

    @torch.inference_mode()
    def advance(self, codes: Tensor, last: Tensor) -> Tensor:
        """Do the part of `step` after `reserve`, all on the device; tensors change with `shape` only.

        Args:
            codes: (B, K).
            last: (B, 1), number of codes before these.
        """
        position = code_position(last + 1, self.positions)
        embedded = self.model.embed_codes(codes, position).flatten(0, 1)  # (B * K, D)
        slots = torch.add(self._beams + self._num_prefix, last, alpha=self.num_beams)  # (B, K)
        self._mask[:, 0].scatter_(2, slots[:, :, None], 0.0)
        states = self.model.gpt(embedded, self._append(slots))
        return self._scores(states).view(*codes.shape, -1)

    @torch.inference_mode()
    def cross(self, beams: Tensor) -> None:
        """Continue each beam with the history of the beam of `beams` (B, K) of the same prompt."""
        if self.num_beams > 1:
            [mask] = self._seen[-1]
            history = mask[:, 0, :, self._num_prefix :]  # (B, K, num_visible * K)
            history.copy_(history.gather(1, beams[:, :, None].expand_as(history)))

    @torch.inference_mode()
    def select_prompts(self, rows: Tensor) -> None:
        """Continue with these prompts (B',) of the current batch, in this order."""
        for number, (keys, values) in enumerate(self._cache):
            self._cache[number] = keys[rows], values[rows]
        self._mask = self._mask[rows]
        self._changed()

    def _append(self, slots: Tensor) -> Attend:
        """Return an attention that stores the new entries in `slots` (B, K), and sees what is visible."""
        layers = iter(zip(self._cache, self._seen, strict=False))
        [mask] = self._seen[-1]
        shape = (*slots.shape, self.model.config.heads, -1)

        def attend(q: Tensor, k: Tensor, v: Tensor, _dropout: float) -> Tensor:
            (keys, values), (seen_keys, seen_values) = next(layers)
            keys.transpose(1, 2).index_put_((self._rows, slots), k.view(shape))
            values.transpose(1, 2).index_put_((self._rows, slots), v.view(shape))
            attended = F.scaled_dot_product_attention(
                q.view(shape).transpose(1, 2), seen_keys, seen_values, attn_mask=mask
            )  # (B, H, K, d)
            return attended.transpose(1, 2).flatten(0, 1)

        return attend

    def _scores(self, states: Tensor) -> Tensor:
        scores: Tensor = self.model.mel_head(self.model.final_norm(states))
        return scores.float()


def code_position(number: IntT, positions: Positions) -> IntT:
    """Return the position of the `number`-th code, from 1; the start token has position 0.

    "training" counts 0, 1, 2, 3 as in training; "published" counts 0, 2, 3, 4 as the published code does in
    generation with a cache.
    """
    return number + 1 if positions == "published" else number


def _causal(is_real: Tensor) -> Tensor:
    """Return the attention mask within the prefix, (B, 1, P, P); padding sees itself, to avoid NaN."""
    places = columns(is_real)
    visible = (is_real[:, None] & (places <= places[:, None])) | (places == places[:, None])  # (B, P, P)
    return visible[:, None]


def _prefill(stored: list[tuple[Tensor, Tensor]], visible: Tensor | None) -> Attend:
    """Return an attention that stores the prefix, layer by layer; `visible` is (B, 1, P, P)."""

    def attend(q: Tensor, k: Tensor, v: Tensor, _dropout: float) -> Tensor:
        keys, values = k.transpose(1, 2), v.transpose(1, 2)  # (B, H, P, d)
        stored.append((keys, values))
        attended = F.scaled_dot_product_attention(
            q.transpose(1, 2), keys, values, attn_mask=visible, is_causal=visible is None
        )
        return attended.transpose(1, 2)

    return attend
