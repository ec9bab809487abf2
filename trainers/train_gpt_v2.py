"""Train the IndexTTS2 GPT on pairs: load, plan the restore, then train, log, validate, save, stop.

The parts are in `indextts.training`; what happens in which order is here, whole.
"""

import logging
import math
import os
import platform
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from indextts.checkpoint import FORMAT_VERSION, publish, save_checkpoint
from indextts.commands import Train, parse, run, to_argv
from indextts.data.encoding import encoders_identity
from indextts.errors import LOSS_NOT_FINITE, UserError
from indextts.gpt.config import load_config
from indextts.gpt.model import GPTBatch, UnifiedVoice
from indextts.log_lines import also_write
from indextts.run_dir import (
    CheckpointMeta,
    checkpoint_path,
    checkpoints,
    owned,
    prepare,
    prune,
    write_bytes,
    write_json,
)
from indextts.text.tokenizer import Tokenizer
from indextts.training.batches import (
    PairDataset,
    check_disjoint,
    epoch_order,
    grouped,
    load_batches,
    load_pairs,
    mix,
)
from indextts.training.device import arithmetic, choose_device
from indextts.training.losses import token_losses
from indextts.training.metrics import MetricsLog
from indextts.training.optim import update
from indextts.training.start import (
    Run,
    Setting,
    TrainState,
    find_checkpoint,
    plan_start,
    resume,
    settings_of,
    start_from_base,
)
from indextts.training.validate import validate

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(Train, argv)
    if command.plan:
        checkpoint = find_checkpoint(command)
        print(plan_start(load_inputs(command, torch.device("cpu")).setting, checkpoint))
        return 0
    stop = StopRequest()
    device = choose_device(command.allow_cpu)
    prepare(command.output_dir)
    with owned(command.output_dir):
        log_file = also_write(command.output_dir / "train.log")
        try:
            return train(command, device, stop)
        except UserError as error:
            logger.error("%s", error)
            write_exit(command.output_dir, error.exit_status, str(error))
            return error.exit_status
        finally:
            logging.getLogger().removeHandler(log_file)
            log_file.close()


@dataclass(frozen=True)
class Inputs:
    """What a training reads before any weight."""

    setting: Setting
    train_set: PairDataset
    val_set: PairDataset


def train(command: Train, device: torch.device, stop: "StopRequest") -> int:
    """Run the training to its end, or to a signal; return the exit status."""
    checkpoint = find_checkpoint(command)
    inputs = load_inputs(command, device)
    setting = inputs.setting
    logger.info("%d pairs to train on, %d to validate on", len(inputs.train_set), len(inputs.val_set))
    if checkpoint is None:
        logger.info("Starting from the base checkpoint %s", command.base_checkpoint)
        this = start_from_base(setting)
    else:
        this = resume(setting, checkpoint)
        if command.resume == "auto" and checkpoint.with_suffix(".json").is_file():
            publish(checkpoint, command.output_dir / "latest.pth")  # a kill may have come before it was
    require_same_encoders(inputs, this.model)
    logger.info("From step %d to step %d", this.state.step, this.schedule.total_steps)
    write_run_files(setting, this.state.part)
    metrics = MetricsLog(
        command.output_dir,
        part=this.state.part,
        step=this.state.step,
        epoch=this.state.epoch,
        total_steps=this.schedule.total_steps,
    )
    with closing(metrics):
        take_steps(inputs, this, metrics, stop)
    return say_how_it_ended(command, this.state, stop)


def require_same_encoders(inputs: Inputs, model: UnifiedVoice) -> None:
    """Raise a UserError unless the features were made by the encoders that this model has."""
    own = encoders_identity(model)
    for folder, store in {**inputs.train_set.stores, **inputs.val_set.stores}.items():
        if store.info.encoders_identity != own:
            raise UserError(
                f"{folder}: its features were made with the encoders of other weights than this run's; "
                "preprocess with this run's base checkpoint, or take the one they were made with"
            )


