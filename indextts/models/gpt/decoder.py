"""Autoregressive decoding: the GPT with a cache of keys and values.

Axes: B rows, N text tokens, P positions of a prefix, T positions so far, D model width, H heads, d = D/H,
C semantic codes.

The prefix is the part of the sequence before the codes. Rows of different lengths are padded on the left, and
the padding is masked:

    [padding][K latents + emotion][speed 1][speed 0][start, text..., stop] | start, code, code, ...
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from indextts.models.gpt.model import UnifiedVoice, columns

Positions = Literal["published", "training"]

INITIAL_CAPACITY = 256  # positions in a new cache, besides the prefix


@dataclass(frozen=True)
class Prefix:
    """The embedded positions before the codes.

    Args:
        embedded: (B, P, D); zeros at padding.
        is_real: (B, P), False at padding, which is on the left.
    """

    embedded: Tensor
    is_real: Tensor

    def repeat(self, times: int) -> Self:
        """Return each row `times` times in a row."""
        return type(self)(self.embedded.repeat_interleave(times, 0), self.is_real.repeat_interleave(times, 0))


def make_prefix(model: UnifiedVoice, conditions: Tensor, texts: Sequence[Tensor]) -> Prefix:
    """Return the prefix of each text; as in the published code, start and stop tokens in a text are dropped.

    Args:
        model: whose tables embed the texts.
        conditions: (B, K+2, D), from `UnifiedVoice.prefix`.
        texts: B texts of token ids (N,), N at most `max_text_tokens`.

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
    for condition, ids in zip(conditions, framed, strict=True):
        positions = columns(ids[None])
        row = torch.cat([condition, model.embed_text(ids, positions)])  # (K+2+N+2, D)
        num_padded = longest - len(ids)
        embedded.append(F.pad(row, (0, 0, num_padded, 0)))
        is_real.append(F.pad(torch.ones(len(row), dtype=torch.bool, device=row.device), (num_padded, 0)))
    return Prefix(torch.stack(embedded), torch.stack(is_real))


class Decoder:
    """The state of a generation: call `start`, then `step` for each chosen code.

    `step` raises a ValueError when the model has no position left.
    """

    def __init__(self, model: UnifiedVoice, positions: Positions) -> None:
        """Args: positions: numbering of the codes, see `code_position`."""
        self.model = model
        self.positions = positions
        self.num_codes = 0  # passed to `step` so far
        self._cache: _KVCache | None = None
        self._is_real: Tensor | None = None  # (B, T); None where no row is padded

    @torch.inference_mode()
    def start(self, prefix: Prefix) -> Tensor:
        """Return the logits of the first code: (B, C), float32."""
        config = self.model.config
        rows = len(prefix.embedded)
        start = torch.full((rows, 1), config.start_mel_token, device=prefix.embedded.device)
        embedded = torch.cat([prefix.embedded, self.model.embed_codes(start, columns(start))], dim=1)
        if not prefix.is_real.all():
            self._is_real = F.pad(prefix.is_real, (0, 1), value=True)
        self._cache = _KVCache(config.layers, embedded.shape[1] + INITIAL_CAPACITY)
        return self._scores(embedded)

    @torch.inference_mode()
    def step(self, codes: Tensor) -> Tensor:
        """Return the logits of the code after `codes` (B,): (B, C), float32."""
        self.num_codes += 1
        position = code_position(self.num_codes, self.positions)
        if position >= self.model.config.num_mel_positions:
            raise ValueError(f"the model has only {self.model.config.num_mel_positions} positions for codes")
        embedded = self.model.embed_codes(codes[:, None], torch.tensor([position], device=codes.device))
        if self._is_real is not None:
            self._is_real = F.pad(self._is_real, (0, 1), value=True)
        return self._scores(embedded)

    @torch.inference_mode()
    def select_rows(self, rows: Tensor) -> None:
        """Continue with these rows (B',) of the current batch, in this order; repetition is allowed."""
        assert self._cache is not None
        self._cache.select_rows(rows)
        if self._is_real is not None:
            self._is_real = self._is_real[rows]

    @property
    def cache_bytes(self) -> int:
        """Return the memory of the cache."""
        return 0 if self._cache is None else self._cache.num_bytes

    def _scores(self, embedded: Tensor) -> Tensor:
        cache = self._cache
        assert cache is not None
        cache.begin(embedded.shape[1], None if self._is_real is None else _visible(self._is_real, embedded))
        states = self.model.gpt(embedded, cache.attend)[:, -1]
        scores: Tensor = self.model.mel_head(self.model.final_norm(states))
        return scores.float()


def code_position(number: int, positions: Positions) -> int:
    """Return the position of the `number`-th code, from 1; the start token has position 0.

    "training" counts 0, 1, 2, 3 as in training; "published" counts 0, 2, 3, 4 as the published code does in
    generation with a cache.
    """
    return number + 1 if positions == "published" else number


def _visible(is_real: Tensor, embedded: Tensor) -> Tensor:
    """Return the attention mask of the new positions, (B, 1, new, T); padding sees itself, to avoid NaN."""
    num_all, num_new = is_real.shape[1], embedded.shape[1]
    places = torch.arange(num_all, device=is_real.device)
    new = places[num_all - num_new :, None]  # (new, 1)
    visible = (is_real[:, None] & (places <= new)) | (places == new)  # (B, new, T)
    return visible[:, None]


class _KVCache:
    """Keys and values of every layer; the capacity grows by half when it is full, so memory is linear."""

    def __init__(self, layers: int, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self._layers: list[Tensor | None] = [None] * layers  # (2, B, H, capacity, d)
        self._next = 0
        self._num_new = 0
        self._visible: Tensor | None = None

    def begin(self, num_new: int, visible: Tensor | None) -> None:
        """Reserve space for a pass over `num_new` positions with the mask `visible` (B, 1, new, T)."""
        self.length += num_new
        self._next, self._num_new, self._visible = 0, num_new, visible
        if self.length > self.capacity:
            more = max(self.length - self.capacity, self.capacity // 2)
            self.capacity += more
            self._layers = [None if kv is None else F.pad(kv, (0, 0, 0, more)) for kv in self._layers]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, dropout_p: float) -> Tensor:
        """Attend from the new positions, (B, new, H, d) each, to all so far; called layer by layer."""
        number, self._next = self._next, self._next + 1
        kv = self._layers[number]
        if kv is None:
            rows, _, heads, dim = k.shape
            kv = self._layers[number] = k.new_empty(2, rows, heads, self.capacity, dim)
        new = slice(self.length - self._num_new, self.length)
        kv[0, :, :, new], kv[1, :, :, new] = k.transpose(1, 2), v.transpose(1, 2)
        keys, values = kv[:, :, :, : self.length].unbind(0)
        attended = F.scaled_dot_product_attention(
            q.transpose(1, 2),
            keys,
            values,
            attn_mask=self._visible,
            is_causal=self._visible is None and self._num_new > 1,
            dropout_p=dropout_p,
        )
        return attended.transpose(1, 2)

    @property
    def num_bytes(self) -> int:
        return sum(kv.nbytes for kv in self._layers if kv is not None)

    def select_rows(self, rows: Tensor) -> None:
        self._layers = [None if kv is None else kv[:, rows] for kv in self._layers]
