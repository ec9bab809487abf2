"""Where a run starts: from the base checkpoint, or from one of its own checkpoints, as the plan says.

base checkpoint + tokenizer            --start_from_base--> a new run, part 1
checkpoint + tokenizer + plan_restore  --resume-----------> the same run, or a new part of it
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from indextts.commands.train import Train
from indextts.data.encoding import encoders_identity
from indextts.errors import RESUME_REFUSED, UserError
from indextts.models.checkpoint import meta_of, move_text_rows, read_file, read_weights, table_rows, text_rows
from indextts.models.gpt.config import config_with_text_tokens
from indextts.models.gpt.model import UnifiedVoice
from indextts.models.gpt.weights import check_fit, empty_model, load_model
from indextts.models.weight_names import canonical_names
from indextts.runs.directory import CheckpointMeta, FileIdentity, checkpoints, identify
from indextts.runs.find_checkpoint import find_checkpoint
from indextts.runs.restore import plan_restore, requested_schedule, require_keys
from indextts.runs.restore_facts import CheckpointFacts, RunFacts
from indextts.runs.restore_notes import plan_text
from indextts.runs.schedule import Schedule, with_val_interval
from indextts.text.tokenizer import Tokenizer
from indextts.text.verify import base_tokenizer, require_extension
from indextts.text.vocabulary import Vocabulary, move_rows
from indextts.training.averaging import start_average
from indextts.training.checkpoint_facts import OptimizerLayout, checkpoint_facts, named_moments
from indextts.training.distributed.ranks import Ranks
from indextts.training.distributed.torchrun import RankInfo
from indextts.training.losses import LossSums
from indextts.training.optim import (
    Trained,
    build_optimizer,
    load_optimizer,
    select_trained,
    weight_device,
)
from indextts.training.run import Inputs, Run, TrainState, load_inputs

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenedCheckpoint:
    """A checkpoint that was opened, and what a restore of it is decided by."""

    facts: CheckpointFacts
    run: RunFacts
    content: dict[str, Any]
    layout: OptimizerLayout


def start_from_base(inputs: Inputs) -> Run:
    """Return a new run: the base weights, text tables grown to the tokenizer."""
    inputs = _with_chosen_settings(inputs)
    path, seed = inputs.command.base_checkpoint, inputs.command.seed
    weights = read_weights(path)
    check_fit(inputs.config, weights, str(path))
    base_size = table_rows(weights, str(path)) - 1
    base = _base_vocabulary(inputs, base_size)
    weights = move_text_rows(
        weights, move_rows(base, inputs.tokenizer.vocabulary), base_size=base_size, seed=seed
    )
    with ThreadPoolExecutor(1) as reader:
        identity = reader.submit(identify, path)  # reads the file once more, while it is copied
        schedule = first_schedule(inputs)
        return _assemble(
            inputs, weights, str(path), TrainState(), schedule, base_size, identity.result, None, {}, None
        )


def _with_chosen_settings(inputs: Inputs) -> Inputs:
    """Return the inputs of a run that begins, with what was not typed chosen for its data."""
    command = with_val_interval(
        inputs.command, inputs.train_set.size, inputs.val_set.size, inputs.ranks.world_size
    )
    return replace(inputs, command=command)


def first_schedule(inputs: Inputs) -> Schedule:
    """Return the schedule of a run that begins."""
    return requested_schedule(
        inputs.command,
        inputs.train_set.size,
        num_processes=inputs.ranks.world_size,
        step=0,
        epoch=0,
        samples_done=0,
    )


def plan_from_weights(command: Train, num_processes: int = 1) -> str:
    """Return what a start would do where no meta file says it: a new run, or another program's checkpoint."""
    path = find_checkpoint(command, may_change=False)
    inputs = load_inputs(command, Ranks(RankInfo(world_size=num_processes)))
    if path is None:
        _base_vocabulary(inputs, text_rows(command.base_checkpoint) - 1)
        return (
            f"step 0: a new run from the base checkpoint {command.base_checkpoint}\n"
            f"to do: {first_schedule(inputs).total_steps:,} steps"
        )
    opened = _open(inputs, path)
    return plan_text(plan_restore(opened.facts, opened.run), opened.facts, opened.run)


