"""A fact for each stage of a project, read from its files: "256 utterances, 0.4 h". No Gradio here.

Expensive facts are cached until their file changes.
"""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from google.protobuf.message import DecodeError

from indextts.commands.app import Stage
from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.system.amounts import shown_size
from indextts.text.tokenizer import parse_model
from indextts.webui.data.import_outlook import shown_dataset
from indextts.webui.language import t
from indextts.webui.metrics_reader import RUNS
from indextts.webui.project.runs import best_loss, validations
from indextts.webui.view_versions import files_version, num_lines, throttled_version

RUN_EVERY_S = 10.0


def stage_fact(project: Project, stage: Stage) -> str:
    """Return the fact of a stage, "" without files or with corrupt ones."""
    try:
        return FACTS[stage](project)
    except (UserError, OSError, ValueError, DecodeError, KeyError, TypeError):
        return ""


def facts_version(project: Project) -> str:
    """Return a version that changes with the facts; during training, every RUN_EVERY_S seconds."""
    paths = [project.manifest, project.tokenizer, project.utterances("train"), project.pairs("train")]
    run = throttled_version(project.run_dir / "metrics.jsonl", RUN_EVERY_S)
    return f"{files_version(*paths, project.export)} {run}"


def _tokenizer(project: Project) -> str:
    return t("facts.tokenizer", count=_num_pieces(project.tokenizer, files_version(project.tokenizer)))


def _preprocess(project: Project) -> str:
    return _split_sizes("facts.preprocess", project.utterances)


def _pairs(project: Project) -> str:
    return _split_sizes("facts.pairs", project.pairs)


def _train(project: Project) -> str:
    lines = RUNS.of(project.run_dir).read()
    if not lines:
        return ""
    best = best_loss(validations(lines))
    step = max(int(line["step"]) for line in lines if line["part"] == lines[-1]["part"])
    return t("facts.step", step=step) if best is None else t("facts.train", step=step, loss=best)


def _export(project: Project) -> str:
    files = sorted(project.export.iterdir())
    return t("facts.export", size=shown_size(sum(path.stat().st_size for path in files))) if files else ""


FACTS: dict[Stage, Callable[[Project], str]] = {
    "data": shown_dataset,
    "tokenizer": _tokenizer,
    "preprocess": _preprocess,
    "pairs": _pairs,
    "train": _train,
    "export": _export,
}


def _split_sizes(id: str, file_of: Callable[[str], Path]) -> str:
    train, val = (num_lines(file_of(split)) for split in ("train", "val"))
    return "" if train is None or val is None else t(id, train=train, val=val)


@lru_cache(maxsize=16)
def _num_pieces(model: Path, _version: str) -> int:
    return len(parse_model(model.read_bytes()).pieces)
