"""Proof of a set-up before a long training: overfit a few utterances and speak their texts before and after.

    NAME/proof/
      train_pairs.jsonl manifest.jsonl    the chosen utterances, a pair of each
      run/ scores/ checks.jsonl           of the trainer, of tools/evaluate.py, and a `Check` in each line

The trainer and tools/evaluate.py do the work. docs/lab/proof.md has the measurements of the bounds.
"""

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from indextts.commands.app import ProveSetup, RunPipeline
from indextts.commands.base import Command
from indextts.commands.normalizer_options import NormalizerOptions
from indextts.commands.options import RECOGNIZERS_NAME
from indextts.commands.speech import Evaluate
from indextts.commands.terminal import parse, to_argv
from indextts.commands.train import Train
from indextts.data.manifest import Utterance, read_pairs, read_utterances, write_pairs, write_utterances
from indextts.data.quality.measures import measure_text
from indextts.data.quality.text_fit import length_fit
from indextts.errors import CHECK_FAILED, UserError, disk_errors
from indextts.projects.pipeline import chosen_project, run_pipeline, run_program
from indextts.projects.project import Project, ProjectSettings
from indextts.projects.stages import plan_stage
from indextts.runs.directory import read_metrics
from indextts.system.json_lines import read_json_lines, write_json_lines
from indextts.system.messages import Message
from indextts.system.yaml_files import parse_yaml

NAME = "checks.jsonl"
AMOUNTS, AMOUNTS_OF_DEMO = (300, 3000), (60, 400)  # utterances, steps
NUM_CLIPS = 24
OF_SIGNALS = 128  # and more: exit statuses of stopped programs
RATE_SCALE = 2  # of the project's learning rate: nothing that the base knows has to be kept

MAX_BASE_LOSS, MAX_LAST_LOSS = 0.85, 0.5  # of the loss by chance, of the base's
LENGTHS = (0.75, 1.33)  # of the recordings
MAX_FAILED = 0.25  # of the clips
MAX_RECORDED_ERROR = 0.5
MAX_ERROR, MAX_ERROR_LEFT, MAX_ADDED = 0.45, 0.7, 0.1  # in all; of that before, unless the base speaks it


class Check(BaseModel, frozen=True):
    """An answer; its texts are `proof.NAME`, and `proof.good.NAME` or `proof.bad.NAME`."""

    name: str
    is_good: bool
    values: dict[str, float] = {}

    @property
    def message(self) -> Message:
        text, good = Message(f"proof.{self.name}", self.values), self.is_good
        advice = Message(f"proof.good.{self.name}" if good else f"proof.bad.{self.name}")
        return Message("proof.line", {"text": text, "advice": advice})


def prove_setup(command: ProveSetup) -> list[Check]:
    """Return the answers for a project, the verdict first; without pairs, the stages before run first."""
    project, settings = chosen_project(command)
    if not project.pairs("train").is_file():
        flags = command.model_dump(include=command.model_fields_set & RunPipeline.model_fields.keys())
        if run_pipeline(RunPipeline(**flags, until="pairs"))[-1].status:
            raise UserError(f"{project.root}: nothing to test; the log above names the problem", CHECK_FAILED)
    with disk_errors(f"--workspace: {project.proof}"):
        shutil.rmtree(project.proof, ignore_errors=True)  # of other data or settings
        project.proof.mkdir(parents=True)
    programs = plan_proof(project, settings, command)
    statuses = (run_program([each.program, *to_argv(each)]) for each in programs)
    status = next(filter(None, statuses), 0)  # the first failure is the last program
    if status > OF_SIGNALS:
        raise UserError(f"{project.proof}: stopped before a result; start the test again", status)
    checks = list(_checks(project, settings, has_failed=bool(status)))
    checks = [Check(name="verdict", is_good=all(check.is_good for check in checks)), *checks]
    write_json_lines(project.proof / NAME, (check.model_dump() for check in checks))
    for path in (project.proof / "run").glob("*.pth"):  # gigabytes that no one will resume
        path.unlink()
    return checks


