"""Files that a run writes about itself: checkpoint content and meta, config.json, tokenizer.model; row facts.

`TextRowFacts` reports for metrics.jsonl whether the frozen text rows are unchanged and whether the new rows
are learning, without the checkpoint that the run started from. It copies the rows once per validation and
waits for the device only then.
"""

import hashlib
import math
import platform
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from indextts.commands.terminal import to_argv
from indextts.models.checkpoint import FORMAT_VERSION, TEXT_TABLES
from indextts.models.lora import LoraRecord
from indextts.planning.recipe import recipe_of
from indextts.runs.directory import CheckpointMeta
from indextts.system.files import write_bytes, write_json
from indextts.system.processes import git_commit
from indextts.training.batches import PairDataset
from indextts.training.run import Run

VALUES_OF_ROW = 16
DIGEST_CHARS = 16  # of a SHA-256: enough to tell two states of the rows apart


def checkpoint_of(run: Run, *, is_best: bool, is_best_heard: bool) -> tuple[dict[str, Any], CheckpointMeta]:
    """Return the content and the meta of a checkpoint of the current state.

    `indextts/models/checkpoint.py` documents the keys of the content; the meta lacks the size and the digest
    of the file.
    """
    state, inputs, command = run.state, run.inputs, run.inputs.command
    vocabulary = inputs.tokenizer.vocabulary
    meta = CheckpointMeta(
        step=state.step,
        epoch=state.epoch,
        samples_done=state.samples_done,
        batch_idx=state.batch_idx,
        serial=state.serial,
        part=state.part,
        is_best=is_best,
        validation_set=inputs.validation_set,
        validation_mel_loss=state.validation_mel_loss if state.validated_step == state.step else None,
        is_best_heard=is_best_heard,
        heard_by=state.heard_by,
        heard_score=state.heard_score if state.listened_step == state.step else None,
        tokenizer_fingerprint=vocabulary.fingerprint,
        tokenizer_size=vocabulary.size,
        base_size=run.base_size,
        gpt_config=asdict(inputs.config),
        data_order=inputs.data_order,
        num_samples=inputs.train_set.size.num_samples,
        num_positions=inputs.train_set.size.num_positions,
        longest=inputs.train_set.size.longest,
        manifests=inputs.manifests,
        base=run.base,
        settings=command.model_dump(mode="json"),
        schedule=asdict(run.schedule),
        environment=inputs.environment,
        losses={name: loss for name, loss in (state.last_losses or {}).items() if loss is not None},
        num_bytes=0,
        digest="",
        pieces=list(vocabulary.pieces),
        normalizer=inputs.tokenizer.options.record,
        codebook=None if inputs.codebook is None else inputs.codebook.identity,
        num_averaged=None if run.average is None else run.average.num_updates,
        recipe=recipe_of(command.model_dump(mode="json")),
        piece_counts=inputs.train_set.pairs.piece_counts().tolist(),
    )
    features = inputs.train_set.stores[inputs.train_set.pairs[0].features].info
    content = {
        **_weights(run),
        "optimizer": run.optimizer.state_dict(),
        "scheduler": asdict(run.schedule),
        "scaler": run.scaler.state_dict() or None,
        "averaged": None if run.average is None else run.average.content,
        "epoch": state.epoch,
        "step": state.step,
        "batch_idx": state.batch_idx,
        "sampler": {"samples_done": state.samples_done, "data_order": meta.data_order},
        "rng": {"seed": command.seed},
        "tokenizer": {
            "fingerprint": vocabulary.fingerprint,
            "pieces": list(inputs.tokenizer.pieces),
            "base_size": run.base_size,
            "model": inputs.tokenizer.model_bytes,
            "normalizer": inputs.tokenizer.options.record,
        },
        "recent_checkpoints": list(state.recent),
        "manifests": {
            "train": [str(file.path) for file in command.train_files],
            "val": [str(file.path) for file in command.val_files],
        },
        "learning_rate": command.learning_rate,
        "text_loss_weight": command.text_loss_weight,
        "mel_loss_weight": command.mel_loss_weight,
        "best_mel_loss": state.best_mel_loss,
        "state": {
            "validated_step": state.validated_step,
            "validation_set": inputs.validation_set,
            "window": None if state.window is None else vars(state.window),
            "last_losses": state.last_losses,
            "num_skipped": state.num_skipped,
            "num_worse": state.num_worse,
            "listened_step": state.listened_step,
            "best_heard": state.best_heard,
            "num_skipped_in_a_row": state.num_skipped_in_a_row,
            "unreadable": sorted(state.unreadable),
            "grad_norm": grad_norm if math.isfinite(grad_norm := float(state.grad_norm)) else None,
            "position_limits": state.limits_of_ranks,
            "probe": state.probe,
            "first_rows": state.first_rows,
            "languages": sorted(state.languages),
            "encoders": run.encoders,
            "codes": {"backend": features.backend, "identity": features.backend_identity},
        },
        "meta": meta.model_dump(mode="json", exclude={"num_bytes", "digest"}),
        "format_version": FORMAT_VERSION,
    }
    return content, meta


