"""Resume of a checkpoint, as far as the restore plan allows, and the plan itself.

checkpoint + tokenizer --_open--> facts --plan_restore--> plan --resume--> the run, or a new part of it
"""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from indextts.commands.terminal import continued
from indextts.commands.train import Train
from indextts.errors import RESUME_REFUSED, UserError
from indextts.models.checkpoint import embedded_meta, read_file, recover_meta
from indextts.models.gpt.config import config_with_text_tokens
from indextts.models.gpt.weights import empty_model
from indextts.models.lora import LoraSettings, add_adapters
from indextts.models.weight_names import published_names
from indextts.runs.checkpoints import list_checkpoints
from indextts.runs.directory import checkpoints, identify
from indextts.runs.find_checkpoint import find_checkpoint
from indextts.runs.lora_base import base_of_run, identify_base, keep_base, verified
from indextts.runs.restore import plan_restore, require_keys
from indextts.runs.restore_facts import CheckpointFacts, RunFacts
from indextts.runs.restore_rows import log_lines, plan_text
from indextts.training.averaging import SavedAverage
from indextts.training.checkpoint_facts import (
    OptimizerLayout,
    checkpoint_facts,
    named_moments,
    read_old_pieces,
)
from indextts.training.distributed.ranks import Ranks
from indextts.training.gradients import LIMITED_STEPS
from indextts.training.lora import SavedAdapters, with_base
from indextts.training.losses import LossSums
from indextts.training.optim import load_optimizer, scale_rates, select_trained
from indextts.training.run import Inputs, Run, TrainState, load_inputs
from indextts.training.settings import with_automatic_settings
from indextts.training.start import (
    Origin,
    assemble,
    base_size_of,
    language_table,
    languages_of,
    new_languages_of,
    plan_new_run,
    row_mover,
)

logger = logging.getLogger(__name__)

# Where one of these changes, micro-batches of another size may fit into memory.
MEMORY_SETTINGS = (
    *("batch_size", "batch_tokens", "padding", "amp", "grad_checkpointing", "compile"),
    *("ema_decay", "optimizer_state", "lora_rank", "lora_targets"),
)


@dataclass(frozen=True)
class OpenedCheckpoint:
    """A checkpoint in memory, with the facts that the restore plan depends on.

    Args:
        content: the model of a LoRA checkpoint is the base with the trained rows, and with the adapters
            merged into it if the run has none.
        adapters: of a LoRA run.
        base_file: base of a LoRA checkpoint, recognised by its size and time; None for one of all weights.
    """

    facts: CheckpointFacts
    run: RunFacts
    content: dict[str, Any]
    layout: OptimizerLayout
    adapters: SavedAdapters
    base_file: Path | None


def plan_from_weights(command: Train, num_processes: int = 1) -> str:
    """Return the restore plan without a meta file: of a new run, or of a checkpoint of another trainer."""
    path = find_checkpoint(command.resume, command.output_dir, recover_meta, may_change=False)
    inputs = replace(load_inputs(command), ranks=Ranks(world_size=num_processes))
    if path is not None:
        opened = _open(inputs, path)
        return plan_text(plan_restore(opened.facts, opened.run))
    _, _, rows = plan_new_run(inputs, base_size_of(inputs.tokenizer, command.base_checkpoint))
    title = f"step 0: a new run from the base checkpoint {command.base_checkpoint}"
    return "\n".join([title, *(f"  {row}" for row in rows)])