def take_steps(inputs: Inputs, this: Run, metrics: MetricsLog, stop: "StopRequest") -> None:
    """Train, validate and save, step after step, to the end or to a signal."""
    setting, train_set, command = inputs.setting, inputs.train_set, inputs.setting.command
    model, state, device = this.model, this.state, inputs.setting.device
    dtype = arithmetic(command.amp, device)
    groups = endless_groups(train_set, command, state)
    pace = Pace()
    model.train()

    while True:
        is_over = state.epoch >= command.epochs or 0 < command.max_steps <= state.step
        is_best = False
        if state.validated_step != state.step and (is_over or validation_is_due(command, state)):
            is_best = validate_now(this, command, inputs.val_set, dtype, metrics, stop)
        is_last = is_over or stop.signal is not None
        is_unsaved = 0 < state.step != state.saved_step
        if is_best or (is_unsaved and (is_last or state.step % command.save_interval == 0)):
            save(setting, this, is_best=is_best)
        if is_last:
            break

        group = next(groups)
        started = time.perf_counter()
        num_text = sum(int((batch.text_lengths + 1).sum()) for batch in group)
        num_mel = sum(int((batch.code_lengths + 1).sum()) for batch in group)
        for micro_step, batch in enumerate(group):
            # dropout is a function of the step, so that a resumed run draws what this one would have drawn
            torch.manual_seed(mix(command.seed, "dropout", state.step, micro_step))
            with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
                output = model(batch.to(device))
            sums = token_losses(output).sums(this.base_size)
            # means over the tokens of the whole step: each weighs the same, whatever micro-step it is in
            text_loss, mel_loss = sums.text_nats / num_text, sums.mel_nats / num_mel
            loss = command.text_loss_weight * text_loss + command.mel_loss_weight * mel_loss
            loss.backward()  # type: ignore[no-untyped-call]
            state.window = sums.detach() if state.window is None else state.window + sums.detach()
        learning_rate = this.schedule.learning_rate(state.step + 1)
        grad_norm = float(update(this.trained, this.optimizer, learning_rate, command.grad_clip))
        if not math.isfinite(grad_norm):
            raise UserError(
                f"The gradient of step {state.step + 1} is not finite; the last checkpoint is untouched: "
                "look at the data, or lower --learning-rate, and go on with --resume auto",
                LOSS_NOT_FINITE,
            )
        state.step += 1
        state.batch_idx += len(group)
        state.samples_done += sum(len(batch.codes) for batch in group)
        if state.samples_done == len(train_set):
            state.epoch, state.samples_done, state.batch_idx = state.epoch + 1, 0, 0
        pace.add(num_text + num_mel, time.perf_counter() - started)
        if state.step % command.log_interval == 0:
            log_window(metrics, state, learning_rate, grad_norm, pace.read())


def load_inputs(command: Train, device: torch.device) -> Inputs:
    """Read everything but weights."""
    config, tokenizer = load_config(command.config), Tokenizer.load(command.tokenizer)
    train_set = load_pairs(command.train_manifest, tokenizer, config)
    val_set = load_pairs(command.val_manifest, tokenizer, config)
    check_disjoint(train_set, val_set)
    data_order = train_set.digest(command.seed)
    setting = Setting(command, config, tokenizer, data_order, len(train_set), device)
    return Inputs(setting, train_set, val_set)


def endless_groups(train_set: PairDataset, command: Train, state: TrainState) -> Iterator[list[GPTBatch]]:
    """Yield the micro-batches of one step after another, from where `state` stands, epoch after epoch."""
    while True:
        order = epoch_order(len(train_set), command.seed, state.epoch)[state.samples_done :]
        batches = load_batches(train_set, order, command.batch_size, command.num_workers)
        yield from grouped(batches, command.grad_accumulation)


def log_window(
    metrics: MetricsLog, state: TrainState, learning_rate: float, grad_norm: float, tokens_per_second: float
) -> None:
    """Write the means since the last [Train] line and begin a new window."""
    assert state.window is not None
    means, state.window = state.window.means(), None
    state.last_losses = asdict(means)
    metrics.train(
        state.step,
        state.epoch_of_step,
        means,
        lr=learning_rate,
        grad_norm=grad_norm,
        tokens_per_second=tokens_per_second,
    )


def validation_is_due(command: Train, state: TrainState) -> bool:
    if command.val_interval == 0:
        return state.samples_done == 0
    return state.step % command.val_interval == 0


def validate_now(
    this: Run,
    command: Train,
    val_set: PairDataset,
    dtype: torch.dtype,
    metrics: MetricsLog,
    stop: "StopRequest",
) -> bool:
    """Validate and write the numbers; return whether this is the best so far, the untrained model apart."""
    state = this.state
    means = validate(
        this.model,
        val_set,
        batch_size=command.val_batch_size or 2 * command.batch_size,
        max_batches=command.max_val_batches,
        first_new_token=this.base_size,
        dtype=dtype,
        should_stop=lambda: stop.signal is not None,
    )
    if means is None:  # stopped in between; it is done again after the resume
        return False
    metrics.validation(state.step, state.epoch_of_step, means)
    state.validated_step = state.step
    is_best = state.step > 0 and means.mel_loss < state.best_mel_loss
    if is_best:
        state.best_mel_loss = means.mel_loss
    return is_best


