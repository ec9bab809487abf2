"""Pairs as columns: numpy arrays for all pairs in place of an object for each. No torch here.

Axes: P pairs, U utterances, T distinct texts.

    pair     -> speaker, prompt, target, text: rows of the tables below
    tables   speakers, utterances (id, key, feature store), texts with their token ids

391,180 pairs of 200,000 utterances take about 140 MB. `PairColumns` is also a sequence of `Pair`, built on
access.
"""

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from indextts.data.manifest import Pair

KEY_BYTES = 32


@dataclass(frozen=True)
class Ragged:
    """Arrays of different lengths, end to end: array i is values[starts[i]:starts[i + 1]]."""

    starts: NDArray[np.int64]
    values: NDArray[Any]

    @classmethod
    def of(cls, items: Iterable[Sequence[int] | NDArray[Any]], dtype: type) -> Self:
        """Return `items` end to end."""
        arrays: list[NDArray[Any]] = [np.asarray(item, dtype) for item in items]
        return cls(starts_of([len(each) for each in arrays]), np.concatenate([np.zeros(0, dtype), *arrays]))

    @classmethod
    def strings(cls, strings: Iterable[str]) -> Self:
        """Return strings as UTF-8 bytes."""
        parts = [string.encode() for string in strings]
        return cls(starts_of([len(part) for part in parts]), np.frombuffer(b"".join(parts), np.uint8))

    @classmethod
    def joined(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """Return the arrays of all parts; no copy of a single one."""
        if len(parts) == 1:
            return parts[0]
        lengths = np.concatenate([part.lengths for part in parts])
        return Ragged(starts_of(lengths), np.concatenate([part.values for part in parts]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.values[self.starts[row] : self.starts[row + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts)

    def raw(self, row: int) -> bytes:
        """Return the bytes of an array of bytes."""
        return self[row].tobytes()

    def text(self, row: int) -> str:
        """Return the string in an array of UTF-8 bytes."""
        return self.raw(row).decode()


@dataclass(frozen=True)
class PairColumns(Sequence[Pair]):
    """Pairs, and their texts as token ids."""

    id: NDArray[np.int32]  # (P,), rows of `ids`
    speaker: NDArray[np.int32]  # (P,), rows of `speakers`
    prompt: NDArray[np.int32]  # (P,), rows of `utterance_ids`
    target: NDArray[np.int32]  # (P,), likewise
    text: NDArray[np.int32]  # (P,), rows of `texts`
    num_codes: NDArray[np.int32]  # (P,), as in the pairs file
    target_s: NDArray[np.float64]  # (P,), likewise
    prompt_s: NDArray[np.float64]  # (P,), likewise
    ids: Ragged
    speakers: Ragged
    utterance_ids: Ragged  # U; in a store an id may have several keys, which are different utterances here
    keys: NDArray[np.uint8]  # (U, 32), in their feature store
    store: NDArray[np.int32]  # (U,), positions in `stores`
    texts: Ragged  # T
    tokens: Ragged  # T, token ids of each text
    stores: tuple[Path, ...]  # files of the feature stores
    part: NDArray[np.int32] | None = None  # (P,), positions among the joined parts; None for a single one

    @classmethod
    def of(cls, pairs: Sequence[Pair], text_ids: Sequence[Sequence[int] | NDArray[Any]]) -> "PairColumns":
        """Return the columns of `pairs`, each with its own token ids."""
        builder = ColumnsBuilder()
        for pair in pairs:
            builder.add(pair, str(pair.features))
        columns = builder.build(Ragged.of(text_ids, np.int32), tuple(map(Path, builder.stores)))
        texts = Ragged.strings(pair.target_text for pair in pairs)
        return replace(columns, text=np.arange(len(pairs), dtype=np.int32), texts=texts)

    @classmethod
    def joined(cls, parts: Sequence["PairColumns"]) -> "PairColumns":
        """Return the pairs of all parts, one after another; no copy of a single one."""
        if len(parts) == 1:
            return parts[0]

        def rows(name: str, table: str) -> NDArray[np.int32]:
            shifts = np.cumsum([0, *(len(getattr(part, table)) for part in parts)])
            return np.concatenate(
                [getattr(part, name) + np.int32(shift) for part, shift in zip(parts, shifts, strict=False)]
            )

        def values(name: str) -> NDArray[Any]:
            return np.concatenate([getattr(part, name) for part in parts])

        tables = ("ids", "speakers", "utterance_ids", "texts", "tokens")
        return cls(
            id=rows("id", "ids"),
            speaker=rows("speaker", "speakers"),
            prompt=rows("prompt", "utterance_ids"),
            target=rows("target", "utterance_ids"),
            text=rows("text", "texts"),
            num_codes=values("num_codes"),
            target_s=values("target_s"),
            prompt_s=values("prompt_s"),
            keys=values("keys"),
            store=rows("store", "stores"),
            stores=tuple(path for part in parts for path in part.stores),
            part=np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts]),
            **{name: Ragged.joined([getattr(part, name) for part in parts]) for name in tables},
        )

    def __len__(self) -> int:
        return len(self.id)

    def __getitem__(self, index: int) -> Pair:  # type: ignore[override]  # no slices: `take` returns columns
        prompt, target = int(self.prompt[index]), int(self.target[index])
        return Pair(
            id=self.id_of(index),
            speaker=self.speaker_of(index),
            prompt_id=self.utterance_ids.text(prompt),
            target_id=self.utterance_ids.text(target),
            target_text=self.texts.text(int(self.text[index])),
            target_num_codes=int(self.num_codes[index]),
            target_duration_s=float(self.target_s[index]),
            prompt_duration_s=float(self.prompt_s[index]),
            features=self.stores[self.store[target]],
            prompt_key=self.keys[prompt].tobytes().hex(),
            target_key=self.keys[target].tobytes().hex(),
        )

    def order_digest(self, seed: int) -> str:
        """Return a digest of the pairs in order and the seed: a position is valid for one digest only."""
        folders = [path.parent.name.encode() for path in self.stores]
        rows = zip(self.store[self.target].tolist(), self.id.tolist(), strict=True)
        return order_digest((b"%s/%s" % (folders[store], self.ids.raw(id)) for store, id in rows), seed)

    def take(self, indices: Sequence[int] | NDArray[Any]) -> "PairColumns":
        """Return the pairs at `indices`; the tables stay those of all pairs."""
        rows = np.asarray(indices, np.int64)
        names = ("id", "speaker", "prompt", "target", "text", "num_codes", "target_s", "prompt_s")
        part = None if self.part is None else self.part[rows]
        return replace(self, part=part, **{name: getattr(self, name)[rows] for name in names})

    def sizes_of_parts(self, num_parts: int) -> list[int]:
        """Return the number of pairs of each part that was joined."""
        part = np.zeros(len(self), np.int32) if self.part is None else self.part
        sizes: list[int] = np.bincount(part, minlength=num_parts).tolist()
        return sizes

    def id_of(self, index: int) -> str:
        return self.ids.text(int(self.id[index]))

    def speaker_of(self, index: int) -> str:
        return self.speakers.text(int(self.speaker[index]))

    def text_ids(self, index: int) -> NDArray[np.int32]:
        """Return the token ids of a pair's text: (N,)."""
        return self.tokens[int(self.text[index])]

    @property
    def num_text_ids(self) -> NDArray[np.int64]:
        """Return the number of token ids of each pair: (P,)."""
        return self.tokens.lengths[self.text]

    def piece_counts(self) -> NDArray[np.int64]:
        """Return how often each token id occurs in the texts of the targets, each target counted once."""
        _, first = np.unique(self.target, return_index=True)
        num_of_text = np.bincount(self.text[first], minlength=len(self.texts))
        counts = np.bincount(self.tokens.values, np.repeat(num_of_text, self.tokens.lengths))
        return counts.astype(np.int64)

    @property
    def speaker_names(self) -> set[str]:
        return {self.speakers.text(row) for row in np.unique(self.speaker).tolist()}

    @property
    def used_stores(self) -> list[Path]:
        """Return the feature stores of the pairs, sorted."""
        return sorted({self.stores[row] for row in np.unique(self.store[self.target]).tolist()})


class ColumnsBuilder:
    """Columns that grow by one pair at a time; `stores` are in the order of their rows."""

    def __init__(self) -> None:
        self.stores: dict[str, int] = {}
        self._ids: list[str] = []
        self._speakers: dict[str, int] = {}
        self._texts: dict[str, int] = {}
        self._utterances: dict[tuple[str, str, int], int] = {}
        self._rows = {name: array("i") for name in ("speaker", "prompt", "target", "text", "num_codes")}
        self._seconds = {name: array("d") for name in ("target_s", "prompt_s")}

    def add(self, pair: Pair, store: str) -> None:
        """Add a pair whose features are in `store`."""
        features = self.stores.setdefault(store, len(self.stores))
        self._ids.append(pair.id)
        row_of = self._utterances.setdefault
        for name, row in (
            ("speaker", self._speakers.setdefault(pair.speaker, len(self._speakers))),
            ("text", self._texts.setdefault(pair.target_text, len(self._texts))),
            ("prompt", row_of((pair.prompt_id, pair.prompt_key, features), len(self._utterances))),
            ("target", row_of((pair.target_id, pair.target_key, features), len(self._utterances))),
            ("num_codes", pair.target_num_codes),
        ):
            self._rows[name].append(row)
        self._seconds["target_s"].append(pair.target_duration_s)
        self._seconds["prompt_s"].append(pair.prompt_duration_s)

    @property
    def texts(self) -> list[str]:
        """Return the distinct texts, in the order of their rows."""
        return list(self._texts)

    def build(self, tokens: Ragged, stores: tuple[Path, ...]) -> PairColumns:
        """Return the columns with the token ids of `texts`, and the files that `stores` names."""
        columns: dict[str, Any] = {name: np.frombuffer(rows, np.int32) for name, rows in self._rows.items()}
        columns |= {name: np.frombuffer(values, np.float64) for name, values in self._seconds.items()}
        keys = [key for _, key, _ in self._utterances]
        return PairColumns(
            **columns,
            id=np.arange(len(columns["text"]), dtype=np.int32),
            ids=Ragged.strings(self._ids),
            speakers=Ragged.strings(self._speakers),
            utterance_ids=Ragged.strings(id for id, _, _ in self._utterances),
            keys=np.frombuffer(bytes.fromhex("".join(keys)), np.uint8).reshape(-1, KEY_BYTES),
            store=np.array([store for _, _, store in self._utterances], np.int32),
            texts=Ragged.strings(self._texts),
            tokens=tokens,
            stores=stores,
        )


def order_digest(names: Iterable[bytes], seed: int) -> str:
    """Return the digest of a data order from its seed and the names of its pairs, "FOLDER/ID"."""
    digest = hashlib.sha256(str(seed).encode())
    for name in names:
        digest.update(b"\n" + name)
    return digest.hexdigest()


def starts_of(lengths: Sequence[int] | NDArray[Any]) -> NDArray[np.int64]:
    """Return the starts of arrays of these lengths, and the end of the last."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