def _weights(run: Run) -> dict[str, Any]:
    """Return the entry "model", and of a LoRA run "lora"; see `indextts.models.lora`."""
    if run.lora is None:
        return {"model": dict(run.model.state_dict())}
    first_rows = {rows.name: rows.num_frozen for rows in run.trained.text_rows}
    record = LoraRecord(**run.lora.model_dump(), first_rows=first_rows, base=run.base)
    return {
        "model": {name: parameter.detach() for name, parameter in run.trained.parameters.items()},
        "lora": record.model_dump(mode="json"),
    }


def write_run_files(run: Run) -> None:
    """Write the config.json and tokenizer.model of this part of the run."""
    command = run.inputs.command
    folder = command.output_dir
    content = {
        "command": command.model_dump(mode="json"),
        "argv": [command.program, *to_argv(command)],
        "recipe": recipe_of(command.model_dump(mode="json")),
        "part": run.state.part,
        "schedule": asdict(run.schedule),
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "environment": run.inputs.environment,
        "normalizer": run.inputs.tokenizer.options.record,
        "git_commit": git_commit(),
    }
    write_json(folder / "config.json", content)
    write_bytes(folder / "tokenizer.model", run.inputs.tokenizer.model_bytes)


class TextRowFacts:
    """Facts of the text rows of a run, since its part started and since this object was created."""

    def __init__(self, run: Run) -> None:
        self._trained, self._base_size = run.trained, run.base_size
        self._before = self._values()
        if run.state.first_rows is None:
            run.state.first_rows = self._before
        self._first = run.state.first_rows
        self._unknown_share = unknown_share(run.inputs.train_set, run.inputs.tokenizer.unknown_id)

    def read(self) -> dict[str, Any]:
        """Return the facts by name; `indextts/training/metrics.py` documents them."""
        facts: dict[str, Any] = {"unknown_share": self._unknown_share}
        # not with --train-text-rows used: other texts freeze other rows, which is no change of the base
        if any(rows.num_frozen for rows in self._trained.text_rows):
            digest = hashlib.sha256()
            for rows in self._trained.text_rows:
                digest.update(_on_host(rows.table[: rows.num_frozen]).flatten().numpy().data)
            facts["base_rows"] = digest.hexdigest()[:DIGEST_CHARS]
        if not (now := self._values()):
            return facts
        moved, lately = (
            {name: values - before[name] for name, values in now.items()}
            for before in (self._first, self._before)
        )
        return facts | {
            "new_rows_moved": min(_root_mean_square(each) for each in moved.values()),
            "new_rows_moved_lately": min(_root_mean_square(each) for each in lately.values()),
            "new_rows_seen": float(moved[TEXT_TABLES[0]].any(dim=1).double().mean()),
        }

    def _values(self) -> dict[str, Tensor]:
        """Return some values of each new row by table; all of them would double the rows in a checkpoint."""
        return {
            rows.name: _on_host(new.reshape(len(new), -1)[:, :VALUES_OF_ROW])
            for rows in self._trained.text_rows
            if rows.name in self._trained.new_names
            for new in [rows.table[self._base_size :]]
        }


def unknown_share(dataset: PairDataset, unknown_id: int) -> float:
    """Return the share of unknown tokens in the texts of all pairs."""
    pairs = dataset.pairs
    unknown = np.flatnonzero(pairs.tokens.values == unknown_id)
    texts = np.searchsorted(pairs.tokens.starts, unknown, side="right") - 1
    num_unknown = np.bincount(texts, minlength=len(pairs.tokens))[pairs.text].sum()
    return int(num_unknown) / max(1, int(pairs.num_text_ids.sum()))


def _on_host(rows: Tensor) -> Tensor:
    return rows.detach().to("cpu", copy=True)


def _root_mean_square(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.float64)) / math.sqrt(values.numel())