def save(setting: Setting, this: Run, *, is_best: bool) -> None:
    """Write a checkpoint of this moment, publish it, and prune the old ones."""
    command, state = setting.command, this.state
    this.trained.check_views()
    state.serial += 1
    state.saved_step = state.step
    meta = CheckpointMeta(
        step=state.step,
        epoch=state.epoch,
        samples_done=state.samples_done,
        batch_idx=state.batch_idx,
        serial=state.serial,
        part=state.part,
        tokenizer_fingerprint=setting.tokenizer.vocabulary.fingerprint,
        tokenizer_size=setting.tokenizer.size,
        settings=settings_of(command, this.schedule),
        losses={name: loss for name, loss in (state.last_losses or {}).items() if loss is not None},
        num_bytes=0,
        sha256="",
    )
    save_checkpoint(command.output_dir, checkpoint_content(setting, this), meta)
    path = checkpoint_path(command.output_dir, state.step)
    if is_best:
        publish(path, command.output_dir / "best.pth")
    logger.info("Saved %s%s", path, ", the best so far" if is_best else "")
    removed = prune(command.output_dir, command.keep_checkpoints, state.part)
    if removed:
        logger.info("Removed %s", ", ".join(removed))


def checkpoint_content(setting: Setting, this: Run) -> dict[str, Any]:
    """Return the keys that `indextts/checkpoint.py` draws."""
    command, state, tokenizer = setting.command, this.state, setting.tokenizer
    names = [path.name for path, _ in reversed(checkpoints(command.output_dir)) if "step" in path.name]
    return {
        "model": this.model.state_dict(),
        "optimizer": this.optimizer.state_dict(),
        "scheduler": asdict(this.schedule),
        "scaler": None,
        "epoch": state.epoch,
        "step": state.step,
        "batch_idx": state.batch_idx,
        "sampler": {"samples_done": state.samples_done, "data_order": setting.data_order},
        "rng": {"seed": command.seed},
        "tokenizer": {
            "fingerprint": tokenizer.vocabulary.fingerprint,
            "pieces": list(tokenizer.pieces),
            "base_size": this.base_size,
            "model": tokenizer.model_bytes,
        },
        "recent_checkpoints": [*names, checkpoint_path(command.output_dir, state.step).name],
        "manifests": {
            "train": [str(path) for path in command.train_manifest],
            "val": [str(path) for path in command.val_manifest],
        },
        "learning_rate": command.learning_rate,
        "text_loss_weight": command.text_loss_weight,
        "mel_loss_weight": command.mel_loss_weight,
        "settings": settings_of(command, this.schedule),
        "best_mel_loss": state.best_mel_loss,
        "validated_step": state.validated_step,
        "log_window": None if state.window is None else vars(state.window),
        "format_version": FORMAT_VERSION,
    }


def write_run_files(setting: Setting, part: int) -> None:
    """Write config.json and tokenizer.model of this part of the run."""
    folder = setting.command.output_dir
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    content = {
        "command": setting.command.model_dump(mode="json"),
        "argv": [setting.command.program, *to_argv(setting.command)],
        "part": part,
        "versions": versions,
        "git_commit": git_commit(),
    }
    write_json(folder / "config.json", content)
    write_bytes(folder / "tokenizer.model", setting.tokenizer.model_bytes)


def git_commit() -> str | None:
    """Return the commit of the code that trains, None where it is no checkout."""
    here = Path(__file__).parent
    try:
        answer = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True)
    except FileNotFoundError:  # no git on this machine
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def say_how_it_ended(command: Train, state: TrainState, stop: "StopRequest") -> int:
    """Write exit.json and the last log line; return the exit status."""
    if stop.signal is None:
        reason, status = "finished", 0
        logger.info("Training complete.")
    else:
        reason, status = "stopped", 128 + stop.signal
        logger.info("Stopped at step %d; go on with --resume auto", state.step)
    write_exit(command.output_dir, status, reason)
    return status


def write_exit(run_dir: Path, status: int, reason: str) -> None:
    write_json(run_dir / "exit.json", {"status": status, "reason": reason, "time": time.time()})


class Pace:
    """Tokens per second of training, without validations and saves."""

    def __init__(self) -> None:
        self.tokens, self.seconds = 0, 0.0

    def add(self, tokens: int, seconds: float) -> None:
        self.tokens += tokens
        self.seconds += seconds

    def read(self) -> float:
        """Return the pace since the last reading."""
        pace = self.tokens / self.seconds
        self.tokens, self.seconds = 0, 0.0
        return pace


class StopRequest:
    """The signal that asks for an end, if one came: the step is finished, the state saved.

    The handler only takes a note: an exception in the middle of an optimizer step would leave a state that is
    half old, half new. A third signal ends at once; the newest checkpoint is whole at any instant.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.count = 0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
                signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        self.signal = number
        self.count += 1
        if self.count == 3:
            os._exit(128 + number)


if __name__ == "__main__":
    run(main)
