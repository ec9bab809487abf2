"""A fact for each stage of a project, read from its files: "256 utterances, 0.4 h". No Gradio here.

What costs more than a look at a folder is cached until its file changes.
"""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from google.protobuf.message import DecodeError

from indextts.commands.app import Stage
from indextts.errors import UserError
from indextts.projects.project import Project
from indextts.system.amounts import shown_size
from indextts.system.files import count_lines
from indextts.text.tokenizer import parse_model
from indextts.webui.language import shown_hours, t
from indextts.webui.monitor.metrics_reader import RUNS
from indextts.webui.project.runs import best_loss, validations
from indextts.webui.view_versions import files_version, throttled_version, utterances_of

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


def _data(project: Project) -> str:
    count, seconds = _length(project.manifest, files_version(project.manifest))
    return t("data.facts.utterances", count=count, hours=shown_hours(seconds)) if count else ""


def _tokenizer(project: Project) -> str:
    return t("facts.tokenizer", count=_num_pieces(project.tokenizer, files_version(project.tokenizer)))


def _preprocess(project: Project) -> str:
    train, val = (_lines(project.utterances(split)) for split in ("train", "val"))
    return t("facts.preprocess", train=train, val=val)


def _pairs(project: Project) -> str:
    train, val = (_lines(project.pairs(split)) for split in ("train", "val"))
    return t("facts.pairs", train=train, val=val)


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
    "data": _data,
    "tokenizer": _tokenizer,
    "preprocess": _preprocess,
    "pairs": _pairs,
    "train": _train,
    "export": _export,
}


def _lines(path: Path) -> int:
    return _num_lines(path, files_version(path))


@lru_cache(maxsize=64)
def _num_lines(path: Path, _version: str) -> int:
    return count_lines(path)


@lru_cache(maxsize=16)
def _length(manifest: Path, _version: str) -> tuple[int, float]:
    utterances = utterances_of(manifest)
    return len(utterances), sum(each.duration_s for each in utterances)


@lru_cache(maxsize=16)
def _num_pieces(model: Path, _version: str) -> int:
    return len(parse_model(model.read_bytes()).pieces)
