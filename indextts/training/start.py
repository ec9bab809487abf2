"""Start of a run: a new one from the base checkpoint, and what a resume has in common with it.

base checkpoint + tokenizer --start_from_base--> Origin --assemble--> Run
checkpoint + restore plan   --resume.py--------> Origin --assemble--> Run
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from indextts.data.encoding import encoders_identity
from indextts.errors import USER_MISTAKE, UserError
from indextts.models.checkpoint import TEXT_TABLES, move_text_rows, read_weights, table_rows, text_rows
from indextts.models.gpt.config import config_with_text_tokens
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.weights import check_fit, load_model
from indextts.models.lora import IN, LoraSettings, add_adapters, is_block_matrix
from indextts.models.weight_names import LANGUAGE_ROWS
from indextts.runs.directory import FileIdentity, identify
from indextts.runs.lora_base import keep_base
from indextts.runs.restore import OWN_ROW, requested_schedule, require_new_rows
from indextts.runs.restore_rows import RestoreRow, new_run_rows
from indextts.runs.schedule import Schedule
from indextts.text.bases import base_tokenizer, load_tokenizer, new_languages
from indextts.text.sounds import base_tokens
from indextts.text.special_tokens import language_row
from indextts.text.tokenizer import Tokenizer
from indextts.text.verify import require_extension
from indextts.text.vocabulary import Vocabulary, move_rows
from indextts.training.averaging import SavedAverage, start_average
from indextts.training.lora import SavedAdapters, log_adapters
from indextts.training.optim import TrainedParameters, build_optimizer, select_trained, weight_device
from indextts.training.order import derive_seed
from indextts.training.run import Inputs, Run, TrainState
from indextts.training.settings import with_automatic_settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Origin:
    """Weights and facts that a run starts with.

    Args:
        weights: by published name, text tables with the rows of the run's tokenizer.
        base: returns the identity of the base checkpoint; called last, since its file may still be read.
        encoders: identity of the encoders, None to compute it.
        environment: of the checkpoint; empty for a new run.
        averaged: the weight average of the checkpoint, None where the run cannot use it.
    """

    weights: Mapping[str, Tensor]
    source: str
    base_size: int
    base: Callable[[], FileIdentity]
    encoders: str | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    averaged: SavedAverage | None = None
    adapters: SavedAdapters = field(default_factory=SavedAdapters)


def start_from_base(inputs: Inputs) -> Run:
    """Return a new run with the base weights, text tables extended to the tokenizer."""
    command = inputs.command
    path = command.base_checkpoint
    weights = read_weights(path)
    check_fit(inputs.config, weights, str(path))
    num_rows = table_rows(weights, str(path)) - 1
    base_size = inputs.tokenizer.appended_ids(num_rows).start
    inputs, schedule, rows = plan_new_run(inputs, base_size)
    for row in rows:
        logger.log(logging.WARNING if row.kind == "changed" else logging.INFO, "%s", row)
    base = _base_vocabulary(inputs.tokenizer, path, num_rows)
    if command.lora_rank and inputs.ranks.is_main:  # the rank that writes the checkpoints
        path = keep_base(path, command.output_dir)
        weights = read_weights(path)  # the bytes that stay, if the other run has just replaced the file
    languages = new_languages_of(inputs)
    table = language_table(weights, languages, command.language_row_init)
    state = TrainState(languages=languages_of(inputs))
    move = row_mover(inputs, move_rows(base, inputs.tokenizer.vocabulary), base_size, state.part)
    weights = move({**weights, **table})
    with ThreadPoolExecutor(1) as reader:
        identity = reader.submit(identify, path)  # reads the file again, in parallel
        origin = Origin(weights, str(path), base_size, identity.result)
        return assemble(inputs, origin, state, schedule)


def row_mover(
    inputs: Inputs, row_of: tuple[int, ...], base_size: int, part: int
) -> Callable[[Mapping[str, Tensor]], dict[str, Tensor]]:
    """Return `move_text_rows` for this part of the run, with --new-row-init applied to the fresh rows."""
    tokenizer, command = inputs.tokenizer, inputs.command
    sounds: dict[int, list[int]] = {}
    if command.new_row_init == "romanised":
        fresh = [token for token in range(tokenizer.size) if row_of[token] < 0]
        sounds = base_tokens(tokenizer, base_size, fresh)
        logger.info("%d of %d new text rows start from their sound in base pieces", len(sounds), len(fresh))

    def move(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        moved = move_text_rows(
            weights, row_of, pieces=tokenizer.pieces, base_size=base_size, seed=command.seed, part=part
        )
        rows = moved[TEXT_TABLES[0]]  # (rows, D), of the embedding; new in `moved`
        for token, parts in sounds.items():
            rows[token] = rows[parts].float().mean(dim=0)
        return moved

    return move


def plan_new_run(inputs: Inputs, base_size: int) -> tuple[Inputs, Schedule, list[RestoreRow]]:
    """Return the inputs with the settings of a new run, its schedule, and what it starts with in words."""
    typed = inputs.command
    has_new_rows = inputs.tokenizer.size > base_size or bool(new_languages_of(inputs))
    require_new_rows(typed.freeze_body_steps, has_new_rows=has_new_rows, exit_status=USER_MISTAKE)
    inputs = with_automatic_settings(inputs, base_size)
    inputs = replace(inputs, command=inputs.command.model_copy(update={"rewarm": 0.0}))
    schedule = requested_schedule(
        inputs.command,
        inputs.train_set.size,
        num_processes=inputs.ranks.world_size,
        step=0,
        epoch=0,
        samples_done=0,
    )
    rows = new_run_rows(typed.base_checkpoint, schedule.total_steps, typed.warmup_steps, typed.rewarm)
    return inputs, schedule, rows


def assemble(inputs: Inputs, origin: Origin, state: TrainState, schedule: Schedule) -> Run:
    """Build model, optimizer, scaler and weight average of the run."""
    command, tokenizer = inputs.command, inputs.tokenizer
    config = config_with_text_tokens(inputs.config, tokenizer.size)
    lora = LoraSettings.of(command.lora_rank, command.lora_alpha, command.lora_targets)
    model = load_model(
        config,
        origin.weights,
        origin.source,
        lambda name: weight_device(name, inputs.device),
        lambda name: inputs.dtype if lora and is_block_matrix(name) else torch.float32,
    )
    if lora:
        seed_of = partial(derive_seed, command.seed, "adapter")
        add_adapters(model, lora, seed_of, origin.adapters.values, origin.adapters.scale)
    trained = select_trained(
        model,
        origin.base_size,
        new_languages_of(inputs).values(),
        command.train_text_rows,
        used_pieces(inputs),
        code_head=command.lora_code_head,
    )
    if trained.new_names and command.new_row_lr_scale != 1:
        logger.info("New rows train at %g times the learning rate", command.new_row_lr_scale)
    if trained.new_names and state.step < command.freeze_body_steps:
        logger.info("Up to step %d only the new rows are trained", command.freeze_body_steps)
    optimizer = build_optimizer(trained, command.weight_decay, getattr(torch, command.optimizer_state))
    _log_frozen_rows(model, trained, origin.base_size)
    if lora:
        log_adapters(lora, trained, inputs.dtype)
    if inputs.is_packed:
        dropout = f"dropout {config.dropout:g}"
        if not inputs.attention.has_dropout:
            dropout = "without dropout, which it does not support"
        logger.info("No padding: packed batches with %s attention, %s", inputs.attention.name, dropout)
    encoders = origin.encoders or encoders_identity(model)
    _require_same_encoders(inputs, encoders)
    scaler = torch.amp.GradScaler(inputs.device.type, enabled=inputs.dtype == torch.float16)
    average = start_average(trained, command.ema_decay, origin.averaged)
    return Run(
        inputs=inputs,
        model=model,
        trained=trained,
        optimizer=optimizer,
        scaler=scaler,
        average=average,
        state=state,
        schedule=schedule,
        base_size=origin.base_size,
        base=origin.base(),
        encoders=encoders,
        lora=lora,
        saved_environment=origin.environment,
    )


def _require_same_encoders(inputs: Inputs, encoders: str) -> None:
    """Raise a UserError unless the features were computed with the encoders of this run's model."""
    for path, store in {**inputs.train_set.stores, **inputs.val_set.stores}.items():
        if store.info.is_imported:
            logger.warning(
                "%s: another program computed these features, perhaps with encoders or a codebook that do "
                "not belong to this run's base checkpoint; to be sure, compute them from the recordings",
                path,
            )
        elif store.info.encoders_identity != encoders:
            raise UserError(
                f"{path}: these features were computed with encoders that do not belong to this run; "
                "preprocess with this run's base checkpoint, or train with the one used for the features"
            )