def resume(inputs: Inputs, path: Path) -> Run:
    """Return the run that the checkpoint at `path` allows.

    Raises:
        UserError: with status 3 if it cannot be loaded, or belongs to another model or base.
    """
    logger.info("Loading checkpoint from %s", path)
    opened = _open(inputs, path)
    facts, plan = opened.facts, plan_restore(opened.facts, opened.run)
    for line in plan.lines:
        logger.info("%s", line)
    inputs = replace(inputs, command=plan.command)
    if not plan.continues:
        inputs = _with_chosen_settings(inputs)
    logger.info("Restoring model state...")
    weights = canonical_names(opened.content["model"])
    if plan.row_of is not None:
        weights = move_text_rows(
            weights, plan.row_of, base_size=opened.run.base_size, seed=inputs.command.seed
        )
    state = TrainState()
    state.serial, state.part = _serial_and_part(inputs.command, path, plan.continues)
    if plan.continues:
        _restore_state(state, opened, inputs, keeps_position=plan.keeps_position)
        if not _is_what_auto_takes(inputs.command, path, facts.meta, state.part):
            state.saved_step = -1
    meta = facts.meta
    base = opened.run.base or (meta.base if meta else identify(inputs.command.base_checkpoint))
    saved_environment = meta.environment if meta else {}
    encoders = opened.content["state"]["encoders"] if meta else None
    with _refusing():
        run = _assemble(
            inputs,
            weights,
            str(path),
            state,
            plan.schedule,
            opened.run.base_size,
            lambda: base,
            encoders,
            saved_environment,
            opened.content.get("averaged") if plan.continues else None,
        )
    if plan.continues:
        logger.info("Restoring optimizer state...")
        load_optimizer(run.optimizer, run.trained, named_moments(opened.content, opened.layout))
        logger.info("Restoring scheduler state...")
    if plan.takes_scaler:
        logger.info("Restoring gradient scaler state...")
        run.scaler.load_state_dict(opened.content["scaler"])
    logger.info("Successfully resumed from %s", path)
    logger.info("   Epoch: %d, Step: %d, Batch: %d", state.epoch, state.step, state.batch_idx)
    logger.info("   Recent checkpoints: %d", len(state.recent))
    return run


def _assemble(
    inputs: Inputs,
    weights: Mapping[str, Tensor],
    source: str,
    state: TrainState,
    schedule: Schedule,
    base_size: int,
    base: Callable[[], FileIdentity],
    encoders: str | None,
    saved_environment: dict[str, Any],
    averaged: Mapping[str, Any] | None,
) -> Run:
    """Make the run; `base` is asked for last, since it may still be read.

    Args:
        averaged: what the checkpoint kept of the average, None where there is none to go on with.
    """
    config = config_with_text_tokens(inputs.config, inputs.tokenizer.size)
    model = load_model(config, weights, source, lambda name: weight_device(name, inputs.device))
    trained = select_trained(model, base_size)
    optimizer = build_optimizer(
        trained, inputs.command.weight_decay, getattr(torch, inputs.command.optimizer_state)
    )
    _say_what_is_frozen(model, trained, base_size)
    _say_how_samples_attend(inputs)
    encoders = encoders or encoders_identity(model)
    _require_same_encoders(inputs, encoders)
    scaler = torch.amp.GradScaler(inputs.device.type, enabled=inputs.dtype == torch.float16)
    average = start_average(trained, inputs.command.ema_decay, averaged)
    return Run(
        inputs,
        model,
        trained,
        optimizer,
        scaler,
        average,
        state,
        schedule,
        base_size,
        base(),
        encoders,
        saved_environment,
    )


def _require_same_encoders(inputs: Inputs, encoders: str) -> None:
    """Raise a UserError unless the features were made by the encoders that this run's model has."""
    for path, store in {**inputs.train_set.stores, **inputs.val_set.stores}.items():
        if store.info.is_imported:
            logger.warning(
                "%s: these features were made by another program, so nobody knows whether they are of this "
                "run's base checkpoint; features made from the recordings would be",
                path,
            )
        elif store.info.encoders_identity != encoders:
            raise UserError(
                f"{path}: its features were made with the encoders of other weights than this run's; "
                "preprocess with this run's base checkpoint, or take the one they were made with"
            )


def _base_vocabulary(inputs: Inputs, base_size: int) -> Vocabulary:
    """Return the base tokenizer's vocabulary after checking that the run's tokenizer extends it.

    Raises:
        UserError: the tokenizer does not begin with the base's pieces, or the base's own tokenizer does not
            belong to its weights.
    """
    beside = base_tokenizer(inputs.command.base_checkpoint)
    tokenizer = inputs.tokenizer
    if tokenizer.size < base_size:
        raise UserError(
            f"--tokenizer {tokenizer.path}: {tokenizer.size} pieces, the base checkpoint has {base_size}; "
            "give a tokenizer that extends the base's (tools/extend_bpe.py)"
        )
    if not beside.is_file():
        logger.warning("%s is absent: that the tokenizer extends the base's could not be checked", beside)
        return Vocabulary(tokenizer.pieces[:base_size], fingerprint="")
    base = Tokenizer.load(beside)
    if base.size != base_size:
        raise UserError(
            f"{beside}: {base.size} pieces, but the base checkpoint's text tables have {base_size + 1} rows, "
            f"one more than {base_size} pieces; put the tokenizer beside it that it was trained with"
        )
    require_extension(tokenizer, base)
    return base.vocabulary


