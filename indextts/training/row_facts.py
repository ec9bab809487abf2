"""What a run can say of its text rows without knowing the checkpoint it began with: for metrics.jsonl.

The screens tell by it whether the frozen rows are what they were and whether the new ones move. It reads the
rows once for each validation and waits for the device only then.
"""

import hashlib
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from indextts.models.checkpoint import TEXT_TABLES
from indextts.training.batches import PairDataset
from indextts.training.run import Run

DIGEST_CHARS = 16  # of a sha256: enough to tell two states of the same rows apart


class RowFacts:
    """The facts of a run's text rows, compared with how they were when this was made."""

    def __init__(self, this: Run) -> None:
        self._new_rows = this.trained.new_rows
        self._before = {rows.name: _on_host(rows.view) for rows in self._new_rows}
        self._unknown_share = unknown_share(this.inputs.train_set, this.inputs.tokenizer.unknown_id)

    def read(self) -> dict[str, Any]:
        """Return the facts under the names that `indextts/training/metrics.py` draws."""
        if not self._new_rows:
            return {"unknown_share": self._unknown_share}
        moved = {rows.name: _on_host(rows.view) - self._before[rows.name] for rows in self._new_rows}
        embedding = moved[TEXT_TABLES[0]]
        return {
            "unknown_share": self._unknown_share,
            "base_rows": self._digest_of_frozen(),
            "new_rows_moved": min(_root_mean_square(each) for each in moved.values()),
            "new_rows_seen": float(embedding.any(dim=1).double().mean()),
        }

    def _digest_of_frozen(self) -> str:
        digest = hashlib.sha256()
        for rows in self._new_rows:
            digest.update(_on_host(rows.table[: rows.num_frozen]).flatten().numpy().data)
        return digest.hexdigest()[:DIGEST_CHARS]


def unknown_share(dataset: PairDataset, unknown_id: int) -> float:
    """Return which share of the tokens of all texts the tokenizer does not know, each pair counted."""
    num_tokens = sum(len(ids) for ids in dataset.text_ids)
    num_unknown = sum(int(np.count_nonzero(ids == unknown_id)) for ids in dataset.text_ids)
    return num_unknown / max(1, num_tokens)


def _on_host(rows: Tensor) -> Tensor:
    return rows.detach().to("cpu", copy=True)


def _root_mean_square(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) / math.sqrt(values.numel())
