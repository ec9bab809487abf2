"""Autoregressive decoding of many prompts with beams: the GPT with a cache of keys and values.

Axes: B prompts, K beams, N text tokens, P positions of a prefix with the start token, T code steps, D model
width, H heads, d = D/H, C semantic codes.

The prefix is the part of the sequence before the codes. Prompts of different lengths are padded on the left,
and the padding is masked:

    [padding][K speaker rows + emotion][2 rows][start, text..., stop] | start, code, code, ...

The beams of a prompt share its prefix. Each step appends one code of every beam to the cache of its prompt,
and nothing in the cache ever moves:

    [P positions of the prefix][step 1: beam 1 ... beam K][step 2: beam 1 ... beam K] ...

A beam attends to the prefix and to its own history, one entry of each step. Where beams cross, only the table
of histories is rearranged, one bit for each entry and beam.

Shapes change every `block` steps, so a CUDA graph of a step can be replayed. Entries after the current step
are zero and masked.
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


@dataclass(frozen=True)
class Prefix:
    """The embedded positions before the codes.

    Args:
        embedded: (B, P - 1, D); zeros at padding.
        is_real: (B, P - 1), False at padding, which is on the left.
    """

    embedded: Tensor
    is_real: Tensor


def make_prefix(
    model: UnifiedVoice, conditions: Tensor, texts: Sequence[Tensor], languages: Tensor | None = None
) -> Prefix:
    """Return the prefix of each text; as in the published code, start and stop tokens in a text are dropped.

    Args:
        model: whose tables embed the texts.
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

    `step` and `reserve` raise a ValueError when the model has no position left.
    """

    def __init__(
        self, model: UnifiedVoice, positions: Positions, num_beams: int = 1, block: int | None = None
    ) -> None:
        """Create a decoder without a prompt.

        Args:
            positions: numbering of the codes, see `code_position`.
            num_beams: of each prompt.
            block: steps with the same shapes; by default 1 on the CPU.
        """
        self.model = model
        self.positions = positions
        self.num_beams = num_beams
        self.num_codes = 0  # passed to `step` so far
        device = model.mel_head.weight.device
        self.block = block or (GRAPH_BLOCK if device.type == "cuda" else 1)
        self._beams = torch.arange(num_beams, device=device)  # (K,)
        self._step = torch.zeros(1, dtype=torch.long, device=device)  # as `num_codes`, for device arithmetic
        self._is_real = torch.empty(0, dtype=torch.bool, device=device)  # (B, P)
        self._is_padded = False
        self._history = torch.empty(0, dtype=torch.bool, device=device)  # (B, K, capacity, K)
        self._cache = _KVCache()

    @torch.inference_mode()
    def start(self, prefix: Prefix) -> Tensor:
        """Return the logits of the first code: (B, C), float32."""
        config = self.model.config
        rows = len(prefix.embedded)
        start = torch.full((rows, 1), config.start_mel_token, device=prefix.embedded.device)
        embedded = torch.cat([prefix.embedded, self.model.embed_codes(start, columns(start))], dim=1)
        self._is_real = F.pad(prefix.is_real, (0, 1), value=True)  # (B, P)
        self._is_padded = not bool(prefix.is_real.all())
        self._history = self._is_real.new_zeros(rows, self.num_beams, 0, self.num_beams)
        visible = _causal(self._is_real) if self._is_padded else None
        states = self.model.gpt(embedded, self._cache.prefill(visible))[:, -1]
        return self._scores(states)

    def step(self, codes: Tensor) -> Tensor:
        """Return the logits of the code after `codes` (B, K): (B, K, C), float32."""
        self.reserve()
        return self.advance(codes)

    @torch.inference_mode()
    def reserve(self) -> None:
        """Make space for the next step; its work on the host."""
        self.num_codes += 1
        position, limit = code_position(self.num_codes, self.positions), self.model.config.num_mel_positions
        if position >= limit:
            raise ValueError(f"the model has only {limit} positions for codes")
        capacity = self._history.shape[2]
        if self.num_visible > capacity:
            more = max(INITIAL_CAPACITY, capacity // 2)
            more += -(capacity + more) % self.block
            self._history = F.pad(self._history, (0, 0, 0, more))
            self._cache.grow(more * self.num_beams)

    @property
    def num_visible(self) -> int:
        """Return the number of steps in the cache that the current step sees, masked ones included."""
        return -(-self.num_codes // self.block) * self.block

    @property
    def shape(self) -> tuple[int, ...]:
        """Return what decides the shapes of a step."""
        return (*self._history.shape, self.num_visible)

    @torch.inference_mode()
    def advance(self, codes: Tensor) -> Tensor:
        """Do the part of `step` after `reserve`, all on the device; shapes change with `shape` only."""
        last = self._step[0]
        position = code_position(last + 1, self.positions)
        embedded = self.model.embed_codes(codes, position.expand(codes.shape))  # (B, K, D)
        own = torch.eye(self.num_beams, dtype=torch.bool, device=codes.device)
        self._history.index_copy_(2, self._step, own[None, :, None].expand(len(codes), -1, -1, -1))
        slots = self._is_real.shape[1] + last * self.num_beams + self._beams  # (K,)
        num_keys = self._is_real.shape[1] + self.num_visible * self.num_beams
        states = self.model.gpt(
            embedded, self._cache.append(slots, num_keys, self._mask(self.model.mel_head.weight.dtype))
        )
        self._step += 1
        return self._scores(states)

    @torch.inference_mode()
    def cross(self, beams: Tensor) -> None:
        """Continue each beam with the history of the beam of `beams` (B, K) of the same prompt."""
        history = self._history[:, :, : self.num_visible]
        history.copy_(history.gather(1, beams[:, :, None, None].expand_as(history)))

    @torch.inference_mode()
    def select_prompts(self, rows: Tensor) -> None:
        """Continue with these prompts (B',) of the current batch, in this order; repetition is allowed."""
        self._is_real, self._history = self._is_real[rows], self._history[rows]
        self._cache.select_rows(rows)

    def _mask(self, dtype: torch.dtype) -> Tensor | None:
        """Return 0 for visible keys, minus infinity for others: (B, 1, K, keys); None if all are visible."""
        if self.num_beams == 1 and self.block == 1 and not self._is_padded:
            return None
        history = self._history[:, :, : self.num_visible].flatten(2)  # (B, K, num_visible * K)
        prefix = self._is_real[:, None].expand(-1, self.num_beams, -1)  # (B, K, P)
        is_visible = torch.cat([prefix, history], dim=2)[:, None]
        return torch.zeros_like(is_visible, dtype=dtype).masked_fill(~is_visible, -torch.inf)

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


class _KVCache:
    """Keys and values of every layer: (2, B, H, capacity, d) each."""

    def __init__(self) -> None:
        self._layers: list[Tensor] = []

    def prefill(self, visible: Tensor | None) -> Attend:
        """Return an attention that stores the prefix, layer by layer; `visible` is (B, 1, P, P)."""

        def attend(q: Tensor, k: Tensor, v: Tensor, dropout_p: float) -> Tensor:
            kv = torch.stack([k.transpose(1, 2), v.transpose(1, 2)])  # (2, B, H, P, d)
            self._layers.append(kv)
            keys, values = kv.unbind(0)
            attended = F.scaled_dot_product_attention(
                q.transpose(1, 2),
                keys,
                values,
                attn_mask=visible,
                is_causal=visible is None,
                dropout_p=dropout_p,
            )
            return attended.transpose(1, 2)

        return attend

    def append(self, slots: Tensor, num_keys: int, mask: Tensor | None) -> Attend:
        """Return an attention that stores the new entries in `slots` (K,), and sees the first `num_keys`."""
        layers = iter(self._layers)

        def attend(q: Tensor, k: Tensor, v: Tensor, dropout_p: float) -> Tensor:
            kv = next(layers)
            kv[0].index_copy_(2, slots, k.transpose(1, 2))
            kv[1].index_copy_(2, slots, v.transpose(1, 2))
            keys, values = kv[:, :, :, :num_keys].unbind(0)
            attended = F.scaled_dot_product_attention(
                q.transpose(1, 2), keys, values, attn_mask=mask, dropout_p=dropout_p
            )
            return attended.transpose(1, 2)

        return attend

    def grow(self, num_slots: int) -> None:
        for number, kv in enumerate(self._layers):  # one by one, so that only one layer exists twice
            self._layers[number] = F.pad(kv, (0, 0, 0, num_slots))

    def select_rows(self, rows: Tensor) -> None:
        for number, kv in enumerate(self._layers):
            self._layers[number] = kv[:, rows]
