"""Where a run starts: from the base checkpoint, or from one of its own checkpoints, as the plan says.

base checkpoint + tokenizer            --start_from_base--> a new run, part 1
checkpoint + tokenizer + plan_restore  --resume-----------> the same run, or a new part of it
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from indextts.checkpoint import facts_of, move_text_rows, read_file, read_weights, table_rows, text_rows
from indextts.commands import Train
from indextts.errors import RESUME_REFUSED, UserError
from indextts.gpt.config import GPTConfig, config_with_text_tokens
from indextts.gpt.load import canonical_names, load_model
from indextts.gpt.model import UnifiedVoice
from indextts.restore import (
    CheckpointFacts,
    RunFacts,
    Vocabulary,
    describe,
    move_rows,
    plan_restore,
    require_keys,
)
from indextts.run_dir import checkpoint_files, checkpoints, verify_checkpoint
from indextts.text.tokenizer import Tokenizer, first_difference
from indextts.training.batches import steps_per_epoch
from indextts.training.losses import LossSums
from indextts.training.optim import Trained, build_optimizer, load_optimizer, select_trained
from indextts.training.schedule import Schedule

logger = logging.getLogger(__name__)

# Settings whose change after a resume is said, since it changes what the run does from here on.
COMPARED_SETTINGS = (
    "learning_rate",
    "warmup_steps",
    "total_steps",
    "weight_decay",
    "grad_clip",
    "batch_size",
    "grad_accumulation",
    "text_loss_weight",
    "mel_loss_weight",
    "amp",
    "seed",
)


@dataclass
class TrainState:
    """Everything that changes between two steps, besides the model and its optimizer.

    Args:
        epoch, samples_done: where the data stands; `samples_done` counts along the order of the epoch.
        batch_idx: micro-steps of the epoch that are done, for people.
        validated_step, saved_step: the last step that was validated, or saved; -1 before the first.
        window: losses since the last [Train] line.
    """

    step: int = 0
    epoch: int = 0
    samples_done: int = 0
    batch_idx: int = 0
    serial: int = 0
    part: int = 1
    validated_step: int = -1
    saved_step: int = -1
    best_mel_loss: float = float("inf")
    window: LossSums | None = None
    last_losses: dict[str, float | None] | None = None

    @property
    def epoch_of_step(self) -> int:
        """The epoch that the last step belongs to, also where it was the epoch's last."""
        return self.epoch if self.samples_done or not self.step else max(self.epoch - 1, 0)


@dataclass(frozen=True)
class Run:
    """A run that is ready for its next step."""

    model: UnifiedVoice
    trained: Trained
    optimizer: torch.optim.AdamW
    state: TrainState
    schedule: Schedule
    base_size: int


@dataclass(frozen=True)
class Setting:
    """What a run is started with, known before any weight is read."""

    command: Train
    config: GPTConfig
    tokenizer: Tokenizer
    data_order: str
    num_samples: int
    device: torch.device


def find_checkpoint(command: Train) -> Path | None:
    """Return the checkpoint that `--resume` means, None to start from the base.

    Raises:
        UserError: with status 2 if the path does not exist, or a new run would go into a folder that has
            checkpoints; with status 3 if the folder has checkpoints and none of them can be used.
    """
    folder = command.output_dir
    present = checkpoint_files(folder)
    if command.resume == "auto":
        only_interrupted = all(_is_interrupted_save(path) for path in present)
        return None if only_interrupted else _newest_good_checkpoint(folder)
    if command.resume:
        path = Path(command.resume)
        if not path.is_file():
            raise UserError(
                f"Resume checkpoint not found: {path}; {_what_exists(path.parent)}; "
                "'auto' takes the newest of --output-dir"
            )
        _require_whole(path)
        return path
    if present:
        raise UserError(
            f"{folder} already has checkpoints, as {present[-1].name}; go on with --resume auto, "
            "or choose another --output-dir"
        )
    return None


def settings_of(command: Train, schedule: Schedule) -> dict[str, Any]:
    """Return what a checkpoint remembers of how the run was told to go."""
    record = {name: getattr(command, name, None) for name in COMPARED_SETTINGS}
    return {**record, "total_steps": schedule.total_steps}


