"""Stages of a project: the programs of each stage, with the flags that the project's settings give them.

    data -> tokenizer -> preprocess -> pairs -> train -> export

The pipeline runs a plan as a whole; the forms of the page start from its commands.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from indextts.commands.app import Stage
from indextts.commands.base import Command
from indextts.commands.bases import Base
from indextts.commands.data import (
    BuildPairs,
    CheckData,
    ExtendTokenizer,
    ImportDataset,
    Preprocess,
    VerifyTraining,
)
from indextts.commands.launching import ALONE, Launch, launch_of
from indextts.commands.normalizer_options import NormalizerOptions
from indextts.commands.options import RECOGNIZERS_NAME
from indextts.commands.speech import ExportModel
from indextts.commands.train import Train
from indextts.data.importing.journal import JOURNAL_NAME, MANIFEST_NAME
from indextts.data.manifest import read_hours
from indextts.data.review import check_folder, overlay_files, read_rejected
from indextts.errors import UserError
from indextts.features.published_files import find_published
from indextts.models.gpt.config import speech_backend
from indextts.projects.project import Project, ProjectSettings
from indextts.runs.directory import read_metrics
from indextts.system.amounts import counted
from indextts.system.files import count_lines

# of an import
OPTIONS_OF_CLIPS = ("keep", "trim", "loudness", "asr", "device", "min_clip_s", "max_clip_s", "subtitle_line")


@dataclass(frozen=True)
class StagePlan:
    """Commands and dependencies of a stage.

    Args:
        reads, writes: files and folders; the stage runs again if any of them changes.
        summary: returns a short text about the result.
    """

    name: Stage
    commands: tuple[Command, ...]
    reads: tuple[Path, ...]
    writes: tuple[Path, ...]
    summary: Callable[[], str]
    launch: Launch = ALONE


def plan_stages(project: Project, settings: ProjectSettings, max_steps: int) -> Iterator[StagePlan]:
    """Yield the stages of a project in order; each is planned after the earlier ones have run."""
    if max_steps:
        settings = settings.with_fields("train", max_steps=max_steps)
    for stage in PLANNERS:
        yield plan_stage(project, settings, stage)


def plan_stage(project: Project, settings: ProjectSettings, stage: Stage) -> StagePlan:
    """Return the plan of a stage for the present files; a UserError for a flag or value in the settings."""
    try:
        return PLANNERS[stage](project, settings)
    except UserError as error:
        raise UserError(f"the project's settings of {stage}: {error}") from None


def _plan_data(project: Project, settings: ProjectSettings) -> StagePlan:
    imports = plan_imports(project, settings)
    sources = [
        path for command in imports for path in (command.manifest, *command.source) if path is not None
    ]
    return StagePlan(
        "data",
        (*imports, plan_check(project, settings)),
        reads=(*sources, project.config, project.dataset / "voices.json"),
        writes=(project.manifest, project.dataset / "audio", check_folder(project.manifest)),
        summary=lambda: (
            f"{counted(count_lines(project.manifest), 'utterance')}, "
            f"{len(read_rejected(project.manifest)):,} rejected"
        ),
    )


def plan_check(project: Project, settings: ProjectSettings) -> CheckData:
    """Return the check of the imported data; later stages apply its verdicts."""
    encoder = settings.base / "campplus/campplus_cn_common.bin"
    return CheckData(
        **{
            "voice_encoder": encoder if encoder.is_file() else None,
            "train_manifest": project.manifest,
            "report_dir": check_folder(project.manifest),
            **_normalizer(project, settings),
            **({"asr_folder": settings.base / RECOGNIZERS_NAME} if "asr" in settings.check else {}),
            **settings.check,
        }
    )


def plan_imports(project: Project, settings: ProjectSettings) -> list[ImportDataset]:
    """Return the imports of a project: its sources, each upload as a speaker of its own, and transcriptions.

    Uploads have the options of the configured sources for clips, and name recordings only within themselves.
    A project with neither gets an import that fails with a message.
    """
    shared = _import_options(project, settings)
    own = [ImportDataset(source=[path], audio_root=[path], **shared) for path in project.uploaded()]
    if (project.transcribed / MANIFEST_NAME).is_file():
        own.append(plan_transcribed(project, settings))
    described_sources = [settings.data.get(name) for name in ("source", "url", "hub")]
    if own and settings.manifest is None and not any(described_sources):
        return own
    described = ImportDataset(**{"manifest": settings.manifest, **shared, **settings.data})
    return [described, *own]


def plan_transcribed(
    project: Project, settings: ProjectSettings, speaker: str = "", speaker_from: str = "data"
) -> ImportDataset:
    """Return the import of what a transcription wrote, in place of an earlier transcription."""
    return ImportDataset(
        manifest=project.transcribed / MANIFEST_NAME,
        audio_root=[project.transcribed],
        speaker=speaker,
        speaker_from=speaker_from,
        prune=True,
        **_import_options(project, settings),
    )


def _import_options(project: Project, settings: ProjectSettings) -> dict[str, Any]:
    options = {
        "output_dir": project.dataset,
        "language": settings.language,
        "voice_encoder": settings.base / "campplus/campplus_cn_common.bin",
        **{name: settings.data[name] for name in OPTIONS_OF_CLIPS if name in settings.data},
    }
    if settings.data.get("asr"):
        options["asr_folder"] = settings.base / RECOGNIZERS_NAME
        if project.readings.is_file():
            options["readings"] = project.readings
    return options


def _plan_tokenizer(project: Project, settings: ProjectSettings) -> StagePlan:
    extend = ExtendTokenizer(
        **{
            "base_model": project.base_tokenizer,
            "manifests": [project.manifest],
            "output_model": project.tokenizer,
            **_normalizer(project, settings),
            **settings.tokenizer,
        }
    )
    verify = VerifyTraining(
        tokenizer=project.tokenizer,
        config=project.config,
        base_checkpoint=project.base_checkpoint,
        manifest=[project.manifest],
    )
    return StagePlan(
        "tokenizer",
        (extend, verify),
        reads=(project.base_tokenizer, project.manifest, *overlay_files(project.manifest)),
        writes=(project.tokenizer,),
        summary=lambda: f"{project.tokenizer.name}, verified",
    )


def _normalizer(project: Project, settings: ProjectSettings) -> dict[str, Any]:
    """Return normaliser options and the table; a UserError if the settings have one elsewhere."""
    elsewhere = settings.tokenizer.keys() | settings.check.keys()
    misplaced = sorted(NormalizerOptions.model_fields.keys() & elsewhere)
    if misplaced:
        raise UserError(f"{', '.join(misplaced)}: normaliser options; move them under normalizer:")
    readings = {"readings": project.readings} if project.readings.is_file() else {}
    return {**settings.normalizer, "language": settings.language, **readings}


def backend_of(project: Project, settings: ProjectSettings) -> str:
    """Return the speech backend of a project; "auto" if its base is missing and no backend is set."""
    asked = str(settings.preprocess.get("backend", Preprocess.model_fields["backend"].default))
    return speech_backend(asked, project.config) if project.config.is_file() else asked


def _plan_preprocess(project: Project, settings: ProjectSettings) -> StagePlan:
    settings = settings.with_fields("preprocess", backend=backend_of(project, settings))
    command = Preprocess(
        **{
            "manifest": project.manifest,
            "output_dir": project.preprocessed,
            "config": project.config,
            "gpt_checkpoint": project.base_checkpoint,
            **_speech_files(project.base, settings),
            **settings.preprocess,
        }
    )
    style_files = (command.campplus,) if project.base.reads_style else ()
    speech_files = (command.speech_encoder, command.semantic_codec, command.stats, *style_files)
    return StagePlan(
        "preprocess",
        (command,),
        reads=(
            project.manifest,
            *overlay_files(project.manifest),
            project.dataset / "audio",
            project.dataset / JOURNAL_NAME,  # changes with linked recordings, which audio/ does not contain
            project.base_checkpoint,
            project.config,
            *(speech_files if command.backend == "indextts2" else ()),
        ),
        writes=(project.utterances("train"), project.utterances("val"), project.preprocessed / "features"),
        summary=lambda: (
            f"{_split_sizes(project.utterances, 'utterance')}, "
            f"{read_hours(project.utterances('train')) or 0:.2f} hours for training"
        ),
    )


def _speech_files(base: Base, settings: ProjectSettings) -> dict[str, Path]:
    """Return the flags of the indextts2 backend: its files, in the base folder under their default names.

    Without a speech encoder there, the flag keeps its default, which finds the cache of the Hugging Face Hub.
    """
    if settings.preprocess.get("backend") != "indextts2":
        return {}
    files = {"semantic_codec": find_published(settings.base / base.codec_file)}
    for flag in ("stats", *(["campplus"] if base.reads_style else [])):
        files[flag] = find_published(settings.base / _place_of(flag))
    encoder = find_published(settings.base / _place_of("speech_encoder") / "config.json").parent
    return files | ({"speech_encoder": encoder} if encoder.is_dir() else {})


def _place_of(flag: str) -> Path:
    default: Path = Preprocess.model_fields[flag].default
    return default.relative_to("checkpoints")


def _plan_pairs(project: Project, settings: ProjectSettings) -> StagePlan:
    tokenizer = project.tokenizer if project.tokenizer.is_file() else None
    commands = tuple(
        BuildPairs(
            **{
                "manifest": project.utterances(split),
                "output": project.pairs(split),
                "tokenizer": tokenizer,
                **settings.pairs,
            }
        )
        for split in ("train", "val")
    )
    return StagePlan(
        "pairs",
        commands,
        reads=(project.utterances("train"), project.utterances("val"), project.tokenizer),
        writes=(project.pairs("train"), project.pairs("val")),
        summary=lambda: _split_sizes(project.pairs, "pair"),
    )


def _plan_train(project: Project, settings: ProjectSettings) -> StagePlan:
    command = Train(
        **{
            "train_manifest": [project.pairs("train")],
            "val_manifest": [project.pairs("val")],
            "tokenizer": project.tokenizer,
            "config": project.config,
            "base_checkpoint": project.base_checkpoint,
            "output_dir": project.run_dir,
            "resume": "auto",
            "max_steps": 0,  # explicit, or the limit of an earlier run would still apply
            "listen_asr": settings.check.get("asr", ""),
            **settings.train,
        }
    )
    return StagePlan(
        "train",
        (command,),
        reads=(project.pairs("train"), project.pairs("val"), project.tokenizer, project.base_checkpoint),
        writes=(project.run_dir / "latest.pth",),
        summary=lambda: _losses(project.run_dir / "metrics.jsonl"),
        launch=launch_of(settings.launch),
    )


def _plan_export(project: Project, settings: ProjectSettings) -> StagePlan:
    best = project.run_dir / "best.pth"
    command = ExportModel(
        **{
            "checkpoint": best if best.is_file() else project.run_dir / "latest.pth",
            "config": project.config,
            "output_dir": project.export,
            "published": settings.base,
            **settings.export,
        }
    )
    return StagePlan(
        "export",
        (command,),
        reads=(command.checkpoint,),
        writes=(project.export,),
        summary=lambda: f"{project.export} from {command.checkpoint.name}",
    )


PLANNERS: dict[Stage, Callable[[Project, ProjectSettings], StagePlan]] = {
    "data": _plan_data,
    "tokenizer": _plan_tokenizer,
    "preprocess": _plan_preprocess,
    "pairs": _plan_pairs,
    "train": _plan_train,
    "export": _plan_export,
}


def _split_sizes(path_of: Callable[[str], Path], noun: str) -> str:
    num_train, num_val = count_lines(path_of("train")), count_lines(path_of("val"))
    return f"{counted(num_train, noun)} for training, {num_val:,} for validation"


def _losses(metrics: Path) -> str:
    lines = read_metrics(metrics) if metrics.is_file() else []
    validations = [line for line in lines if line.get("kind") == "val"]
    if not validations:
        return f"no validation in {metrics.name}"
    first, last = validations[0], validations[-1]
    change = 100 * (last["mel_loss"] / first["mel_loss"] - 1)
    return (
        f"step {last['step']}: validation mel loss {first['mel_loss']:.3f} -> {last['mel_loss']:.3f} "
        f"({change:+.0f} %)"
    )