def resume(inputs: Inputs, path: Path) -> Run:
    """Return the run restored from the checkpoint at `path`, as far as the restore plan allows.

    Raises:
        UserError: with status 3 if it cannot be loaded, or belongs to another model or base.
    """
    logger.info("Loading checkpoint from %s", path)
    opened = _open(inputs, path)
    facts, plan = opened.facts, plan_restore(opened.facts, opened.run)
    for line in log_lines(plan):
        logger.info("%s", line)
    inputs = replace(inputs, command=plan.command)
    meta = facts.meta
    if meta is not None:
        inputs = with_automatic_settings(inputs, opened.run.base_size, meta)
    command = inputs.command
    logger.info("Restoring model state...")
    weights = published_names(opened.content["model"])
    averaged = SavedAverage.of(opened.content) if plan.average in ("continues", "moves") else None
    added, like = plan.added_languages, command.language_row_init
    if added:
        weights = {**weights, **language_table(weights, added, like)}
        if averaged is not None:
            averaged_table = language_table(averaged.weights, added, like, is_logged=False)
            averaged = replace(averaged, weights={**averaged.weights, **averaged_table})
    state = TrainState(languages=languages_of(inputs) | (facts.languages or set()))
    is_auto = command.resume == "auto"
    state.serial, state.part = _serial_and_part(command.output_dir, path, is_auto, plan.continues)
    if plan.row_of is not None:
        move = row_mover(inputs, plan.row_of, opened.run.base_size, state.part)
        weights = move(weights)
        averaged = averaged and replace(averaged, weights=move(averaged.weights))
    if plan.continues:
        settings = command.model_dump(mode="json", include=set(MEMORY_SETTINGS))
        is_unchanged = (
            meta is not None
            and settings.items() <= meta.settings.items()
            and inputs.environment == meta.environment
        )
        _restore_state(
            state, opened, inputs, keeps_position=plan.keeps_position, keeps_position_limit=is_unchanged
        )
        # would `auto` resume here too if the run ended before its first save? By the folder of the path and
        # not of its target: a checkpoint may be a link to a file elsewhere
        is_in_folder = path.parent.resolve() == command.output_dir.resolve()
        if not (is_auto or (is_in_folder and meta is not None and meta.part == state.part)):
            state.saved_step = -1
    base = opened.run.base or (meta.base if meta else identify(command.base_checkpoint))
    file = opened.base_file
    if file and command.lora_rank and inputs.ranks.is_main:
        file = keep_base(file, command.output_dir)
    origin = Origin(
        weights,
        source=str(path),
        base_size=opened.run.base_size,
        base=lambda: base if verifying is None else verifying.result(),
        encoders=opened.content["state"]["encoders"] if meta else None,
        environment=meta.environment if meta else {},
        averaged=averaged,
        adapters=opened.adapters,
    )
    with _refusing(), ThreadPoolExecutor(1) as reader:
        verifying = reader.submit(verified, file, base) if file else None  # while the weights load
        run = assemble(inputs, origin, state, plan.schedule)
    if file:
        logger.info("Verified the content of the base checkpoint %s", file)
    if plan.continues:
        logger.info("Restoring optimizer state...")
        load_optimizer(run.optimizer, run.trained, named_moments(opened.content, opened.layout))
        is_frozen = state.step <= command.freeze_body_steps
        scale_rates(run.optimizer, command.new_row_lr_scale, is_frozen=is_frozen)
        for group in run.optimizer.param_groups:  # as in the checkpoint, even if no step follows
            group["lr"] = run.schedule.learning_rate(state.step) * group["lr_scale"]
        if meta is not None:
            logger.info("Restoring scheduler state...")
    if plan.takes_scaler:
        logger.info("Restoring gradient scaler state...")
        run.scaler.load_state_dict(opened.content["scaler"])
    logger.info("Successfully resumed from %s", path)
    logger.info("   Epoch: %d, Step: %d, Batch: %d", state.epoch, state.step, state.batch_idx)
    present = [each for each in list_checkpoints(command.output_dir) if each.is_complete]
    logger.info("   Recent checkpoints: %d", len(present))
    return run


def _open(inputs: Inputs, path: Path) -> OpenedCheckpoint:
    """Open the checkpoint and collect the facts for the restore plan; changes nothing."""
    command = inputs.command
    try:
        content = read_file(path)
    except UserError as error:
        raise UserError(f"Failed to load checkpoint: {error}", RESUME_REFUSED) from None
    require_keys(frozenset(content))
    meta = embedded_meta(content, path)
    base_path = base_of_run(meta.base, path, command.base_checkpoint) if meta else command.base_checkpoint
    base, why_no_base = identify_base(base_path, meta.base if meta else None)
    resumed = command if meta is None else continued(command, meta.settings)
    lora = LoraSettings.of(resumed.lora_rank, resumed.lora_alpha, resumed.lora_targets)
    with _refusing():
        content, adapters, base_file = with_base(content, path, base_path, base, merges=lora is None)
    if meta is not None:
        base_size = meta.base_size
        environment = replace(inputs, command=resumed).environment
    else:
        base_size = base_size_of(inputs.tokenizer, command.base_checkpoint)
        # another trainer wrote it, without settings: for this one it is a new run
        inputs = with_automatic_settings(inputs, base_size)
        command, environment = inputs.command, inputs.environment
    model = empty_model(config_with_text_tokens(inputs.config, inputs.tokenizer.size))
    if lora:
        add_adapters(model, lora, lambda _: 0, {}, saved_scale=1.0)
    trained = select_trained(
        model, base_size, text_choice=resumed.train_text_rows, code_head=resumed.lora_code_head
    )
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
        environment=environment,
        trained_shapes=shapes,
        validation_set=replace(inputs, command=resumed).validation_set,
        new_languages=new_languages_of(inputs),
        normalizer=inputs.tokenizer.options.record,
        why_no_base=why_no_base,
        codebook=inputs.codebook,
    )
    layout = OptimizerLayout(frozenset(name for name, _ in model.named_parameters()), shapes, base_size)
    with _refusing():
        facts = checkpoint_facts(content, path, meta, layout)
    if meta is None and command.resume_tokenizer is not None:
        base_pieces = run.vocabulary.pieces[:base_size]
        old = read_old_pieces(command.resume_tokenizer, content, path, base_pieces)
        facts = replace(facts, old_pieces=old)
    return OpenedCheckpoint(facts, run, content, layout, adapters, base_file)


