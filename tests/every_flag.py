"""A resume with each flag of the trainer changed alone: what the plan says and what the start does.

python -m tests.every_flag      writes the table of docs/lab/resume.md
"""

import logging
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.data.manifest import read_pairs, write_pairs
from indextts.errors import UserError
from indextts.planning.restore_plan import plan_from_meta
from indextts.runs.restore_rows import log_lines
from indextts.text.bases import base_tokenizer
from indextts.training.resume import resume
from indextts.training.run import load_inputs
from tests.conftest import REPOSITORY
from tests.tiny_run import TinyRun, make_tiny_run, pair, write_tokenizer

STEP = 6
PAGE = REPOSITORY / "docs/lab/resume.md"
TABLE = re.compile(r"(?<=<!-- every flag -->\n).*?(?=<!-- end -->)", re.DOTALL)

# By field of Train, another value than that of the run.
CHANGES: dict[str, object] = {
    "language_row_init": "own",
    "epochs": 5,
    "max_steps": 8,
    "step_pairs": 16,
    "batch_size": 2,
    "batch_tokens": 400,
    "grad_accumulation": 1,
    "learning_rate": 0.02,
    "warmup_steps": 2,
    "min_lr_ratio": 0.1,
    "rewarm": 0.005,
    "new_row_init": "romanised",
    "new_row_lr_scale": 10,
    "train_text_rows": "used",
    "freeze_body_steps": 8,
    "weight_decay": 0.1,
    "grad_clip": 0.5,
    "text_loss_weight": 0.5,
    "mel_loss_weight": 0.5,
    "emotion_from": "target",
    "emotion_target_share": 0.5,
    "emotion_dropout": 0.1,
    "style_noise": 0.01,
    "log_interval": 1,
    "val_interval": 2,
    "val_batch_size": 2,
    "max_val_batches": 1,
    "patience": 3,
    "ema_decay": 0.9,
    "save_interval": 3,
    "keep_checkpoints": 2,
    "listen_interval": 2,
    "listen_sentences": 8,
    "listen_share": 0.1,
    "lora_rank": 4,
    "lora_alpha": 8,
    "lora_targets": "mlp",
    "lora_code_head": True,
    "optimizer_state": "bfloat16",
    "padding": "reference",
    "grad_checkpointing": True,
    "compile": True,
    "amp": True,
    "tracker": "trackio",
    "seed": 7,
}
# By field, the name of another file in the folder of the run.
FILES = {
    "train_manifest": "more_pairs.jsonl",
    "val_manifest": "fewer_pairs.jsonl",
    "tokenizer": "more_pieces.model",
    "base_checkpoint": "other.pth",
}


@dataclass(frozen=True)
class Outcome:
    """What a resume does."""

    status: int  # of a refusal; 0 without one
    lines: tuple[str, ...]  # of the restore plan as the log shows it, or the refusal
    kept: str  # in words


def make_run(folder: Path) -> TinyRun:
    """Return a run with a checkpoint in the middle of its second epoch."""
    run = make_tiny_run(folder)
    train = run.folder / "train_pairs.jsonl"
    assert run.train(save_interval=STEP, keep_checkpoints=9) == 0
    for path in run.output.glob("*.pth"):
        if path.stem != f"model_step{STEP}":
            path.unlink()
            path.with_suffix(".json").unlink()
    write_pairs(run.folder / FILES["train_manifest"], [*read_pairs(train), pair(folder, 21, 3)])
    write_pairs(run.folder / FILES["val_manifest"], read_pairs(run.folder / "val_pairs.jsonl")[1:])
    other = {name: 2 * weights for name, weights in run.base_weights.items()}
    torch.save(other, run.folder / FILES["base_checkpoint"])
    base = base_tokenizer(run.folder / "base/gpt.pth")
    write_tokenizer(run.folder / FILES["tokenizer"], run.tokenizer.size - run.base_size + 3, base)
    return run


def command_of(run: TinyRun, field: str) -> Train:
    value = run.folder / FILES[field] if field in FILES else CHANGES[field]
    settings = {"save_interval": STEP, "keep_checkpoints": 9, field: value}
    return parse(Train, run.flags(resume="auto", **settings))


def planned(command: Train) -> Outcome:
    """Return what the plan says, without the weights."""
    try:
        plan = plan_from_meta(command)
    except UserError as refusal:
        return Outcome(refusal.exit_status, (str(refusal),), "")
    if not plan.continues:
        kept = "weights"
    elif plan.keeps_position:
        kept = "all" if plan.keeps_best else "all but the best validation"
    else:
        kept = "all but the position in the epoch"
    return Outcome(0, tuple(log_lines(plan)), kept)


def started(command: Train) -> Outcome:
    """Return what the start does, up to the first step."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("indextts.training.resume")
    logger.addHandler(handler)
    try:
        run = resume(load_inputs(command), command.output_dir / f"model_step{STEP}.pth")
    except UserError as refusal:
        return Outcome(refusal.exit_status, (str(refusal),), "")
    finally:
        logger.removeHandler(handler)
    state = run.state
    if state.step != STEP:
        kept = "weights"
    elif state.samples_done:
        kept = "all" if state.best_mel_loss < float("inf") else "all but the best validation"
    else:
        kept = "all but the position in the epoch"
    starts = [line.split()[0] for line in lines]
    return Outcome(0, tuple(lines[starts.index("Loading") + 1 : starts.index("Restoring")]), kept)


def table(run: TinyRun) -> str:
    """Return the table: flag, change, what the plan says of it, what is kept."""
    rows = ["| flag | what the plan and the start say | kept |", "|---|---|---|"]
    for field in (*CHANGES, *FILES):
        outcome = planned(command_of(run, field))
        names = "Text rows" if field == "tokenizer" else field  # other pieces are a part of the run
        own = [line.split(": ", 1)[1] for line in outcome.lines if re.match(rf"\[\w+\] {names}: ", line)]
        refusal = outcome.lines[0].partition(" (")[0] if outcome.status else ""  # without sizes of files
        said = "; ".join(own) or refusal
        kept = outcome.kept if not outcome.status else f"refused, status {outcome.status}"
        rows.append(f"| `--{field.replace('_', '-')}` | {said} | {kept} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        text = table(make_run(Path(scratch) / "tiny")).replace(scratch, "")
    PAGE.write_text(TABLE.sub(lambda _: text, PAGE.read_text("utf-8")), encoding="utf-8")
