"""One code after another: the GPT with a cache of keys and values.

Axes: B rows, N text tokens, P positions of a prefix, T positions so far, D model width, H heads, d = D/H,
C semantic codes.

A prefix is what stands before the codes; rows of different lengths are padded on the left, where nobody sees:

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

FIRST_ROOM = 256  # positions that a cache has room for at first, besides the prefix


@dataclass(frozen=True)
class Prefix:
    """What stands before the codes.

    Args:
        embedded: (B, P, D); zeros where it is padding.
        is_real: (B, P), False where it is padding, which is on the left.
    """

    embedded: Tensor
    is_real: Tensor

    def repeat(self, times: int) -> Self:
        """Each row `times` times, one after the other."""
        return type(self)(self.embedded.repeat_interleave(times, 0), self.is_real.repeat_interleave(times, 0))


def make_prefix(model: UnifiedVoice, conditions: Tensor, texts: Sequence[Tensor]) -> Prefix:
    """The prefix of each text; start and stop tokens within a text are left out, as the published code does.

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
            raise ValueError(f"{len(ids)} text tokens are more than the model's {config.max_text_tokens}")
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
    """The state of a generation: `start`, then `step` for each code chosen.

    Raises:
        ValueError: from `step`, when the model has no position left.
    """

    def __init__(self, model: UnifiedVoice, positions: Positions) -> None:
        """Args: positions: of the codes, see `code_position`."""
        self.model = model
        self.positions = positions
        self.num_codes = 0  # that were given to `step`
        self._cache: _Cache | None = None
        self._is_real: Tensor | None = None  # (B, T); None where no row is padded

    @torch.inference_mode()
    def start(self, prefix: Prefix) -> Tensor:
        """Scores of the first code: (B, C), float32."""
        config = self.model.config
        rows = len(prefix.embedded)
        start = torch.full((rows, 1), config.start_mel_token, device=prefix.embedded.device)
        embedded = torch.cat([prefix.embedded, self.model.embed_codes(start, columns(start))], dim=1)
        if not prefix.is_real.all():
            self._is_real = F.pad(prefix.is_real, (0, 1), value=True)
        self._cache = _Cache(config.layers, embedded.shape[1] + FIRST_ROOM)
        return self._scores(embedded)

    @torch.inference_mode()
    def step(self, codes: Tensor) -> Tensor:
        """Scores of the code after `codes` (B,): (B, C), float32."""
        self.num_codes += 1
        position = code_position(self.num_codes, self.positions)
        if position >= self.model.config.num_mel_positions:
            raise ValueError(f"the model has {self.model.config.num_mel_positions} positions for codes")
        embedded = self.model.embed_codes(codes[:, None], torch.tensor([position], device=codes.device))
        if self._is_real is not None:
            self._is_real = F.pad(self._is_real, (0, 1), value=True)
        return self._scores(embedded)

    @torch.inference_mode()
    def keep(self, rows: Tensor) -> None:
        """Go on with these rows (B',) of the present ones, in this order; one may come several times."""
        assert self._cache is not None
        self._cache.keep(rows)
        if self._is_real is not None:
            self._is_real = self._is_real[rows]

    @property
    def cache_bytes(self) -> int:
        """Memory of the cache."""
        return 0 if self._cache is None else self._cache.num_bytes

    def _scores(self, embedded: Tensor) -> Tensor:
        cache = self._cache
        assert cache is not None
        cache.begin(embedded.shape[1], None if self._is_real is None else _visible(self._is_real, embedded))
        states = self.model.gpt(embedded, cache.attend)[:, -1]
        scores: Tensor = self.model.mel_head(self.model.final_norm(states))
        return scores.float()


def code_position(number: int, positions: Positions) -> int:
    """The position of the `number`-th code, from 1; the start token has 0.

    "training" counts 0, 1, 2, 3 as the model was trained; "published" 0, 2, 3, 4 as the published code does
    when it generates with a cache.
    """
    return number + 1 if positions == "published" else number


def _visible(is_real: Tensor, embedded: Tensor) -> Tensor:
    """What each new position may see, (B, 1, new, T); padding sees itself, or its states were no numbers."""
    num_all, num_new = is_real.shape[1], embedded.shape[1]
    places = torch.arange(num_all, device=is_real.device)
    new = places[num_all - num_new :, None]  # (new, 1)
    visible = (is_real[:, None] & (places <= new)) | (places == new)  # (B, new, T)
    return visible[:, None]


class _Cache:
    """Keys and values of every layer; the room grows by half when it is used up, so memory is linear."""

    def __init__(self, layers: int, room: int) -> None:
        self.room = room
        self.length = 0
        self._layers: list[Tensor | None] = [None] * layers  # (2, B, H, room, d)
        self._next = 0
        self._num_new = 0
        self._visible: Tensor | None = None

    def begin(self, num_new: int, visible: Tensor | None) -> None:
        """Make room for one pass over `num_new` positions, which see what `visible` (B, 1, new, T) says."""
        self.length += num_new
        self._next, self._num_new, self._visible = 0, num_new, visible
        if self.length > self.room:
            more = max(self.length - self.room, self.room // 2)
            self.room += more
            self._layers = [None if kv is None else F.pad(kv, (0, 0, 0, more)) for kv in self._layers]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, dropout_p: float) -> Tensor:
        """Attention of the new positions, (B, new, H, d) each, to all so far; called layer by layer."""
        number, self._next = self._next, self._next + 1
        kv = self._layers[number]
        if kv is None:
            rows, _, heads, dim = k.shape
            kv = self._layers[number] = k.new_empty(2, rows, heads, self.room, dim)
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

    def keep(self, rows: Tensor) -> None:
        self._layers = [None if kv is None else kv[:, rows] for kv in self._layers]