def plan_proof(project: Project, settings: ProjectSettings, command: ProveSetup) -> list[Command]:
    """Write the chosen pairs; return the programs: tokenizer check, first step, other steps, speaking.

    There is no checkpoint of step 0, so the first step speaks for it, whose rate the warm-up keeps near 0.
    """
    number, steps = AMOUNTS_OF_DEMO if settings.is_demo else AMOUNTS
    number, steps = command.num_utterances or number, command.steps or steps
    pairs = list({pair.target_id: pair for pair in read_pairs(project.pairs("train"))}.values())
    stride = max(1, len(pairs) // number)  # four neighbours each, who are mostly of one speaker: prompts
    pairs = [pair for place, pair in enumerate(pairs) if place // 4 % stride == 0][:number]
    folder, ids = project.proof, {pair.target_id for pair in pairs}
    write_pairs(folder / "train_pairs.jsonl", pairs)
    spoken = [each for each in read_utterances(project.utterances("train")) if each.id in ids]
    write_utterances(folder / "manifest.jsonl", spoken, keeps_links=True)
    [train] = plan_stage(project, settings, "train").commands
    train = parse(Train, command.train_flags) if command.train_flags else train
    assert isinstance(train, Train)
    *_, verify = plan_stage(project, settings, "tokenizer").commands
    changes = {
        "train_manifest": [folder / "train_pairs.jsonl"],
        "val_manifest": [project.pairs("val")],
        "output_dir": folder / "run",
        "resume": "auto",
        "epochs": steps,
        "learning_rate": RATE_SCALE * train.learning_rate,
        "warmup_steps": min(100, steps // 10),
        "log_interval": 10,
        "val_interval": steps,
        "save_interval": steps,
        "keep_checkpoints": 2,
        "listen_interval": 0,
        "tracker": "none",
    }
    asr = command.asr or settings.check.get("asr") or settings.data.get("asr") or []
    evaluate = Evaluate(
        checkpoint=[folder / f"run/model_step{step}.pth" for step in (1, steps)],
        manifest=folder / "manifest.jsonl",
        output_dir=folder / "scores",
        num_clips=NUM_CLIPS,
        seeds=1,
        asr=[asr] if isinstance(asr, str) else asr,
        asr_folder=settings.base / RECOGNIZERS_NAME,
        models=settings.base,
        max_codes=2 * max(pair.target_num_codes for pair in pairs),
    )
    first, rest = (train.model_copy(update={**changes, "max_steps": last}) for last in (1, steps))
    return [verify.model_copy(update={"tokenizer": train.tokenizer}), first, rest, evaluate]


def _checks(project: Project, settings: ProjectSettings, has_failed: bool) -> Iterator[Check]:
    options = NormalizerOptions(**{**settings.normalizer, "language": settings.language})
    yield check_lengths(read_utterances(project.utterances("train")), options)
    metrics = project.proof / "run/metrics.jsonl"
    lines = read_metrics(metrics) if metrics.is_file() else []
    held_out, trained = ([x["mel_loss"] for x in lines if x.get("kind") == kind] for kind in ("val", "train"))
    if held_out and trained:
        num_codes = parse_yaml(project.config.read_bytes())["gpt"]["number_mel_codes"]
        yield from check_losses(held_out[0], trained[-1], math.log(num_codes))
    if has_failed:
        yield Check(name="programs", is_good=False)
    else:
        yield from check_speech([row for _, row in read_json_lines(project.proof / "scores/summary.jsonl")])


def check_lengths(utterances: Sequence[Utterance], options: NormalizerOptions) -> Check:
    """Return whether the lengths of the texts fit the recordings, which needs no recognizer."""
    syllables = [measure_text(each.text, options).num_syllables for each in utterances]
    speakers, durations = [each.speaker for each in utterances], [each.duration_s for each in utterances]
    fit = length_fit(speakers, syllables, durations)
    return Check(name="texts", is_good=not fit.runs, values={"correlation": fit.correlation or 0.0})


def check_losses(base: float, last: float, chance: float) -> Iterator[Check]:
    """Yield whether the base knows the codes of held-out pairs, and the training learns its pairs."""
    values = {"base": base, "last": last, "chance": chance}
    yield Check(name="base", is_good=base < MAX_BASE_LOSS * chance, values=values)
    yield Check(name="loss", is_good=last < MAX_LAST_LOSS * base, values=values)


def check_speech(rows: Sequence[Mapping[str, Any]]) -> Iterator[Check]:
    """Yield what the rows of summary.jsonl say: recordings, before, after."""
    length, cer = rows[-1]["length_ratio"], rows[0]["cer"]
    yield Check(name="length", is_good=LENGTHS[0] < length < LENGTHS[1], values={"share": length})
    failed = max(rows[-1][name] for name in ("no_stop", "loops", "silent"))
    yield Check(name="failures", is_good=failed <= MAX_FAILED, values={"share": failed})
    if not cer:
        yield Check(name="unheard", is_good=True)
        return
    best = min(cer, key=cer.__getitem__)  # of several recognizers
    recorded, before, after = (row["cer"][best] for row in rows)
    values = {"recorded": recorded, "before": before, "after": after}
    yield Check(name="heard", is_good=recorded < MAX_RECORDED_ERROR, values=values)
    is_good = after < min(MAX_ERROR, max(MAX_ERROR_LEFT * before, recorded + MAX_ADDED))
    yield Check(name="spoken", is_good=is_good, values=values)
