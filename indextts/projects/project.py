"""A PROJECT: one voice, one folder, the same for terminal and page. No torch here.

    WORKSPACE/NAME/
      project.json                        the settings the project was made with
      checkpoints/                        config.yaml gpt.pth bpe.model: the base model
      dataset/                            manifest.jsonl audio/ check/ review.jsonl
      uploads/                            NAME.zip and files/ from a browser, sources of the import
      tokenizers/amharic_extended_bpe.model
      preprocessed_amharic/               features/ train_manifest.jsonl val_manifest.jsonl
                                          train_pairs.jsonl val_pairs.jsonl
      training_output/                    the run directory
      export/                             the model to take away: indextts/speech/export/model_folder.py
      listen/                             what the page let speak, and the votes (webui/listening/renders.py)
      scores/                             what the page let score (webui/listening/scoring.py)
      pipeline/STAGE.json                 what a stage was run with and how it ended
      drafts/FORM.json                    what stands in the page's forms (indextts/webui/drafts.py)
      tensorboard.json                    where its TensorBoard listens (indextts/projects/tensorboard.py)
      jobs/TIME_STAGE/                    what the page started (indextts/projects/jobs)

A project is described by a YAML file; relative paths are relative to it:

    name: my_voice
    manifest: recordings/manifest.jsonl   JSON lines with audio, text, speaker; or, in its place:
    data: {source: [talks, cv-am.zip]}    what tools/import_dataset.py reads, and its other flags
    base: IndexTTS-2                      folder with config.yaml, gpt.pth, bpe.model
    normalizer: {thousand: ሺ}             how texts are read, in training and at inference
    tokenizer: {target_size: 14000}       any flag of the stage's command, under its field's name
    check: {min_snr_db: 12}
    preprocess: {val_ratio: 0.01}
    pairs: {pairs_per_target: 2}
    train: {epochs: 3, learning_rate: 5.0e-5}
    launch: {processes: 4}                several GPUs: indextts/commands/launching.py
    export: {dtype: float16}
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from indextts.commands.normalizer_options import NormalizerOptions
from indextts.errors import UserError
from indextts.system.files import write_json

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class ProjectSettings(BaseModel):
    """What the YAML file of a project says; the paths are absolute."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    manifest: Path | None = None
    base: Path
    data: dict[str, Any] = {}
    check: dict[str, Any] = {}
    normalizer: dict[str, Any] = {}
    tokenizer: dict[str, Any] = {}
    preprocess: dict[str, Any] = {}
    pairs: dict[str, Any] = {}
    train: dict[str, Any] = {}
    launch: dict[str, Any] = {}
    export: dict[str, Any] = {}

    @field_validator("name")
    @classmethod
    def _is_a_folder_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} must be letters a to z, digits, _ . and - only, with no . or - first")
        return name

    @field_validator("data")
    @classmethod
    def _may_name_one_source(cls, chosen: dict[str, Any]) -> dict[str, Any]:
        return {**chosen, "source": [chosen["source"]]} if isinstance(chosen.get("source"), str) else chosen

    @field_validator("normalizer")
    @classmethod
    def _has_only_options(cls, chosen: dict[str, Any]) -> dict[str, Any]:
        try:
            NormalizerOptions(**chosen)
        except ValidationError as error:
            raise ValueError(_problems(error)) from None
        return chosen

    def with_fields(self, stage: str, **fields: Any) -> "ProjectSettings":
        """Return the settings with other flags for one stage."""
        return self.model_copy(update={stage: {**getattr(self, stage), **fields}})


