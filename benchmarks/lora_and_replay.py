"""LoRA against full fine-tuning, and training on the old languages against forgetting them.

    python -m benchmarks.lora_and_replay --folder DIR [--steps 1500] [--seeds 0 --seeds 1 ...]

DIR is a folder of benchmarks/learns_to_speak.py with a base and a recognizer; what is missing is made. Every
fine-tuning starts from the base and learns Amharic phrases for the same number of steps. Then it speaks
held-out sentences, to which the recognizer listens. The losses of the old languages, English and Swahili, are
on validation pairs of the base's own training. The same command continues after a kill.

Then short trainings of all weights and with LoRA alternate. Their processor time per step is that of
`LONG` steps less that of `SHORT` steps, so that the start does not count.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.frame import REPOSITORY, publish, table
from benchmarks.learns_to_speak import (
    SIZES,
    FromTrainedBase,
    Studio,
    amharic_pairs,
    curve,
    held_out_texts,
    make_base,
    make_speech,
    spread,
    train,
    trained_recognizer,
    training,
)
from indextts.commands.terminal import parse, run, to_argv
from indextts.commands.train import Train
from indextts.data.manifest import read_pairs, write_pairs
from indextts.errors import UserError
from indextts.runs.directory import read_metrics
from indextts.system.amounts import shown_size

OLD = ("en", "sw")  # base_phrases of learns_to_speak alternates between them
REPLAY = 0.15  # share of the old languages
FULL, LORA = "full", "LoRA, rank 32"
SHORT, LONG, PASSES = 20, 120, 3  # steps of the trainings that are timed
METHODS: Mapping[str, Mapping[str, Any]] = {
    FULL: {},
    "full, 15 % old languages": {"replay": True},
    LORA: {"lora_rank": 32, "lora_alpha": 64.0},
    "LoRA, rank 32, 15 % old languages": {"lora_rank": 32, "lora_alpha": 64.0, "replay": True},
}


class LoraAndReplay(FromTrainedBase):
    """Compare LoRA and full fine-tuning, with and without pairs of the old languages."""

    program: ClassVar[str] = "benchmarks.lora_and_replay"


@dataclass(frozen=True)
class Found:
    """Result of a fine-tuning: mel losses by language, before and after, and the character error rate."""

    before: Mapping[str, float]
    after: Mapping[str, float]
    heard: float


def main(argv: Sequence[str] | None = None) -> int:
    command = parse(LoraAndReplay, argv)
    studio = Studio(command.folder.resolve(), SIZES[command.size])
    make_base(studio)
    recognizer = trained_recognizer(studio)
    held_out = make_speech(studio.folder / "held_out", [("am", text) for text in held_out_texts()])
    new, tokenizer = amharic_pairs(studio)
    old = split_by_language(studio.folder / "base_training/features", studio.folder / "old_languages")
    validated = [f"{new}/val_pairs.jsonl@am", *(f"{old}/{code}_val_pairs.jsonl@{code}" for code in OLD)]
    found: dict[str, list[Found]] = {}
    for seed in command.seeds:
        for name, settings in METHODS.items():
            changes = dict(settings)
            trained = [f"{new}/train_pairs.jsonl@am"]
            if changes.pop("replay", False):
                trained = [f"{trained[0]}@{1 - REPLAY}"]
                trained += [f"{old}/{code}_train_pairs.jsonl@{code}@{REPLAY / len(OLD)}" for code in OLD]
            folder = f"{name.replace(' %', '').replace(',', '').replace(' ', '_')}_{command.steps}_{seed}"
            run_dir = studio.folder / "lora_and_replay" / folder
            run_dir.parent.mkdir(exist_ok=True)
            changes |= {"train_manifest": trained, "val_manifest": validated}
            train(
                studio, training(studio, new, studio.base, tokenizer, run_dir, command.steps, seed, **changes)
            )
            [(_, _, heard)] = curve(studio, run_dir, recognizer, held_out, only_last=True)
            found.setdefault(name, []).append(result_of(run_dir, heard))
    costs = step_costs(studio, new, tokenizer)
    before = found[FULL][0].before
    header = ["fine-tuning", "Amharic", "English", "Swahili", "character error rate"]
    base = ["before", *(f"{before[code]:.3f}" for code in ("am", *OLD)), ""]
    text = (
        f"{command.steps} steps each; mean over the seeds (smallest to largest). Validation mel losses of "
        "the languages; the character error rate is that of Amharic."
    )
    rows = [base, *(row(name, found) for name in METHODS)]
    lines = [text, "", *table(header, rows), "", *table(COSTS, [costs_row(name, costs) for name in costs])]
    publish(command, "LoRA and full fine-tuning, with and without the old languages", lines)
    return 0


COSTS = ["fine-tuning", "processor time of a step", "of the full fine-tuning's", "peak memory", "checkpoint"]


@dataclass(frozen=True)
class Cost:
    """Cost of a training: processor time of a step in s, peak resident memory and checkpoint in bytes."""

    step_s: float
    peak_bytes: int
    checkpoint_bytes: int


def step_costs(studio: Studio, pairs: Path, tokenizer: Path) -> dict[str, list[Cost]]:
    """Return the costs of trainings of all weights and with LoRA, which alternate."""
    costs: dict[str, list[Cost]] = {FULL: [], LORA: []}
    for number in range(PASSES):
        for name, found in costs.items():
            used = []
            for steps in (SHORT, LONG):
                with tempfile.TemporaryDirectory() as folder:
                    run_dir = Path(folder) / "run"
                    changes = {"val_interval": LONG, "save_interval": LONG, **METHODS[name]}
                    base = studio.base
                    command = training(studio, pairs, base, tokenizer, run_dir, steps, number, **changes)
                    used.append(usage(studio, command))
                    size = (run_dir / "latest.pth").stat().st_size
            (short_s, _), (long_s, peak) = used
            found.append(Cost((long_s - short_s) / (LONG - SHORT), peak, size))
    return costs


def usage(studio: Studio, command: Train) -> tuple[float, int]:
    """Run a training; return its processor time in s and its peak resident memory in bytes."""
    with (studio.folder / "programs.log").open("a") as output:
        argv = [sys.executable, str(REPOSITORY / command.program), *to_argv(command)]
        process = subprocess.Popen(argv, cwd=REPOSITORY, stdout=output, stderr=output)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise UserError(f"{command.program} failed, see {studio.folder / 'programs.log'}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def costs_row(name: str, costs: Mapping[str, Sequence[Cost]]) -> list[str]:
    """Return the medians of the passes."""
    step_s, full_s = (statistics.median(cost.step_s for cost in costs[each]) for each in (name, FULL))
    peak = statistics.median(cost.peak_bytes for cost in costs[name])
    size = costs[name][0].checkpoint_bytes
    return [name, f"{1000 * step_s:.0f} ms", f"{step_s / full_s:.2f}", shown_size(peak), shown_size(size)]


def split_by_language(pairs: Path, folder: Path) -> Path:
    """Write the pairs of each old language to a file of its own; return their folder.

    The numbers of the utterances begin anew in each language, so their ids get its code.
    """
    folder.mkdir(exist_ok=True)
    for split in ("train", "val"):
        found = read_pairs(pairs / f"{split}_pairs.jsonl")
        for place, code in enumerate(OLD):
            chosen = [
                replace(pair, prompt_id=f"{code}_{pair.prompt_id}", target_id=f"{code}_{pair.target_id}")
                for pair in found
                if int(pair.target_id.rpartition("_")[2]) % len(OLD) == place
            ]
            output = folder / f"{code}_{split}_pairs.jsonl"
            if not output.exists():
                write_pairs(output, chosen)
    return folder


def result_of(run_dir: Path, heard: float) -> Found:
    """Return the losses of a finished run from its metrics."""
    lines = read_metrics(run_dir / "metrics.jsonl")
    losses = [
        {code: line[f"mel_loss_{code}"] for code in ("am", *OLD)}
        for line in lines
        if line.get("kind") == "val"
    ]
    return Found(losses[0], losses[-1], heard)


def row(name: str, found: Mapping[str, Sequence[Found]]) -> list[str]:
    losses = [spread([each.after[code] for each in found[name]]) for code in ("am", *OLD)]
    return [name, *losses, spread([each.heard for each in found[name]])]


if __name__ == "__main__":
    run(main)