def language_table(
    weights: Mapping[str, Tensor], new_languages: Mapping[str, int], source: str, *, is_logged: bool = True
) -> dict[str, Tensor]:
    """Return the table of languages with the rows of new ones as copies of that of `source`; by its name.

    The published model speaks few of the languages that it has rows for; the rows of the others are as they
    were initialised, perhaps many times longer. Empty if nothing changes.
    """
    if not new_languages or source == OWN_ROW:
        return {}
    published, table = weights[LANGUAGE_ROWS], weights[LANGUAGE_ROWS].clone()
    table[list(new_languages.values())] = published[language_row(source)]
    for code, row in new_languages.items() if is_logged else ():
        logger.info(
            "The language row of %s (%d) starts as a copy of %s: norm %.2f, published norm %.2f",
            code,
            row,
            source,
            table[row].float().norm().item(),
            published[row].float().norm().item(),
        )
    return {LANGUAGE_ROWS: table}


def languages_of(inputs: Inputs) -> set[str]:
    """Return the languages of the training texts."""
    own = inputs.tokenizer.options.language
    return {file.language or own for file in inputs.command.train_files}


def new_languages_of(inputs: Inputs) -> dict[str, int]:
    """Return the language rows of the run that the base was not trained on, by language."""
    return new_languages(inputs.tokenizer, inputs.config.of_base, inputs.command.train_files)