def _restore_state(
    state: TrainState,
    opened: OpenedCheckpoint,
    inputs: Inputs,
    *,
    keeps_position: bool,
    keeps_position_limit: bool,
) -> None:
    """Restore the train state; a checkpoint of another trainer has only step and epoch."""
    facts, content = opened.facts, opened.content
    state.step = state.saved_step = state.validated_step = facts.step
    state.epoch = facts.epoch
    if facts.meta is None:
        return
    saved = content["state"]
    state.validated_step = saved["validated_step"]
    state.last_losses, state.probe = saved["last_losses"], saved["probe"]
    state.first_rows = saved.get("first_rows")
    state.num_skipped, state.recent = saved["num_skipped"], list(content["recent_checkpoints"])
    if saved["window"] is not None and inputs.ranks.is_main:  # the sum over all ranks
        state.window = LossSums(**saved["window"]).to(inputs.device)
    if saved["validation_set"] == inputs.validation_set:
        state.best_mel_loss = content["best_mel_loss"]
        state.num_worse = saved["num_worse"]
        state.validation_mel_loss = facts.meta.validation_mel_loss
    if "best_heard" in saved:
        state.listened_step, state.best_heard = saved["listened_step"], saved["best_heard"]
        state.heard_by, state.heard_score = facts.meta.heard_by, facts.meta.heard_score
    state.num_skipped_in_a_row = saved["num_skipped_in_a_row"]
    state.unreadable = set(saved["unreadable"])
    if saved["grad_norm"] is not None:
        state.grad_norm = saved["grad_norm"]
    if keeps_position:
        state.samples_done, state.batch_idx = facts.meta.samples_done, facts.meta.batch_idx
    if not any(limit for limit, _ in saved["position_limits"]):
        return
    if not keeps_position_limit:
        logger.info("Memory ran out before, but settings or machine changed: trying whole micro-batches")
        return
    state.limits_of_ranks = saved["position_limits"]
    state.position_limit, state.limited_at = state.limits_of_ranks[inputs.ranks.rank]
    if state.position_limit:
        logger.info(
            "Memory ran out at step %d: micro-batches have at most %d positions until step %d",
            state.limited_at + 1,
            state.position_limit,
            state.limited_at + LIMITED_STEPS,
        )


def _serial_and_part(run_dir: Path, resumed: Path, is_auto: bool, continues: bool) -> tuple[int, int]:
    """Return the newest serial number in the run directory, and the part of the run.

    A new part starts when the run restarts, or resumes from another checkpoint than the newest of the
    directory: its saves must neither replace nor be older than those that exist. `auto` takes the newest
    valid checkpoint, so the corrupt ones that it skipped may be replaced.
    """
    present = checkpoints(run_dir)
    if not present:
        return 0, 1
    newest = present[0][1]
    serial_of = {path.resolve(): meta.serial for path, meta in present}
    is_newest = is_auto or serial_of.get(resumed.resolve()) == newest.serial
    last_part = max(meta.part for _, meta in present)
    return newest.serial, newest.part if continues and is_newest else last_part + 1


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise the errors of an unusable checkpoint with the status of a refused resume."""
    try:
        yield
    except UserError as error:
        if error.exit_status == RESUME_REFUSED:
            raise
        raise UserError(f"Resume failed: {error}", RESUME_REFUSED) from None