def plan_schedule(command: Train, num_samples: int, state: TrainState) -> Schedule:
    """Return the schedule of the whole run, seen from where `state` stands.

    Counted from there, so that a batch size that changed in between changes the steps to come and not those
    that are done.
    """
    left_of_epoch = steps_per_epoch(
        num_samples - state.samples_done, command.batch_size, command.grad_accumulation
    )
    epoch = steps_per_epoch(num_samples, command.batch_size, command.grad_accumulation)
    steps = state.step + left_of_epoch + (command.epochs - state.epoch - 1) * epoch
    steps = min(steps, command.max_steps or steps)
    return Schedule(command.learning_rate, command.warmup_steps, steps)


def start_from_base(setting: Setting) -> Run:
    """Return a new run: the base weights, text tables grown to the tokenizer."""
    path = setting.command.base_checkpoint
    weights = canonical_names(read_weights(path))
    base_size = table_rows(weights, str(path)) - 1
    base = _base_vocabulary(setting, base_size)
    weights = move_text_rows(weights, move_rows(base, setting.tokenizer.vocabulary), setting.command.seed)
    return _assemble(setting, weights, base_size, str(path), TrainState())


def plan_start(setting: Setting, path: Path | None) -> str:
    """Return in a sentence what starting from the checkpoint at `path`, or from the base, would do."""
    if path is None:
        _base_vocabulary(setting, text_rows(setting.command.base_checkpoint) - 1)
        return f"step 0: a new run from the base checkpoint {setting.command.base_checkpoint}"
    facts, run = _facts(setting, read_file(path), path)
    return f"{path.name}: {describe(plan_restore(facts, run), facts, run)}"


def resume(setting: Setting, path: Path) -> Run:
    """Return the run that the checkpoint at `path` allows."""
    logger.info("Loading checkpoint from %s", path)
    content = read_file(path)
    facts, run_facts = _facts(setting, content, path)
    base_size = run_facts.base_size
    plan = plan_restore(facts, run_facts)
    for line in plan.lines:
        logger.info("%s", line)
    logger.info("Restoring model state...")
    weights = canonical_names(content["model"])
    if plan.row_of is not None:
        weights = move_text_rows(weights, plan.row_of, setting.command.seed)
    state = TrainState()
    state.serial, state.part = _serial_and_part(setting.command, path, plan.continues)
    if plan.continues:
        _restore_state(state, content, setting.device, keeps_position=plan.keeps_position)
    run = _assemble(setting, weights, base_size, str(path), state)
    if plan.continues:
        logger.info("Restoring optimizer state...")
        load_optimizer(run.optimizer, content["optimizer"])
        logger.info("Restoring scheduler state...")
        _say_what_differs(content, setting.command, run.schedule)
    logger.info("Successfully resumed from %s", path)
    logger.info("   Epoch: %d, Step: %d, Batch: %d", state.epoch, state.step, state.batch_idx)
    logger.info("   Recent checkpoints: %d", len(content.get("recent_checkpoints") or []))
    return run


def _assemble(
    setting: Setting, weights: Mapping[str, Tensor], base_size: int, source: str, state: TrainState
) -> Run:
    config = config_with_text_tokens(setting.config, setting.tokenizer.size)
    model = load_model(config, weights, source).to(setting.device)
    trained = select_trained(model, base_size)
    optimizer = build_optimizer(trained, setting.command.weight_decay)
    _say_what_is_frozen(model, trained, base_size)
    schedule = plan_schedule(setting.command, setting.num_samples, state)
    return Run(model, trained, optimizer, state, schedule, base_size)


def _newest_good_checkpoint(folder: Path) -> Path:
    """Return the newest checkpoint of `folder` whose digest holds; damaged ones are named."""
    for path, _ in checkpoints(folder):
        try:
            verify_checkpoint(path)
        except ValueError as problem:
            logger.warning("Checkpoint left out: %s", problem)
            continue
        logger.info("Auto-resume: found checkpoint at %s", path)
        return path
    foreign = folder / "latest.pth"
    if foreign.is_file() and not foreign.with_suffix(".json").exists():
        logger.warning("%s has no meta file: its digest could not be checked", foreign)
        logger.info("Auto-resume: found checkpoint at %s", foreign)
        return foreign
    raise UserError(
        f"Resume failed: none of the {len(checkpoint_files(folder))} checkpoints in {folder} can be used; "
        "put a good copy there, or start anew in another --output-dir",
        RESUME_REFUSED,
    )