def used_pieces(inputs: Inputs) -> list[int]:
    """Return the text ids of the training texts, with those that begin and end every text."""
    config = inputs.config
    ids = np.unique(inputs.train_set.pairs.tokens.values).tolist()
    return sorted({*ids, config.start_text_token, config.stop_text_token})


def base_size_of(tokenizer: Tokenizer, base_checkpoint: Path) -> int:
    """Return how many pieces of the base the tokenizer keeps; a UserError if it does not extend the base."""
    num_rows = text_rows(base_checkpoint) - 1
    _base_vocabulary(tokenizer, base_checkpoint, num_rows)
    return tokenizer.appended_ids(num_rows).start


def _base_vocabulary(tokenizer: Tokenizer, base_checkpoint: Path, base_size: int) -> Vocabulary:
    """Return the base tokenizer's vocabulary after checking that the run's tokenizer extends it."""
    path = base_tokenizer(base_checkpoint)
    if tokenizer.size < base_size:
        raise UserError(
            f"--tokenizer {tokenizer.path} has {tokenizer.size} pieces, fewer than the {base_size} of the "
            "base checkpoint; pass a tokenizer that extends the base tokenizer (tools/extend_bpe.py)"
        )
    if not path.is_file():
        logger.warning("%s is missing: cannot check that --tokenizer extends the base tokenizer", path)
        return Vocabulary(tokenizer.pieces[:base_size], fingerprint="")
    base = load_tokenizer(path)
    if base.size != base_size:
        raise UserError(
            f"{path}: {base.size} pieces, but the text tables of the base checkpoint have {base_size + 1} "
            f"rows, for {base_size} pieces; replace this file with the tokenizer of the base checkpoint"
        )
    require_extension(tokenizer, base)
    return base.vocabulary


def _log_frozen_rows(model: UnifiedVoice, trained: TrainedParameters, base_size: int) -> None:
    size = model.config.number_text_tokens
    if not trained.text_rows:
        logger.warning(
            "The tokenizer has no new pieces, so all text rows are frozen, as everything besides the adapters"
            if any(name.endswith(IN) for name in trained.parameters)
            else "The tokenizer has no new pieces, so no text row is frozen; for a new language extend the "
            "tokenizer first (tools/extend_bpe.py)"
        )
        return
    if not trained.text_rows[0].num_frozen:  # with --train-text-rows used or all
        num_frozen = len(trained.frozen_rows(trained.text_rows[0]))
        logger.info(
            "Text rows of the base: %s are trained, %s are frozen",
            f"{base_size - num_frozen:,}",
            f"{num_frozen:,}",
        )
        return
    total = sum(parameter.numel() for parameter in model.parameters())
    share = 100 * trained.num_frozen / total
    tag = "[Extended Vocab Fix]"
    logger.info("%s Detected extended vocabulary: %d tokens", tag, size)
    logger.info("%s Base tokens: 0-%d (pretrained)", tag, base_size - 1)
    logger.info("%s New tokens: %d-%d", tag, base_size, size - 1)
    logger.info("%s Applying gradient masking to freeze base embeddings", tag)
    logger.info("%s Freezing %d / %d parameters (%.1f%%)", tag, trained.num_frozen, total, share)
    logger.info("%s Base embeddings frozen, new embeddings trainable", tag)