def _open(inputs: Inputs, path: Path) -> OpenedCheckpoint:
    """Read what a restore is decided by; tensors are only looked at."""
    command = inputs.command
    try:
        content = read_file(path)
    except UserError as error:
        raise UserError(f"Failed to load checkpoint: {error}", RESUME_REFUSED) from None
    require_keys(frozenset(content))
    meta = meta_of(content, path)
    base, why_no_base = _identify_base(command, meta)
    if meta is not None:
        base_size = meta.base_size
    else:
        base_size = text_rows(command.base_checkpoint) - 1
        _base_vocabulary(inputs, base_size)
    model = empty_model(config_with_text_tokens(inputs.config, inputs.tokenizer.size))
    trained = select_trained(model, base_size)
    shapes = {name: tuple(each.shape) for name, each in trained.parameters.items()}
    run = RunFacts(
        vocabulary=inputs.tokenizer.vocabulary,
        base_size=base_size,
        gpt_config=asdict(inputs.config),
        command=command,
        size=inputs.train_set.size,
        data_order=inputs.train_set.digest,
        manifests=tuple(inputs.manifests),
        base=base,
        environment=inputs.environment,
        trained_shapes=shapes,
        normalizer=inputs.tokenizer.options.record,
        why_no_base=why_no_base,
    )
    layout = OptimizerLayout(frozenset(name for name, _ in model.named_parameters()), shapes, base_size)
    with _refusing():
        facts = checkpoint_facts(content, path, meta, layout)
    return OpenedCheckpoint(facts, run, content, layout)


@contextmanager
def _refusing() -> Iterator[None]:
    """Give a checkpoint that turns out unusable the status of a refused resume."""
    try:
        yield
    except UserError as error:
        if error.exit_status == RESUME_REFUSED:
            raise
        raise UserError(f"Resume failed: {error}", RESUME_REFUSED) from None


def _identify_base(command: Train, meta: CheckpointMeta | None) -> tuple[FileIdentity | None, str]:
    """Return the base checkpoint's identity, or why there is none; a run that goes on can do without."""
    try:
        return identify(command.base_checkpoint, known=[meta.base] if meta else ()), ""
    except OSError as error:
        return None, error.strerror or str(error)


def _serial_and_part(command: Train, resumed: Path, continues: bool) -> tuple[int, int]:
    """Return the newest serial number of the folder, and the part that goes on.

    A new part begins when the run starts over, or was told to go on from another checkpoint than the
    folder's newest: its saves must not replace, or count as older than, those that are there. `auto` takes
    the newest that is whole, so what it left out as damaged may be replaced.
    """
    present = checkpoints(command.output_dir)
    if not present:
        return 0, 1
    newest = present[0][1]
    serial_of = {path.resolve(): meta.serial for path, meta in present}
    is_newest = command.resume == "auto" or serial_of.get(resumed.resolve()) == newest.serial
    last_part = max(meta.part for _, meta in present)
    return newest.serial, newest.part if continues and is_newest else last_part + 1


def _is_what_auto_takes(command: Train, resumed: Path, meta: CheckpointMeta | None, part: int) -> bool:
    """Return whether `--resume auto` would go on from here too, should the run end before its first save."""
    if command.resume == "auto":
        return True
    is_in_folder = resumed.resolve().parent == command.output_dir.resolve()
    return is_in_folder and meta is not None and meta.part == part


def _restore_state(
    state: TrainState, opened: OpenedCheckpoint, inputs: Inputs, *, keeps_position: bool
) -> None:
    """Take over what changes between two steps; of another program's checkpoint step and epoch alone."""
    facts, content = opened.facts, opened.content
    state.step = state.saved_step = state.validated_step = facts.step
    state.epoch = facts.epoch
    if facts.meta is None:
        return
    more = content["state"]
    state.validated_step = more["validated_step"]
    state.last_losses, state.probe = more["last_losses"], more["probe"]
    state.num_skipped, state.recent = more["num_skipped"], list(content["recent_checkpoints"])
    if more["window"] is not None and inputs.ranks.is_main:  # it is the sum over all processes
        state.window = LossSums(**more["window"]).to(inputs.device)
    if more["validation_set"] == inputs.validation_set:
        state.best_mel_loss = content["best_mel_loss"]
        state.num_worse = more.get("num_worse", 0)  # files of an older version have none
    else:
        logger.warning("The validation pairs changed: the best so far counts no more")
    if facts.meta.environment.get("device") == inputs.environment["device"]:
        state.micro_batch_limit = more["micro_batch_limit"]
    if keeps_position:
        state.samples_done, state.batch_idx = facts.meta.samples_done, facts.meta.batch_idx


def _say_how_samples_attend(inputs: Inputs) -> None:
    if inputs.command.padding == "none":
        attention, dropout = inputs.attention, inputs.config.dropout
        says = f"dropout {dropout:g}" if attention.has_dropout else "no dropout: its kernel has none"
        logger.info("No padding: attention by %s, with %s on its weights", attention.name, says)


def _say_what_is_frozen(model: UnifiedVoice, trained: Trained, base_size: int) -> None:
    size = model.config.number_text_tokens
    if not trained.new_rows:
        logger.warning(
            "The tokenizer has no pieces besides the base's: no row is frozen, all text rows are trained; "
            "for a new language extend it first (tools/extend_bpe.py)"
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