def _is_interrupted_save(path: Path) -> bool:
    """Return whether a kill came between this file and the meta file that would have committed it."""
    if path.with_suffix(".json").exists() or not path.name.startswith("model_step"):
        return False
    try:
        return "format_version" in read_file(path)  # a file of another program is none of ours
    except UserError:
        return False


def _require_whole(path: Path) -> None:
    """Raise a UserError if the file is not what its meta file says; one without a meta file passes."""
    if not path.with_suffix(".json").is_file():
        return
    try:
        verify_checkpoint(path)
    except ValueError as problem:
        raise UserError(f"Resume failed: {problem}; take another checkpoint, or --resume auto") from None


def _what_exists(folder: Path) -> str:
    names = [path.name for path in checkpoint_files(folder)]
    return f"in {folder} there are: {', '.join(names)}" if names else f"{folder} has no checkpoints"


def _base_vocabulary(setting: Setting, base_size: int) -> Vocabulary:
    """Return the base tokenizer's vocabulary after checking that the run's tokenizer extends it.

    Raises:
        UserError: the tokenizer does not begin with the base's pieces, or the base's own tokenizer does not
            belong to its weights.
    """
    beside = setting.command.base_checkpoint.parent / "bpe.model"
    tokenizer = setting.tokenizer
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
    difference = first_difference(base, tokenizer)
    if difference is not None:
        raise UserError(
            f"--tokenizer {tokenizer.path} does not extend {beside}: {difference}; make it with "
            "tools/extend_bpe.py from that file"
        )
    return base.vocabulary


def _recorded_base_size(content: Mapping[str, Any]) -> int | None:
    tokenizer = content.get("tokenizer")
    return int(tokenizer["base_size"]) if isinstance(tokenizer, dict) else None


def _facts(setting: Setting, content: Mapping[str, Any], path: Path) -> tuple[CheckpointFacts, RunFacts]:
    """Return what the checkpoint says of itself, and what the run will be like."""
    require_keys(frozenset(content))
    facts = facts_of(content, str(path))
    base_size = _recorded_base_size(content)
    if base_size is None:
        base_size = text_rows(setting.command.base_checkpoint) - 1
    _base_vocabulary(setting, base_size)
    return facts, _run_facts(setting, base_size)


def _run_facts(setting: Setting, base_size: int) -> RunFacts:
    """Return what the run will be like, from a model without memory."""
    with torch.device("meta"):
        model = UnifiedVoice(config_with_text_tokens(setting.config, setting.tokenizer.size))
    trained = select_trained(model, base_size)
    shapes = {name: tuple(parameter.shape) for name, parameter in trained.parameters.items()}
    return RunFacts(setting.tokenizer.vocabulary, base_size, shapes, setting.data_order)


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


def _restore_state(
    state: TrainState, content: Mapping[str, Any], device: torch.device, *, keeps_position: bool
) -> None:
    state.step = state.saved_step = int(content["step"])
    state.epoch = int(content["epoch"])
    state.validated_step = int(content.get("validated_step", state.step))
    state.best_mel_loss = float(content.get("best_mel_loss", float("inf")))
    window = content.get("log_window")
    if window is not None:
        state.window = LossSums(**{f.name: window[f.name].to(device) for f in fields(LossSums)})
    if keeps_position:
        state.samples_done = int(content["sampler"]["samples_done"])
        state.batch_idx = int(content["batch_idx"])


def _say_what_differs(content: Mapping[str, Any], command: Train, schedule: Schedule) -> None:
    old, new = content.get("settings") or {}, settings_of(command, schedule)
    for name in COMPARED_SETTINGS:
        if name in old and old[name] != new[name]:
            logger.warning("%s: %s in the checkpoint, %s from here on", name, old[name], new[name])
    try:
        was = Schedule(**content["scheduler"])
    except (KeyError, TypeError):  # a checkpoint from elsewhere
        return
    step = int(content["step"]) + 1
    rates = was.learning_rate(step), schedule.learning_rate(step)
    if rates[0] != rates[1]:
        logger.warning("So the learning rate of step %d changes from %.2e to %.2e", step, *rates)


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