def read_settings(path: Path) -> ProjectSettings:
    """Return the project that a YAML file describes.

    Raises:
        UserError: the file cannot be read, or a key is unknown, missing or of the wrong kind.
    """
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        settings = ProjectSettings.model_validate(content)
    except OSError as error:
        raise UserError(f"--config {path}: {error.strerror}; give a project's YAML file") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"--config {path}: not YAML ({' '.join(str(error).split())})") from None
    except ValidationError as error:
        raise UserError(f"--config {path}: {_problems(error)}; docs/data.md shows the keys") from None
    folder = path.resolve().parent
    paths: dict[str, Any] = {"base": folder / settings.base}
    if settings.manifest is not None:
        paths["manifest"] = folder / settings.manifest
    if isinstance(settings.data.get("source"), list):
        sources = [str(folder / str(source)) for source in settings.data["source"]]
        paths["data"] = {**settings.data, "source": sources}
    return settings.model_copy(update=paths)


def _problems(error: ValidationError) -> str:
    problems = [
        f"{'.'.join(map(str, e['loc'])) or 'file'}: {e['msg'].removeprefix('Value error, ')}"
        for e in error.errors()
    ]
    return "; ".join(problems)


def make_settings(**fields: Any) -> ProjectSettings:
    """Return settings made from `fields`.

    Raises:
        UserError: a field is missing or of the wrong kind.
    """
    try:
        return ProjectSettings(**fields)
    except ValidationError as error:
        raise UserError(_problems(error)) from None


def read_project(project: "Project") -> ProjectSettings:
    """Return the settings in a project's project.json.

    Raises:
        UserError: the file is missing or damaged.
    """
    path = project.root / "project.json"
    try:
        return ProjectSettings.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; make the project anew") from None
    except ValidationError as error:
        raise UserError(f"{path}: damaged ({error.errors()[0]['msg']}); make the project anew") from None


def write_project(project: "Project", settings: ProjectSettings) -> None:
    """Write the project's project.json; the folder must be there."""
    write_json(project.root / "project.json", settings.model_dump(mode="json"))


PUBLISHED = "checkpoints"  # the folder of the published files in a workspace; no project can have this name


def project_names(workspace: Path) -> list[str]:
    """Return the projects of the workspace, the demo last; a link that leads out of it is none."""
    folders = [path.parent for path in workspace.glob("*/project.json")]
    inside = workspace.resolve()
    names = [folder.name for folder in folders if folder.resolve().is_relative_to(inside)]
    return sorted(names, key=lambda name: (name == "demo", name))


@dataclass(frozen=True)
class Project:
    """The paths of one project."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "checkpoints/config.yaml"

    @property
    def base_checkpoint(self) -> Path:
        return self.root / "checkpoints/gpt.pth"

    @property
    def base_tokenizer(self) -> Path:
        return self.root / "checkpoints/bpe.model"

    @property
    def dataset(self) -> Path:
        return self.root / "dataset"

    @property
    def uploads(self) -> Path:
        return self.root / "uploads"

    def uploaded(self) -> list[Path]:
        """Return what was uploaded: zip archives, and the folder of single files."""
        inside = sorted(self.uploads.iterdir()) if self.uploads.is_dir() else []
        return [path for path in inside if not path.name.startswith(".")]

    @property
    def manifest(self) -> Path:
        return self.dataset / "manifest.jsonl"

    @property
    def tokenizer(self) -> Path:
        return self.root / "tokenizers/amharic_extended_bpe.model"

    @property
    def preprocessed(self) -> Path:
        return self.root / "preprocessed_amharic"

    def utterances(self, split: str) -> Path:
        """Return the preprocessed manifest of `split`, "train" or "val"."""
        return self.preprocessed / f"{split}_manifest.jsonl"

    def pairs(self, split: str) -> Path:
        """Return the pairs of `split`, "train" or "val"."""
        return self.preprocessed / f"{split}_pairs.jsonl"

    @property
    def run_dir(self) -> Path:
        return self.root / "training_output"

    @property
    def listen(self) -> Path:
        return self.root / "listen"

    @property
    def tensorboard_address(self) -> Path:
        return self.root / "tensorboard.json"

    @property
    def scores(self) -> Path:
        return self.root / "scores"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def export(self) -> Path:
        return self.root / "export"
